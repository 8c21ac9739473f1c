// One value or closed module: name, shape, how large the gradient is here, and what is wrong with it.
import { scalar } from "../data/array.js";
import { percent, short } from "../data/number.js";
import { html } from "../html.js";
import { modulesAround } from "./fold.js";

/** Sizes range over many powers of ten: the bar is six decades long. */
const barOf = (size, top) => (size > 0 && top > 0 ? Math.max(0.03, 1 + Math.log10(size / top) / 6) : 0);

export function sizeText(size) {
  if (!size) return null;
  const max = scalar(size.max);
  return { max, text: short(max), zeros: size.size ? size.zeros / size.size : 0, nonfinite: size.nonfinite ?? 0 };
}

/** The end of a name says most: what its frame or function already says is left out. */
function shown(box) {
  const { label } = box;
  const around = modulesAround(box.parent)
    .reverse()
    .find((path) => label.startsWith(`${path}.`));
  const inner = around ? label.slice(around.length + 1) : label;
  if (/^\d|^input$/.test(inner) || label.endsWith(".input")) return label; // a number alone says nothing: layers.0
  if (around || box.module || ["module-output", "parameter", "input"].includes(box.last.kind)) return inner;
  return label === "__setitem__" ? "write" : label.slice(label.lastIndexOf(".") + 1);
}

/** Which binding of a name this is: h#3 is written as h with a faint 3. */
const binding = (box) => (box.module ? "" : (/#\d+$/.exec(box.last.name ?? "")?.[0] ?? ""));

const compact = (shape) => (shape === null ? "" : shape.length ? shape.join("×") : "1");

function spoken(box, size, role) {
  const words = [
    box.module ? `module ${box.module}, ${box.nodes.length} values` : `${box.label}, ${box.last.op || box.last.kind}`,
  ];
  if (box.last.shape) words.push(`shape ${compact(box.last.shape)}`);
  if (size) words.push(`largest gradient ${size.text}`);
  if (size?.zeros > 0) words.push(`${percent(size.zeros)} zeros`);
  if (size?.nonfinite) words.push(`${size.nonfinite} not finite`);
  if (box.cut) words.push(`cut${box.cut.line ? ` at line ${box.cut.line}` : ""}`);
  if (role) words.push(role);
  return words.join(", ");
}

/** What stands in the second line: the worst news first. */
function news(box, size) {
  if (box.cut) return html`<span class="wrt-warn">cut${box.cut.line ? ` · line ${box.cut.line}` : ""}</span>`;
  if (size?.nonfinite) return html`<span class="wrt-warn">${size.nonfinite} NaN</span>`;
  if (box.finding) return html`<span class="wrt-warn">${box.finding.cause}</span>`;
  return html`<span class="wrt-op">${made(box)}</span>`;
}

/** How a value came about, or how many a module holds. */
function made({ module, nodes, last }) {
  if (module) return nodes.length === 1 ? "1 value" : `${nodes.length} values`;
  return last.op.replace("__setitem__", "write in place") || last.kind;
}

export function Box({ box, at, size, top, role, current, onOpen, onPick, onFocus, onKey }) {
  const seen = sizeText(size);
  const classes = [
    "wrt-box",
    box.module && "wrt-module",
    box.cut && "wrt-cut",
    role && "wrt-role",
    current && "wrt-current",
    `wrt-${box.last.kind ?? "value"}`,
  ];
  const wide = seen && Number.isFinite(seen.max) ? barOf(seen.max, top) : 0;
  return html`<div class=${classes.filter(Boolean).join(" ")} style=${{ transform: `translate(${at.x}px, ${at.y}px)` }}>
    ${box.module && html`<button type="button" class="wrt-unfold" aria-label=${`open module ${box.module}`}
        onClick=${() => onOpen(box.module)}>▸</button>`}
    <button type="button" class="wrt-face" data-key=${box.key} tabindex=${current ? 0 : -1}
        aria-label=${spoken(box, seen, role)} onClick=${(event) => onPick(box, event.shiftKey)}
        onFocus=${() => onFocus(box)} onDblClick=${() => box.module && onOpen(box.module)}
            onKeyDown=${(event) => onKey(event, box)}>
      <span class="wrt-line"><b title=${box.last.name ?? box.label}>${shown(box)}<span
          class="wrt-binding">${binding(box)}</span></b><span class="wrt-shape">${compact(box.last.shape)}</span></span>
      <span class="wrt-line">${news(box, seen)}
        ${
          seen &&
          html`<span class="wrt-size" title=${`largest gradient ${seen.text}`}>
          ${seen.zeros > 0.005 && html`<span class="wrt-zeros">${percent(seen.zeros)} zero</span>`}<span
              class="wrt-number">${seen.text}</span></span>`
        }
      </span>
      <i class="wrt-bar" aria-hidden="true" style=${{ width: `${(wide * 100).toFixed(1)}%` }}></i>
    </button>
    ${role && html`<span class="wrt-pin" aria-hidden="true">${role}</span>`}
  </div>`;
}
