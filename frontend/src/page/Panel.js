// One of the two tensors of a question: its picture, its scale, the value under the pointer.
import { useSignal } from "@preact/signals";
import { useMemo, useRef, useState } from "preact/hooks";
import { flatOf, indexOf, indexText, isElement, flatsOf, shapeText, sizeOf } from "../data/index.js";
import { count, exact } from "../data/number.js";
import { HeatMap } from "../heat/HeatMap.js";
import { axesOf, fixedAtFirst, fixedFor, sheetOf } from "../heat/sheet.js";
import { html } from "../html.js";
import { Choice } from "./Choice.js";
import { Legend } from "./Legend.js";
import { Tokens } from "./Tokens.js";

/** A series runs across, whichever of its axes is the long one. */
function axesFor(tensor) {
  if (tensor.view !== "series") return tensor.axes ?? null;
  return {
    ...tensor.axes,
    rows: null,
    columns: Math.max(
      0,
      tensor.shape.findIndex((n) => n > 1),
    ),
  };
}

const squareCells = ({ view }, sheet) =>
  view === "image" ||
  view === "planes" ||
  view === "heat" ||
  (view === "matrix" && sheet.rows < 2.5 * sheet.columns && sheet.columns < 2.5 * sheet.rows);

/** The derivative over this tensor; what was not asked stays empty. */
function gradientOver(answer, tensor) {
  if (!answer?.values) return null;
  const size = sizeOf(tensor.shape);
  if (answer.values.length === size) return answer.values;
  const part = new Float64Array(size);
  const index = answer.index ?? (answer.over === "target" ? answer.ask?.target.index : answer.ask?.source.index) ?? null;
  const places = flatsOf(index, tensor.shape);
  if (places.length !== answer.values.length) return null;
  places.forEach((flat, i) => (part[flat] = answer.values[i]));
  return part;
}

function contentOf(tensor, gradient, answer, mode, gain) {
  const under = mode === "both" ? { values: tensor.values, low: tensor.low, high: tensor.high } : null;
  if (gradient && mode !== "values") return { data: gradient, signed: true, size: answer.size / 10 ** gain, under };
  if (tensor.values)
    return { data: tensor.values, signed: false, low: tensor.low, high: tensor.high, colors: tensor.view === "image" };
  return { data: new Float32Array(sizeOf(tensor.shape)), signed: true, size: 0, empty: true };
}

export function Panel({ store, theme, role }) {
  const tensor = store.tensors[role].value;
  const view = store.view.value;
  const { hello, graph } = store;
  const names = hello.value?.[`${role}s`] ?? [];
  const choose = (name) =>
    store.show(role === "target" ? { ...view, target: name, at: null, asks: null } : { ...view, source: name, from: null });
  return html`<section class="wrt-panel" aria-label=${role} data-role=${role}>
    <header>
      <h2>${role}</h2>
      ${view && html`<${Choice} names=${names} value=${view[role]} label=${`${role} tensor`} onChoose=${choose} />`}
      ${tensor && html`<span class="wrt-shape">${shapeText(tensor.shape)}</span><span class="wrt-dtype">${tensor.dtype}</span>`}
    </header>
    ${tensor && html`<${Picture} key=${tensor.name} store=${store} theme=${theme} role=${role} tensor=${tensor} />`}
  </section>`;
}

function Picture({ store, theme, role, tensor }) {
  const view = store.view.value;
  const answer = store.over.value === role ? store.answer.value : null;
  const index = role === "target" ? view.at : view.from;
  const gradient = useMemo(() => gradientOver(answer, tensor), [answer, tensor]);
  const [wanted, setMode] = useState("gradient");
  const mode = gradient ? wanted : "values";
  const [gain, setGain] = useState(0);
  const [hand, setHand] = useState(false);
  const given = useMemo(() => axesFor(tensor), [tensor]);
  const [chosen, setFixed] = useState(() => fixedAtFirst(tensor.shape, given));
  const fixed = fixedFor(chosen, axesOf(tensor.shape, given), index);
  const sheet = useMemo(() => sheetFor(tensor, given, fixed, mode), [tensor, given, String(fixed), mode]);
  const content = useMemo(() => contentOf(tensor, gradient, answer, mode, gain), [tensor, gradient, answer, mode, gain]);
  const [zoomed, setZoomed] = useState(false);
  const hovered = useSignal(null);
  const api = useRef(null);

  const select = (picked, { both = false, keyboard = false } = {}) => {
    // A pixel of a colored picture is all its channels.
    const at = sheet.stacked
      ? picked.map((part, axis) => (sheet.axes.planes.includes(axis) && tensor.shape[axis] === 3 ? null : part))
      : picked;
    const other = role === "target" ? "from" : "at";
    store.show(
      { ...view, asks: null, [role === "target" ? "at" : "from"]: at, [other]: both ? view[other] : null },
      { keyboard },
    );
  };
  if (sizeOf(tensor.shape) === 1)
    return html`<${Single} tensor=${tensor} gradient=${gradient} index=${index} select=${select} role=${role} />`;
  const bars = sheet.rows === 1 && tensor.view === "series";
  const strip = tensor.tokens && tensor.axes?.tokens != null && tensor.view === "tokens";
  // Words stand beside their rows while those are tall enough, and above the picture otherwise.
  const beside = strip && !zoomed && sheet.axes.down === tensor.axes.tokens && sheet.shown === 1 && sheet.rows <= 24;
  const alone = strip && tensor.shape.filter((n) => n > 1).length === 1;
  return html`
    <${Tools} sheet=${sheet} tensor=${tensor} fixed=${fixed} setFixed=${setFixed} mode=${mode} setMode=${setMode}
      canSwitch=${gradient !== null && tensor.values !== null} hand=${hand} setHand=${setHand} api=${api} role=${role} />
    <div class=${beside ? "wrt-rows" : "wrt-stack"}>
    ${strip && html`<${Tokens} tensor=${tensor} gradient=${mode === "gradient" ? gradient : null} index=${index}
        theme=${theme} onSelect=${select} role=${role} beside=${beside} />`}
    ${
      !alone &&
      html`<${HeatMap} sheet=${sheet} content=${content} theme=${theme} index=${index} square=${squareCells(tensor, sheet)}
          bars=${bars}
      label=${spoken(role, tensor, index, gradient)} hand=${hand} onSelect=${select}
          onHover=${(flat) => (hovered.value = flat)} onZoom=${setZoomed} api=${api} />`
    }
    </div>
    <${Readout} hovered=${hovered} tensor=${tensor} gradient=${gradient} index=${index} sheet=${sheet} />
    ${
      content.empty
        ? html`<p class="wrt-note">${tensor.note ?? "the values were not kept"}; elements can be clicked all the same</p>`
        : html`<${Legend} content=${content} theme=${theme} gain=${gain} onGain=${setGain} role=${role}
            zeros=${content.signed ? answer.zeros : 0} />`
    }`;
}

/** Colored pictures are one plane while their values are shown, and a plane per channel for gradients. */
function sheetFor(tensor, given, fixed, mode) {
  const sheet = sheetOf(tensor.shape, given, fixed);
  if (mode !== "values" || tensor.view !== "image" || sheet.shown !== 3) return sheet;
  return { ...sheet, rows: sheet.height, columns: sheet.width, tiles: 1, corner: () => [0, 0], stacked: true };
}

function spoken(role, tensor, index, gradient) {
  const where = index ? `, selected ${indexText(index)}` : "";
  const at = index && isElement(index, tensor.shape) ? flatOf(index, tensor.shape) : null;
  const value = at !== null && tensor.values ? `, value ${exact(tensor.values[at])}` : "";
  const slope = at !== null && gradient ? `, derivative ${exact(gradient[at])}` : "";
  const keys = "Arrow keys move, shift and arrow keys select a region.";
  return `${role} ${tensor.name}, ${shapeText(tensor.shape)}${where}${value}${slope}. ${keys}`;
}

function Tools({ sheet, tensor, fixed, setFixed, mode, setMode, canSwitch, hand, setHand, api, role }) {
  const set = (i, at) => setFixed(fixed.map((old, k) => (k === i ? at : old)));
  const nameOf = (axis) => (axis === tensor.axes?.channel ? "channel" : axis === tensor.axes?.batch ? "sample" : `axis ${axis}`);
  return html`<div class="wrt-tools">
    ${
      canSwitch &&
      html`<div class="wrt-switch" role="group" aria-label=${`what the ${role} shows`}>
      ${(tensor.view === "image" ? ["gradient", "both", "values"] : ["gradient", "values"]).map((one) => html`<button
          key=${one} type="button" aria-pressed=${mode === one} onClick=${() => setMode(one)}>${one}</button>`)}
    </div>`
    }
    ${sheet.axes.planes.map(
      (axis, i) =>
        tensor.shape[axis] > 1 &&
        html`<label key=${axis} class="wrt-slider">
      <span>${nameOf(axis)}</span>
      <input type="range" min="-1" max=${tensor.shape[axis] - 1} value=${fixed[i] ?? -1}
          aria-label=${`${nameOf(axis)} of the ${role}`}
        aria-valuetext=${fixed[i] === null ? "all" : String(fixed[i])}
        onInput=${(event) => set(i, Number(event.currentTarget.value) < 0 ? null : Number(event.currentTarget.value))} />
      <output class="wrt-number">${fixed[i] ?? "all"}</output>
    </label>`,
    )}
    <div class="wrt-zoom" role="group" aria-label=${`zoom of the ${role}`}>
      <button type="button" aria-label="zoom in" onClick=${() => api.current?.zoom(1.6)}>+</button>
      <button type="button" aria-label="zoom out" onClick=${() => api.current?.zoom(1 / 1.6)}>−</button>
      <button type="button" aria-label="show everything" onClick=${() => api.current?.fit()}>fit</button>
      <button type="button" aria-pressed=${hand} title="drag moves the picture instead of selecting a region"
          onClick=${() => setHand(!hand)}>move</button>
    </div>
  </div>`;
}

/** Kept apart, so that moving the pointer renders one line and nothing else. */
function Readout({ hovered, tensor, gradient, index, sheet }) {
  const flat = hovered.value ?? (index && isElement(index, tensor.shape) ? flatOf(index, tensor.shape) : null);
  if (flat === null) {
    const words = index ? `[${indexText(index)}]` : "click an element, or drag over a region";
    return html`<p class="wrt-readout"><span class="wrt-where">${words}</span></p>`;
  }
  const at = indexOf(flat, tensor.shape);
  const value = (data) =>
    sheet.stacked ? [0, 1, 2].map((k) => exact(data[flat + sheet.start(k) - sheet.start(0)])).join("  ") : exact(data[flat]);
  const word = tensor.tokens && tensor.axes?.tokens != null ? tensor.tokens[at[tensor.axes.tokens]] : null;
  return html`<p class="wrt-readout">
    <span class="wrt-where">[${indexText(at)}]${word !== null ? html` <em>${word}</em>` : null}</span>
    ${tensor.values && html`<span>value <b>${value(tensor.values)}</b></span>`}
    ${gradient && html`<span class="wrt-slope">derivative <b>${value(gradient)}</b></span>`}
  </p>`;
}

function Single({ tensor, gradient, index, select, role }) {
  const zero = tensor.shape.map(() => 0);
  return html`<button type="button" class=${`wrt-single${index ? " wrt-chosen" : ""}`}
      onClick=${(event) => select(zero, { both: event.shiftKey })}
      aria-label=${`${role} ${tensor.name}, one number`}>
    ${tensor.values ? html`<span class="wrt-big">${exact(tensor.values[0])}</span>` : html`<span
        class="wrt-note">${tensor.note ?? "its value was not kept"}</span>`}
    ${gradient && html`<span class="wrt-slope">derivative <b>${exact(gradient[0])}</b></span>`}
  </button>
  ${tensor.nonfinite > 0 && html`<p class="wrt-note">${count(tensor.nonfinite)} not finite</p>`}`;
}
