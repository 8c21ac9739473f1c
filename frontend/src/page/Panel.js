// One of the two tensors of a question.
import { sizeOf, shapeText } from "../data/index.js";
import { html } from "../html.js";
import { Choice } from "./Choice.js";
import { Picture } from "./Picture.js";
import { Single } from "./Single.js";

export function Panel({ store, theme, role }) {
  const tensor = store.tensors[role].value;
  const view = store.view.value;
  const names = store.hello.value?.[`${role}s`] ?? [];
  const choose = (name) =>
    store.show(role === "target" ? { ...view, target: name, at: null, asks: null } : { ...view, source: name, from: null });
  const Shown = tensor && sizeOf(tensor.shape) === 1 ? Single : Picture;
  return html`<section class="wrt-panel" aria-label=${role} data-role=${role}>
    <header>
      <h2>${role}</h2>
      <${Choice} names=${names} value=${view[role]} label=${`${role} tensor`} onChoose=${choose} />
      ${tensor && html`<span class="wrt-shape">${shapeText(tensor.shape)}</span><span class="wrt-dtype">${tensor.dtype}</span>`}
    </header>
    ${tensor && html`<${Shown} key=${tensor.name} store=${store} theme=${theme} role=${role} tensor=${tensor} />`}
  </section>`;
}
