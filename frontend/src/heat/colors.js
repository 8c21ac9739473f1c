// Color is the derivative, gray is what was computed. The two never share a scale.

const stops = {
  // Blue, paper, red: equal steps of lightness on both sides; in the dark the middle is dark and the ends are light.
  light: [
    [5, 48, 97],
    [33, 102, 172],
    [90, 158, 206],
    [170, 209, 231],
    [239, 239, 237],
    [250, 194, 167],
    [230, 128, 98],
    [190, 42, 48],
    [103, 0, 31],
  ],
  dark: [
    [198, 229, 255],
    [112, 182, 245],
    [56, 128, 205],
    [34, 72, 124],
    [38, 39, 42],
    [116, 44, 40],
    [196, 72, 56],
    [246, 140, 106],
    [255, 220, 196],
  ],
};

const odd = { light: [240, 180, 0], dark: [255, 205, 40] }; // NaN and infinity: neither blue nor red
export const steps = 1024; // even, so that zero has one entry of its own in the middle

const pack = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;

const mix = (a, b, share) => a.map((v, i) => Math.round(v + (b[i] - v) * share));

function ramp(points) {
  const table = new Uint32Array(steps + 1);
  for (let i = 0; i <= steps; i++) {
    const place = (i / steps) * (points.length - 1);
    const k = Math.min(Math.floor(place), points.length - 2);
    table[i] = pack(mix(points[k], points[k + 1], place - k));
  }
  return table;
}

const grays = {
  light: [
    [32, 32, 31],
    [252, 252, 251],
  ],
  dark: [
    [14, 14, 15],
    [236, 236, 234],
  ],
};
// Exactly zero is paper: not a faint color, since "cannot depend" is not "depends a little".
const gaps = { light: [255, 255, 255], dark: [20, 21, 22] };

export const palettes = Object.fromEntries(
  ["light", "dark"].map((theme) => [
    theme,
    {
      diverging: ramp(stops[theme]),
      gray: ramp(grays[theme]),
      odd: pack(odd[theme]),
      gap: pack(gaps[theme]),
      zero: pack(gaps[theme]),
      css: (share) => cssOf(theme, share),
    },
  ]),
);

/** The color of a share of the scale, -1 to 1, for bars and legends. */
function cssOf(theme, share) {
  const v = palettes[theme].diverging[Math.round(((Math.max(-1, Math.min(1, share)) + 1) / 2) * steps)];
  return `rgb(${v & 255} ${(v >> 8) & 255} ${(v >> 16) & 255})`;
}
