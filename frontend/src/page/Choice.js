// Which tensor a panel shows: a list while it is short, a field with suggestions when it is not.
import { useId, useState } from "preact/hooks";
import { html } from "../html.js";

const few = 300;

export function Choice({ names, value, label, onChoose }) {
  if (names.length > few) return html`<${Field} names=${names} value=${value} label=${label} onChoose=${onChoose} />`;
  const all = names.includes(value) ? names : [value, ...names];
  return html`<select class="wrt-choice" aria-label=${label} value=${value}
      onChange=${(event) => onChoose(event.currentTarget.value)}>
    ${all.map((name) => html`<option key=${name} value=${name} selected=${name === value}>${name}</option>`)}
  </select>`;
}

function Field({ names, value, label, onChoose }) {
  const list = useId();
  const [typed, setTyped] = useState(null);
  const part = (typed ?? "").toLowerCase();
  const near = names.filter((name) => name.toLowerCase().includes(part)).slice(0, 40);
  const choose = (name) => {
    setTyped(null);
    if (name && name !== value) onChoose(name); // not every name is listed; the host knows them all
  };
  return html`<input class="wrt-choice" aria-label=${label} list=${list} value=${typed ?? value} spellcheck="false"
      autocomplete="off"
      onInput=${(event) => setTyped(event.currentTarget.value)} onChange=${(event) => choose(event.currentTarget.value)} />
    <datalist id=${list}>${near.map((name) => html`<option key=${name} value=${name}></option>`)}</datalist>`;
}
