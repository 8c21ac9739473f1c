// The arrows between boxes; a cut one ends in two bars before it arrives.
import { html } from "../html.js";
import { box } from "./place.js";

const round = (v) => Math.round(v * 10) / 10;

/** A smooth line through dagre's points, or straight down between layers. */
function curve(arrow, layout) {
  const a = layout.at.get(arrow.from);
  const b = layout.at.get(arrow.to);
  const start = { x: a.x + box.width / 2, y: a.y + box.height };
  const end = { x: b.x + box.width / 2, y: b.y };
  const bends = (layout.bends.get(arrow) ?? []).slice(1, -1);
  // Leaves and arrives straight down; the bends between are rounded off.
  const ease = Math.min(22, Math.max(8, (end.y - start.y) / 2));
  const inner = [{ x: start.x, y: start.y + ease }, ...bends, { x: end.x, y: end.y - ease }];
  let path = `M${round(start.x)} ${round(start.y)}`;
  for (let i = 0; i + 1 < inner.length; i++) {
    const [p, q] = [inner[i], inner[i + 1]];
    path += `Q${round(p.x)} ${round(p.y)} ${round((p.x + q.x) / 2)} ${round((p.y + q.y) / 2)}`;
  }
  const last = inner.at(-1);
  return { path: `${path}Q${round(last.x)} ${round(last.y)} ${round(end.x)} ${round(end.y)}`, end };
}

export function Arrows({ layout, arrows, width, height, top }) {
  return html`<svg class="wrt-arrows" width=${width} height=${height} viewBox=${`0 ${top} ${width} ${height}`}
      style=${{ top: `${top}px` }} aria-hidden="true">
    ${arrows.map((arrow) => {
      const { path, end } = curve(arrow, layout);
      const key = `${arrow.from}>${arrow.to}`;
      if (!arrow.cut)
        return html`<g key=${key}><path d=${path} class="wrt-arrow" /><path
            d=${`M${end.x - 3.5} ${end.y - 6}L${end.x} ${end.y - 0.5}L${end.x + 3.5} ${end.y - 6}`} class="wrt-tip" /></g>`;
      return html`<g key=${key} class="wrt-severed"><path d=${path} class="wrt-arrow" />
        <path
            d=${`M${end.x - 9} ${end.y - 10}L${end.x + 9} ${end.y - 14}M${end.x - 9} ${end.y - 5}L${end.x + 9} ${end.y - 9}`}
            class="wrt-bars" /></g>`;
    })}
  </svg>`;
}
