// The left side: the computation between what is selected, in the user's names, only what is in sight.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { scalar } from "../data/array.js";
import { short } from "../data/number.js";
import { html } from "../html.js";
import { Arrows } from "./Arrows.js";
import { Box } from "./Box.js";
import { folded, openedAtFirst } from "./fold.js";
import { between, indexed } from "./path.js";
import { box, placed } from "./place.js";

const margin = 14;
const beyond = 240; // pixels drawn above and below what is in sight, so that scrolling meets no holes

function useWindow(place, width, height) {
  const [seen, setSeen] = useState({ top: 0, tall: 900, wide: 300 });
  useEffect(() => {
    const at = place.current;
    const look = () => setSeen({ top: at.scrollTop, tall: at.clientHeight, wide: at.clientWidth - 2 * margin });
    const watch = new ResizeObserver(look);
    watch.observe(at);
    at.addEventListener("scroll", look, { passive: true });
    look();
    return () => (watch.disconnect(), at.removeEventListener("scroll", look));
  }, [width, height]);
  return seen;
}

const sizeOfBox = (one, sizes) => {
  if (!sizes) return null;
  for (let i = one.nodes.length - 1; i >= 0; i--) if (sizes[one.nodes[i].id]) return sizes[one.nodes[i].id];
  return null;
};

/** The layout changes with the question and with what is open; never with a scroll or a gradient. */
function useLayout(store, { whole, detail, toggled }) {
  const run = useMemo(() => indexed(store.graph.value), [store.graph.value]);
  const view = store.view.value;
  const target = run.byName.get(view?.target);
  const source = run.byName.get(view?.source);
  return useMemo(() => {
    const way = whole || target === undefined ? { ids: new Set(run.byId.keys()), connected: true } : between(run, target, source);
    const keep = new Set([target, source]);
    const nodes = run.order.filter((node) => way.ids.has(node.id));
    const open = openedAtFirst(nodes);
    for (const [path, is] of toggled)
      if (is) open.add(path);
      else open.delete(path);
    return { ...placed(folded(run, way.ids, { open, keep, detail })), target, source, connected: way.connected, run };
  }, [run, target, source, whole, detail, toggled]);
}

export function Graph({ store }) {
  const [whole, setWhole] = useState(false);
  const [detail, setDetail] = useState("names");
  const [toggled, setToggled] = useState(new Map());
  const [focused, setFocused] = useState(null);
  const layout = useLayout(store, { whole, detail, toggled });
  const toggle = (path, is) => setToggled(new Map([...toggled, [path, is]]));
  const current =
    layout.drawn.boxes.find(({ key }) => key === focused) ??
    layout.drawn.boxes.find(({ nodes }) => nodes.some(({ id }) => id === layout.source)) ??
    layout.drawn.boxes[0];
  return html`<section class="wrt-graph" aria-label="computation">
    <header>
      <h2>computation</h2>
      <button type="button" aria-pressed=${detail === "all"} title="also draw operations that have no name"
          onClick=${() => setDetail(detail === "all" ? "names" : "all")}>all steps</button>
      <button type="button" aria-pressed=${whole} title="also draw what lies beside the path"
          onClick=${() => setWhole(!whole)}>whole run</button>
    </header>
    ${!layout.connected && html`<p
        class="wrt-note">no path: ${store.view.value.target} was not computed from ${store.view.value.source}</p>`}
    <${Drawing} store=${store} layout=${layout} current=${current} toggle=${toggle} setFocused=${setFocused} />
    <${Details} store=${store} current=${current} toggle=${toggle} />
  </section>`;
}

const roleOf = (one, { target, source }) => {
  const holds = (id) => one.nodes.some((node) => node.id === id);
  if (holds(target) && holds(source)) return "target, source";
  return holds(target) ? "target" : holds(source) ? "source" : null;
};

/** The best value of a box to ask about: what comes out of it and has a name. */
const askable = (one) => [...one.nodes].reverse().find((node) => node.name && node.ask !== false);

function Drawing({ store, layout, current, toggle, setFocused }) {
  const place = useRef(null);
  const seen = useWindow(place, layout.width, layout.height);
  const sizes = store.sizes.value;
  const top = sizes
    ? Math.max(
        0,
        ...Object.values(sizes)
          .map((size) => scalar(size.max))
          .filter(Number.isFinite),
      )
    : 0;
  // A drawing a little too wide is made a little smaller, rather than scrolled in both directions.
  const scale = Math.max(0.74, Math.min(1, seen.wide / layout.width));
  const [from, to] = [(seen.top - beyond) / scale, (seen.top + seen.tall + beyond) / scale];
  const inSight = (low, high) => high > from && low < to;
  const boxes = layout.drawn.boxes.filter(({ key }) => inSight(layout.at.get(key).y, layout.at.get(key).y + box.height));
  const arrows = layout.drawn.arrows.filter(({ from, to }) => {
    const [a, b] = [layout.at.get(from).y, layout.at.get(to).y];
    return inSight(Math.min(a, b), Math.max(a, b));
  });
  const band = { top: Math.max(0, from), height: Math.min(layout.height, to) - Math.max(0, from) };
  useFollow(place, layout, scale);

  const pick = (one, asTarget) => {
    setFocused(one.key);
    const node = askable(one);
    if (!node) return;
    const view = store.view.value;
    store.show(asTarget ? { ...view, target: node.name, at: null, asks: null } : { ...view, source: node.name, from: null });
  };
  const onKey = (event, one) => {
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps) {
      const next = neighbor(layout, one, steps[event.key]);
      if (next) focusOn(place.current, layout.at.get(next.key).y * scale, next, setFocused);
    } else if (event.key === "ArrowRight" && one.module) toggle(one.module, true);
    else if (event.key === "ArrowLeft" && one.parent) toggle(one.parent, false);
    else if (event.key === "t") pick(one, true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class="wrt-scroll" ref=${place} data-boxes=${layout.drawn.boxes.length} data-layout=${layout.ms.toFixed(1)}>
    <div class="wrt-extent" style=${{ width: `${layout.width * scale}px`, height: `${layout.height * scale}px` }}>
    <div class="wrt-canvas" style=${{ width: `${layout.width}px`, height: `${layout.height}px`, transform: `scale(${scale})` }}>
      ${layout.frames.map(
        (
          frame,
        ) => html`<div key=${frame.path} class="wrt-frame"
            style=${{ transform: `translate(${frame.x}px, ${frame.y}px)`, width: `${frame.width}px`, height: `${frame.height}px` }}>
        <button type="button" aria-label=${`close module ${frame.path}`}
            onClick=${() => toggle(frame.path, false)}>▾ ${frame.path}</button></div>`,
      )}
      <${Arrows} layout=${layout} arrows=${arrows} width=${layout.width} height=${Math.max(0, band.height)} top=${band.top} />
      ${boxes.map(
        (
          one,
        ) => html`<${Box} key=${one.key} box=${one} at=${layout.at.get(one.key)} size=${sizeOfBox(one, sizes)} top=${top}
            role=${roleOf(one, layout)}
        current=${one === current} onOpen=${(path) => toggle(path, true)} onPick=${pick} onFocus=${() => setFocused(one.key)}
            onKey=${onKey} />`,
      )}
    </div></div>
  </div>`;
}

/** A new question brings its target into sight; the reader's own scrolling is left alone. */
function useFollow(place, layout, scale) {
  useEffect(() => {
    const one = layout.drawn.boxes.find(({ nodes }) => nodes.some(({ id }) => id === layout.target));
    const at = place.current;
    if (!one) return;
    const [x, y] = [layout.at.get(one.key).x * scale, layout.at.get(one.key).y * scale];
    if (y + box.height > at.scrollTop + at.clientHeight || y < at.scrollTop) at.scrollTop = y - at.clientHeight / 2;
    at.scrollLeft = x - (at.clientWidth - box.width) / 2;
  }, [layout.target, layout.source, layout.run]);
}

/** The next box up or down: the nearest in the drawing among those linked, else the next in order. */
function neighbor(layout, one, by) {
  const linked = layout.drawn.arrows
    .filter((arrow) => (by > 0 ? arrow.from : arrow.to) === one.key)
    .map((arrow) => (by > 0 ? arrow.to : arrow.from));
  const x = layout.at.get(one.key).x;
  const [key] = linked.sort((a, b) => Math.abs(layout.at.get(a).x - x) - Math.abs(layout.at.get(b).x - x));
  const { boxes } = layout.drawn;
  return boxes.find((other) => other.key === key) ?? boxes[boxes.indexOf(one) + by];
}

function focusOn(scroller, y, one, setFocused) {
  if (y < scroller.scrollTop || y + box.height > scroller.scrollTop + scroller.clientHeight)
    scroller.scrollTop = y - scroller.clientHeight / 2;
  setFocused(one.key);
  // The box may be drawn only after the scroll.
  requestAnimationFrame(() =>
    requestAnimationFrame(() => scroller.querySelector(`[data-key="${CSS.escape(one.key)}"]`)?.focus()),
  );
}

/** The words of the box in focus: where it was computed, and the two ways to ask about it. */
function Details({ store, current, toggle }) {
  if (!current) return null;
  const node = askable(current) ?? current.last;
  const size = sizeOfBox(current, store.sizes.value);
  const place = [node.file && `${node.file}:${node.line}`, node.function].filter(Boolean).join(" in ");
  const use = (role) =>
    store.show(
      role === "target"
        ? { ...store.view.value, target: node.name, at: null, asks: null }
        : { ...store.view.value, source: node.name, from: null },
    );
  return html`<div class="wrt-details">
    <p><b>${node.name ?? node.label}</b>${place && html` <span class="wrt-place">${place}</span>`}</p>
    ${node.text && html`<pre class="wrt-source">${node.text.trim()}</pre>`}
    ${current.finding && html`<p class="wrt-warn">${current.finding.sentence}</p>`}
    ${size && html`<p class="wrt-number">${sizeWords(size)}</p>`}
    <p class="wrt-actions">
      ${node.name && node.ask !== false && html`<button type="button" onClick=${() => use("target")}>as target</button><button
          type="button" onClick=${() => use("source")}>as source</button>`}
      ${current.parent && html`<button type="button"
          onClick=${() => toggle(current.parent, false)}>close ${current.parent}</button>`}
    </p>
  </div>`;
}

function sizeWords({ max, mean, zeros, nonfinite }) {
  const odd = nonfinite ? ` · ${nonfinite} not finite` : "";
  return `gradient max ${short(scalar(max))} · mean ${short(scalar(mean))} · ${zeros} zeros${odd}`;
}
