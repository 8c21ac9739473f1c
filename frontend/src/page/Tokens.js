// A sequence of tokens as words, tinted by how much of the gradient falls on each.
import { exact, short } from "../data/number.js";
import { stridesOf } from "../data/index.js";
import { html } from "../html.js";
import { palettes } from "../heat/colors.js";

/** Norm over everything but the axis of the tokens, within what is shown. */
export function normsAlong(values, shape, axis) {
  const squares = new Float64Array(shape[axis]);
  const stride = stridesOf(shape)[axis];
  for (let i = 0; i < values.length; i++) squares[Math.floor(i / stride) % shape[axis]] += values[i] * values[i];
  return squares.map(Math.sqrt);
}

export function Tokens({ tensor, gradient, index, theme, onSelect, role, beside }) {
  const { axis, words } = { axis: tensor.axes.tokens, words: tensor.tokens };
  const norms = gradient ? normsAlong(gradient, tensor.shape, axis) : null;
  const top = norms ? Math.max(...norms, 0) : 0;
  const whole = (k) => tensor.shape.map((_, other) => (other === axis ? k : other === tensor.axes.batch ? 0 : null));
  const chosen = (k) =>
    index !== null && (index[axis] === k || (Array.isArray(index[axis]) && k >= index[axis][0] && k < index[axis][1]));
  return html`<div class=${`wrt-tokens${beside ? " wrt-column" : ""}`} role="group" aria-label=${`tokens of the ${role}`}>
    ${words.map((word, k) => {
      const share = norms && top > 0 ? norms[k] / top : 0;
      const strong = theme === "dark" ? share > 0.72 : share > 0.62;
      const said = norms ? `${word}, gradient ${short(norms[k])}` : word;
      return html`<button key=${k} type="button"
          class=${`wrt-token${chosen(k) ? " wrt-chosen" : ""}${strong ? " wrt-strong" : ""}`}
          aria-label=${`token ${k}: ${said}`} aria-pressed=${chosen(k)}
              title=${norms ? `‖gradient‖ = ${exact(norms[k])}` : `token ${k}`}
          style=${{ backgroundColor: share > 0 ? palettes[theme].css(share) : "" /* exactly zero is paper */ }}
          onClick=${(event) => onSelect(whole(k), { both: event.shiftKey })}>${word}</button>`;
    })}
  </div>`;
}
