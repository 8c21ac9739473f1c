// The picture of a tensor with everything around it: its tools, its tokens, its scale, the value under the pointer.
import { useSignal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { flatOf, indexText, isElement, shapeText } from "../data/index.js";
import { exact } from "../data/number.js";
import { HeatMap } from "../heat/HeatMap.js";
import { axesOf, fixedAtFirst, fixedFor } from "../heat/sheet.js";
import { html } from "../html.js";
import { Legend } from "./Legend.js";
import { Readout } from "./Readout.js";
import { Tokens } from "./Tokens.js";
import { Tools } from "./Tools.js";
import { axesFor, contentOf, gradientOver, sheetFor, squareCells } from "./content.js";
import { picked, wholePixel } from "./picking.js";

function spoken(role, tensor, index, gradient) {
  const where = index ? `, selected ${indexText(index)}` : "";
  const at = index && isElement(index, tensor.shape) ? flatOf(index, tensor.shape) : null;
  const value = at !== null && tensor.values ? `, value ${exact(tensor.values[at])}` : "";
  const slope = at !== null && gradient ? `, derivative ${exact(gradient[at])}` : "";
  const keys = "Arrow keys move, shift and arrow keys select a region.";
  return `${role} ${tensor.name}, ${shapeText(tensor.shape)}${where}${value}${slope}. ${keys}`;
}

/** The planes that are shown: as the reader chose, until an element elsewhere is selected. */
function usePlanes(tensor, given, index) {
  const axes = useMemo(() => axesOf(tensor.shape, given), [tensor, given]);
  const [fixed, setFixed] = useState(() => fixedFor(fixedAtFirst(tensor.shape, given), axes, index));
  useEffect(() => setFixed((now) => fixedFor(now, axes, index)), [JSON.stringify(index)]);
  return [fixed, setFixed];
}

/** Everything that decides what is drawn. */
function useShown(store, tensor, role, index) {
  const answer = store.over.value === role ? store.answer.value : null;
  const gradient = useMemo(() => gradientOver(answer, tensor), [answer, tensor]);
  const [wanted, setMode] = useState("gradient");
  const [gain, setGain] = useState(0);
  const mode = gradient ? wanted : "values";
  const given = useMemo(() => axesFor(tensor), [tensor]);
  const [fixed, setFixed] = usePlanes(tensor, given, index);
  const sheet = useMemo(() => sheetFor(tensor, given, fixed, mode), [tensor, given, fixed, mode]);
  const content = useMemo(() => contentOf(tensor, gradient, answer, mode, gain), [tensor, gradient, answer, mode, gain]);
  return { answer, gradient, mode, setMode, gain, setGain, fixed, setFixed, sheet, content };
}

/** Where the words of a sequence stand: beside their rows while those are tall enough, above the picture otherwise. */
function wordsOf(tensor, sheet, zoomed) {
  const sequence = tensor.view === "tokens" && tensor.axes?.tokens != null;
  const strip = sequence && Boolean(tensor.tokens) && tensor.tokens.length <= 600; // more cannot be read at once
  const rows = sheet.axes.down === tensor.axes?.tokens && sheet.shown === 1 && sheet.rows <= 24;
  return { strip, beside: strip && rows && !zoomed, alone: strip && tensor.shape.filter((n) => n > 1).length === 1 };
}

export function Picture({ store, theme, role, tensor }) {
  const view = store.view.value;
  const index = role === "target" ? view.at : view.from;
  const shown = useShown(store, tensor, role, index);
  const { answer, gradient, mode, sheet, content } = shown;
  const [hand, setHand] = useState(false);
  const [zoomed, setZoomed] = useState(false);
  const hovered = useSignal(null);
  const api = useRef(null);
  const { strip, beside, alone } = wordsOf(tensor, sheet, zoomed);
  const select = (at, { both = false, keyboard = false } = {}) =>
    store.show(picked(view, role, wholePixel(at, sheet), both), { keyboard });
  return html`
    <${Tools} ...${shown} tensor=${tensor} canSwitch=${gradient !== null && tensor.values !== null} hand=${hand} setHand=${setHand}
      api=${api} role=${role} />
    <div class=${beside ? "wrt-rows" : "wrt-stack"}>
      ${strip && html`<${Tokens} tensor=${tensor} gradient=${mode === "gradient" ? gradient : null} index=${index} theme=${theme}
        onSelect=${select} role=${role} beside=${beside} />`}
      ${!alone && html`<${HeatMap} sheet=${sheet} content=${content} theme=${theme} index=${index} square=${squareCells(tensor, sheet)}
        bars=${sheet.rows === 1 && tensor.view === "series"} label=${spoken(role, tensor, index, gradient)} hand=${hand}
        onSelect=${select} onHover=${(flat) => (hovered.value = flat)} onZoom=${setZoomed} api=${api} />`}
    </div>
    <${Readout} hovered=${hovered} tensor=${tensor} gradient=${gradient} index=${index} sheet=${sheet} />
    ${content.empty
      ? html`<p class="wrt-note">${tensor.note ?? "the values were not kept"}; elements can be clicked all the same</p>`
      : html`<${Legend} content=${content} theme=${theme} gain=${shown.gain} onGain=${shown.setGain} role=${role}
          zeros=${content.signed ? answer.zeros : 0} />`}`;
}
