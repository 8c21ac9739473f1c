// The drawing itself: frames of open modules, arrows, boxes; only what is in sight.
import { useRef } from "preact/hooks";
import { scalar } from "../data/array.js";
import { html } from "../html.js";
import { Arrows } from "./Arrows.js";
import { Box } from "./Box.js";
import { askable, asked, roleOf, sizeOfBox } from "./asking.js";
import { focusOn, neighbor, useFollow, useSight } from "./sight.js";

const largest = (sizes) =>
  Object.values(sizes ?? {}).reduce((top, { max }) => (Number.isFinite(scalar(max)) ? Math.max(top, scalar(max)) : top), 0);

const placedAt = ({ x, y, width, height }) => ({ transform: `translate(${x}px, ${y}px)`, width: `${width}px`, height: `${height}px` });

function Frame({ frame, toggle }) {
  return html`<div class="wrt-frame" style=${placedAt(frame)}>
    <button type="button" aria-label=${`close module ${frame.path}`} onClick=${() => toggle(frame.path, false)}>▾ ${frame.path}</button>
  </div>`;
}

export function Drawing({ store, layout, current, toggle, toggled, setFocused }) {
  const place = useRef(null);
  const { scale, boxes, arrows, band } = useSight(place, layout);
  useFollow(place, layout, scale, toggled);
  const sizes = store.sizes.value;
  const top = largest(sizes);
  const pick = (one, asTarget) => {
    setFocused(one.key);
    const node = askable(one);
    if (node) store.show(asked(store.view.value, node, asTarget ? "target" : "source"));
  };
  const walk = (one, by) => {
    const next = neighbor(layout, one, by);
    if (!next) return;
    setFocused(next.key);
    focusOn(place.current, layout, scale, next);
  };
  const onKey = (event, one) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") walk(one, event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "ArrowRight" && one.module) toggle(one.module, true);
    else if (event.key === "ArrowLeft" && one.parent) toggle(one.parent, false);
    else if (event.key === "t") pick(one, true);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const drawn = (one) => html`<${Box} key=${one.key} box=${one} at=${layout.at.get(one.key)} size=${sizeOfBox(one, sizes)} top=${top}
    role=${roleOf(one, layout)} current=${one === current} onOpen=${(path) => toggle(path, true)} onPick=${pick}
    onFocus=${() => setFocused(one.key)} onKey=${onKey} />`;
  const extent = { width: `${layout.width * scale}px`, height: `${layout.height * scale}px` };
  const canvas = { width: `${layout.width}px`, height: `${layout.height}px`, transform: `scale(${scale})` };
  return html`<div class="wrt-scroll" ref=${place} data-boxes=${layout.drawn.boxes.length} data-layout=${layout.ms.toFixed(1)}>
    <div class="wrt-extent" style=${extent}><div class="wrt-canvas" style=${canvas}>
      ${layout.frames.map((frame) => html`<${Frame} key=${frame.path} frame=${frame} toggle=${toggle} />`)}
      <${Arrows} layout=${layout} arrows=${arrows} width=${layout.width} height=${band.height} top=${band.top} />
      ${boxes.map(drawn)}
    </div></div>
  </div>`;
}
