// The question in Python and in words, what it cost, and how to take it along.
import { useState } from "preact/hooks";
import { indexText, isElement, sizeOf } from "../data/index.js";
import { count, seconds, short } from "../data/number.js";
import { pythonOf } from "../hosts/file.js";
import { html } from "../html.js";

const part = (name, index) => `${name}${index?.length ? `[${indexText(index)}]` : ""}`;

export const askOf = (view) => ({
  target: { name: view.target, index: view.at },
  source: { name: view.source, index: view.from },
  reduce: null,
});

/** The question as a person would say it. */
export function inWords(view, target, source) {
  if (!target || !source) return "";
  if (view.asks === "map")
    return `how much each step of ${view.target} depends on each step of ${view.source}: the size of its derivative`;
  if (view.asks === "block") return `how every element of ${view.target} changes with every element of ${view.source}`;
  if (view.at === null && view.from === null)
    return `click an element of ${view.target} to see what it depends on, or one of ${view.source} to see what it changes`;
  const y = part(view.target, view.at);
  const x = part(view.source, view.from);
  if (view.at === null)
    return `how each element of ${view.target} changes with ${isElement(view.from, source.shape) ? x : `${x}, all together`}`;
  const sum = isElement(view.at, target.shape) ? y : `the sum of ${y}`;
  return view.from === null ? `how ${sum} changes with each element of ${view.source}` : `how ${sum} changes with ${x}`;
}

/** Copy, and say so on the button itself. */
function Copy({ text, label, title, said }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    const ok = await toClipboard(text());
    setDone(true);
    said(ok ? "copied" : "the browser does not let pages copy");
    setTimeout(() => setDone(false), 1200);
  };
  return html`<button type="button" title=${title} data-copy=${label} onClick=${copy}>${done ? "copied" : label}</button>`;
}

export async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages from disk and frames of notebooks have no clipboard of their own; a selected field still copies.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "wrt-aside";
    document.body.append(field);
    field.select();
    const ok = document.execCommand("copy");
    field.remove();
    return ok;
  }
}

export function Question({ store }) {
  const view = store.view.value;
  if (!view) return null;
  const answer = store.stale.value ? null : store.answer.value;
  const { target, source } = { target: store.tensors.target.value, source: store.tensors.source.value };
  // Of a block the matrix is shown, whatever sum of it the host sent along.
  const python = (view.asks === "block" ? null : answer?.python) ?? pythonOf(askOf(view), { target, source });
  const said = (words) => (store.said.value = words);
  return html`<section class="wrt-question" aria-label="question">
    <code class="wrt-python">${python}</code>
    <div class="wrt-actions">
      <${Copy} text=${() => python} label="copy as Python" title="copy as Python (c)" said=${said} />
      ${store.trail.link && store.hello.value?.link !== false && html`<${Copy} text=${() => store.trail.link(view)}
          label="copy link" title="copy a link to this view (l)" said=${said} />`}
      <${Wholes} store=${store} view=${view} target=${target} source=${source} />
    </div>
    <p class="wrt-words">${inWords(view, target, source)}</p>
    <${Facts} answer=${answer} />
    <${Progress} store=${store} />
  </section>`;
}

/** Questions about everything at once, where that is small enough to be looked at. */
function Wholes({ store, view, target, source }) {
  if (!target || !source) return null;
  const [m, n] = [sizeOf(target.shape), sizeOf(source.shape)];
  const ask = (asks) => store.show({ ...view, at: null, from: null, asks });
  const verbs = store.hello.value?.verbs;
  const sequence = (tensor) => tensor.axes?.tokens != null || tensor.shape.filter((length) => length > 1).length === 1;
  const maps =
    sequence(target) &&
    sequence(source) &&
    m > 1 &&
    n > 1 &&
    (store.host.kind === "file" ? store.host.maps?.(view) : verbs?.includes("map"));
  return html`${m > 1 && n > 1 && m * n <= 4096 && html`<button type="button" aria-pressed=${view.asks === "block"}
      onClick=${() => ask("block")}>all × all</button>`}
    ${maps && html`<button type="button" aria-pressed=${view.asks === "map"}
        onClick=${() => ask("map")}>dependence map</button>`}`;
}

function Facts({ answer }) {
  if (!answer) return null;
  const whole = answer.view.asks === "block" && answer.block; // the matrix is what is looked at
  const { low, high, zeros, nonfinite } = whole || answer;
  const size = (whole ? whole.data : answer.values)?.length ?? 0;
  const facts = [
    size > 0 && zeros < size && `range ${short(low)} … ${short(high)}`,
    size > 1 && (zeros === size ? "every entry is exactly zero" : `${count(zeros)} of ${count(size)} zero`),
    nonfinite > 0 && `${count(nonfinite)} not finite`,
    answer.reduced && !whole && `${answer.reduced === "sum" ? "summed" : "norm"} over the region`,
    answer.passes != null && `${answer.passes} ${answer.passes === 1 ? "pass" : "passes"}`,
    answer.seconds != null && seconds(answer.seconds),
    answer.connected === false && "not connected",
  ].filter(Boolean);
  return html`<p class="wrt-facts">${facts.map((fact) => html`<span key=${fact}>${fact}</span>`)}</p>`;
}

function Progress({ store }) {
  const progress = store.progress.value;
  if (!progress) return null;
  const share = progress.share ?? null;
  return html`<div class="wrt-progress" role="status">
    <progress max="1" ...${share === null ? {} : { value: share }} aria-label=${progress.doing}></progress>
    <span>${[progress.doing, share !== null && `${Math.round(share * 100)}%`, progress.left_s && `${seconds(progress.left_s)} left`]
      .filter(Boolean).join(" · ")}</span>
    <button type="button" onClick=${store.cancel}>cancel</button>
  </div>`;
}
