// A tensor of one number.
import { exact } from "../data/number.js";
import { html } from "../html.js";
import { gradientOver } from "./content.js";
import { picked } from "./picking.js";

export function Single({ store, tensor, role }) {
  const view = store.view.value;
  const gradient = store.over.value === role ? gradientOver(store.answer.value, tensor) : null;
  const index = role === "target" ? view.at : view.from;
  const zero = tensor.shape.map(() => 0);
  const value = tensor.values
    ? html`<span class="wrt-big">${exact(tensor.values[0])}</span>`
    : html`<span class="wrt-note">${tensor.note ?? "its value was not kept"}</span>`;
  return html`<button type="button" class=${`wrt-single${index ? " wrt-chosen" : ""}`} aria-label=${`${role} ${tensor.name}, one number`}
      onClick=${(event) => store.show(picked(view, role, zero, event.shiftKey))}>
    ${value}
    ${gradient && html`<span class="wrt-slope">derivative <b>${exact(gradient[0])}</b></span>`}
  </button>`;
}
