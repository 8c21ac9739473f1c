// The words of the box in focus: where it was computed, how large its gradient is, and the two ways to ask about it.
import { scalar } from "../data/array.js";
import { short } from "../data/number.js";
import { html } from "../html.js";
import { askable, asked, sizeOfBox } from "./asking.js";

function sizeWords({ max, mean, zeros, nonfinite }) {
  const odd = nonfinite ? ` · ${nonfinite} not finite` : "";
  return `gradient max ${short(scalar(max))} · mean ${short(scalar(mean))} · ${zeros} zeros${odd}`;
}

export function Details({ store, current, toggle }) {
  if (!current) return null;
  const node = askable(current) ?? current.last;
  const size = sizeOfBox(current, store.sizes.value);
  const place = [node.file && `${node.file}:${node.line}`, node.function].filter(Boolean).join(" in ");
  const use = (role) => html`<button type="button" onClick=${() => store.show(asked(store.view.value, node, role))}>as ${role}</button>`;
  return html`<div class="wrt-details">
    <p><b>${node.name ?? node.label}</b>${place && html` <span class="wrt-place">${place}</span>`}</p>
    ${node.text && html`<pre class="wrt-source">${node.text.trim()}</pre>`}
    ${current.finding && html`<p class="wrt-warn">${current.finding.sentence}</p>`}
    ${size && html`<p class="wrt-number">${sizeWords(size)}</p>`}
    <p class="wrt-actions">
      ${node.name && node.ask !== false && [use("target"), use("source")]}
      ${current.parent && html`<button type="button" onClick=${() => toggle(current.parent, false)}>close ${current.parent}</button>`}
    </p>
  </div>`;
}
