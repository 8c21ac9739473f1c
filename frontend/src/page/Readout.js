// The element under the pointer, or the one that is selected, with its exact numbers.
import { flatOf, indexOf, indexText, isElement } from "../data/index.js";
import { exact } from "../data/number.js";
import { html } from "../html.js";

/** Kept apart, so that moving the pointer renders one line and nothing else. */
export function Readout({ hovered, tensor, gradient, index, sheet }) {
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
