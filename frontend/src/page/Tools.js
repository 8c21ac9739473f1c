// What stands above a picture: gradient or values, one plane or all, zoom.
import { html } from "../html.js";

export function Tools({ sheet, tensor, fixed, setFixed, mode, setMode, canSwitch, hand, setHand, api, role }) {
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
