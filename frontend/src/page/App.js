// The page: the computation on the left, the two tensors of a question beside it, the evidence below.
import { useEffect, useRef, useState } from "preact/hooks";
import { Graph } from "../graph/Graph.js";
import { html } from "../html.js";
import { pythonOf } from "../hosts/file.js";
import { Evidence, Trouble, Why } from "./Evidence.js";
import { Help } from "./Help.js";
import { useKeptFocus } from "./focus.js";
import { Matrix } from "./Matrix.js";
import { Panel } from "./Panel.js";
import { Question, askOf, toClipboard } from "./Question.js";

export function App({ store, theme }) {
  const root = useRef(null);
  const [help, setHelp] = useState(false);
  const [wide, setWide] = useState(false);
  useKeptFocus(root);
  useKeys(root, store, theme, () => setHelp(true));
  const now = theme.theme.value;
  // Jupyter hears keys before the page does, and one of its keys deletes cells: within the page, keys are the page's.
  return html`<div class="wrt" data-theme=${now} data-lm-suppress-shortcuts="true" tabindex="-1" ref=${root}>
    <${Head} store=${store} theme=${theme} onHelp=${() => setHelp(true)} />
    ${store.lost.value && html`<p class="wrt-lost" role="status">the program that computes does not answer; trying again</p>`}
    ${!store.view.value && !store.trouble.value && html`<p class="wrt-opening" role="status">opening the recording …</p>`}
    <div class=${`wrt-body${wide ? " wrt-wide" : ""}`}>
      ${store.graph.value && store.view.value && html`<${Graph} store=${store} wide=${wide} setWide=${setWide} />`}
      <div class="wrt-main">
        <${Question} store=${store} />
        ${store.trouble.value && html`<${Trouble} lines=${store.trouble.value} />`}
        <${Why} findings=${store.findings.value} />
        ${
          store.view.value &&
          html`<div class="wrt-panels" data-stale=${store.stale.value}>
          <${Matrix} store=${store} theme=${now} />
          <${Panel} store=${store} theme=${now} role="target" />
          <${Panel} store=${store} theme=${now} role="source" />
        </div>`
        }
        <${Evidence} answer=${store.answer.value} />
      </div>
    </div>
    <p class="wrt-aside" role="status" aria-live="polite">${store.said.value}</p>
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}
  </div>`;
}

function Head({ store, theme, onHelp }) {
  const hello = store.hello.value;
  store.steps.value; // the trail is the browser's own: this says when to look at it again
  const step = (by, label, sign) =>
    html`<button type="button" aria-label=${label} title=${label} disabled=${!store.trail.can(by)}
        onClick=${() => store.trail.go(by)}>${sign}</button>`;
  return html`<header class="wrt-head">
    <span class="wrt-mark-name">wrt</span>
    <h1>${hello?.title ?? "microscope"}</h1>
    ${hello && html`<span class="wrt-framework">${hello.framework}${hello.computes === false ? " · saved" : ""}</span>`}
    ${hello?.note && html`<span class="wrt-framework wrt-hello-note" title=${hello.note}>${hello.note}</span>`}
    <nav>${step(-1, "back", "←")}${step(1, "forward", "→")}
      <button type="button" aria-label=${`switch to ${theme.theme.value === "dark" ? "light" : "dark"}`} title="dark or light"
          onClick=${theme.toggle}>${theme.theme.value === "dark" ? "☀" : "☾"}</button>
      <button type="button" aria-label="keys" title="keys (?)" onClick=${onHelp}>?</button>
    </nav>
  </header>`;
}

const typing = (target) => target.matches?.("input:not([type=range]), select, textarea");

function useKeys(root, store, theme, onHelp) {
  useEffect(() => {
    const go = (role) =>
      root.current.querySelector(`[data-role="${role}"] [tabindex="0"], [data-role="${role}"] .wrt-single`)?.focus();
    const view = () => store.view.value;
    const acts = {
      "?": onHelp,
      t: () => go("target"),
      s: () => go("source"),
      g: () => root.current.querySelector('.wrt-face[tabindex="0"]')?.focus(),
      x: () => store.show({ target: view().source, at: null, source: view().target, from: null, asks: null }),
      b: () => store.trail.go(-1),
      f: () => store.trail.go(1),
      c: () => toClipboard(store.answer.value?.python ?? pythonOf(askOf(view()))).then(() => (store.said.value = "copied")),
      l: () => store.trail.link && toClipboard(store.trail.link(view())).then(() => (store.said.value = "copied")),
      d: theme.toggle,
      Escape: () => store.progress.value && store.cancel(),
    };
    const onKey = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || typing(event.target)) return;
      if (!Object.hasOwn(acts, event.key) || root.current.querySelector("dialog[open]")) return;
      acts[event.key]();
      if (event.key !== "Escape") event.preventDefault();
    };
    // In a notebook other cells have keys of their own: listen to ours alone.
    const place = store.host.kind === "widget" ? root.current : document;
    place.addEventListener("keydown", onKey);
    return () => place.removeEventListener("keydown", onKey);
  }, []);
}
