// The scale of a picture: symmetric and colored for derivatives, gray for values; always with its numbers.
import { html } from "../html.js";
import { palettes } from "../heat/colors.js";
import { short } from "../data/number.js";

const shares = [-1, -0.75, -0.5, -0.25, 0, 0.25, 0.5, 0.75, 1];

export function Legend({ content, theme, gain, onGain, role, sided = false, zeros = 0 }) {
  if (!content.signed)
    return html`<div class="wrt-legend">
      <span class="wrt-number">${short(content.low)}</span>
      <i class="wrt-scale wrt-gray" aria-hidden="true"></i>
      <span class="wrt-number">${short(content.high)}</span>
    </div>`;
  const colors = shares.filter((share) => !sided || share >= 0).map((share) => palettes[theme].css(share));
  const band = `linear-gradient(to right, ${colors.join(", ")})`;
  return html`<div class="wrt-legend">
    ${zeros > 0 && html`<span class="wrt-zero"><i aria-hidden="true"></i>exactly 0</span>`}
    <span class="wrt-number">${sided ? "0" : short(-content.size)}</span>
    <i class="wrt-scale" aria-hidden="true" style=${{ backgroundImage: band }}></i>
    <span class="wrt-number">${content.size > 0 ? "+" : ""}${short(content.size)}</span>
    <label class="wrt-gain" title="strengthen faint gradients: the ends of the scale move in">
      <span>gain</span>
      <input type="range" min="0" max="4" step="0.25" value=${gain} aria-label=${`gain of the ${role}'s color scale`}
        aria-valuetext=${`scale ends at ${short(content.size)}`}
            onInput=${(event) => onGain(Number(event.currentTarget.value))} />
    </label>
  </div>`;
}
