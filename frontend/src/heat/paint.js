// Cells to pixels: one look-up per element into a table of colors, one copy to the canvas.
import { steps } from "./colors.js";

/** A picture of the sheet with one pixel per cell. `size` is the end of the symmetric scale. */
export function signedPicture(sheet, data, size, palette) {
  const pixels = new Uint32Array(sheet.rows * sheet.columns).fill(palette.gap);
  const table = palette.diverging;
  const half = steps / 2;
  const factor = size > 0 ? half / size : 0; // a scale without extent: nothing but zeros
  const { height, width, stepDown, stepAcross, columns } = sheet;
  for (let k = 0; k < sheet.shown; k++) {
    const [row, column] = sheet.corner(k);
    for (let i = 0, line = sheet.start(k); i < height; i++, line += stepDown) {
      let to = (row + i) * columns + column;
      for (let j = 0, at = line; j < width; j++, at += stepAcross) {
        const place = data[at] * factor;
        // What is beyond the scale takes its end.
        if (place === 0) pixels[to++] = data[at] === 0 ? palette.zero : table[half];
        else
          pixels[to++] =
            place - place !== 0 ? palette.odd : table[half + (place > half ? half : place < -half ? -half : place | 0)];
      }
    }
  }
  return pixels;
}

export function grayPicture(sheet, data, low, high, palette) {
  const pixels = new Uint32Array(sheet.rows * sheet.columns).fill(palette.gap);
  const factor = high > low ? steps / (high - low) : 0;
  const flat = high > low ? 0 : steps / 2;
  for (let k = 0; k < sheet.shown; k++) {
    const [row, column] = sheet.corner(k);
    for (let i = 0; i < sheet.height; i++) {
      let to = (row + i) * sheet.columns + column;
      let at = sheet.start(k) + i * sheet.stepDown;
      for (let j = 0; j < sheet.width; j++, at += sheet.stepAcross) {
        const v = data[at];
        pixels[to++] = v - v !== 0 ? palette.odd : palette.gray[(flat + (v - low) * factor) | 0];
      }
    }
  }
  return pixels;
}

/** Three planes as the colors of one picture; null where the tensor is no such picture. */
export function colorPicture(sheet, data, low, high, palette) {
  if (sheet.shown !== 3) return null;
  const pixels = new Uint32Array(sheet.height * sheet.width);
  const factor = high > low ? 255 / (high - low) : 0;
  const starts = [0, 1, 2].map((k) => sheet.start(k));
  for (let i = 0, to = 0; i < sheet.height; i++)
    for (let j = 0; j < sheet.width; j++, to++) {
      const at = i * sheet.stepDown + j * sheet.stepAcross;
      const [r, g, b] = starts.map((start) => ((data[start + at] - low) * factor) | 0);
      const sound = Number.isFinite(data[starts[0] + at] + data[starts[1] + at] + data[starts[2] + at]);
      pixels[to] = sound ? ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0 : palette.odd;
    }
  return pixels;
}

/** The derivative over a faint picture of the values: where it is small, the picture shows through. */
export function tint(sheet, pixels, { data, size, under }, palette) {
  const { values, low, high } = under;
  const factor = high > low ? 1 / (high - low) : 0;
  const paper = palette.diverging[steps / 2] & 255;
  for (let k = 0; k < sheet.shown; k++) {
    const [row, column] = sheet.corner(k);
    for (let i = 0; i < sheet.height; i++)
      for (let j = 0; j < sheet.width; j++) {
        const at = sheet.start(k) + i * sheet.stepDown + j * sheet.stepAcross;
        const to = (row + i) * sheet.columns + column + j;
        const share = Math.sqrt(Math.min(1, Math.abs(data[at]) / (size || 1)));
        if (share - share !== 0) continue;
        const gray = paper < 128 ? 24 + 110 * (values[at] - low) * factor : 120 + 130 * (values[at] - low) * factor;
        pixels[to] = blended(pixels[to], gray, share);
      }
  }
}

const blended = (color, gray, share) => {
  const part = (shift) => Math.round(gray + (((color >> shift) & 255) - gray) * share) << shift;
  return ((255 << 24) | part(16) | part(8) | part(0)) >>> 0;
};

/** Shrink by keeping the entry largest in size, so that a lone gradient is never lost between pixels. */
export function pooled(sheet, data, { down, across }) {
  const rows = Math.ceil(sheet.height / down);
  const columns = Math.ceil(sheet.width / across);
  const out = new Float64Array(sheet.shown * rows * columns);
  for (let plane = 0; plane < sheet.shown; plane++)
    for (let i = 0; i < sheet.height; i++) {
      let at = sheet.start(plane) + i * sheet.stepDown;
      let to = (plane * rows + Math.floor(i / down)) * columns;
      for (let j = 0; j < sheet.width; to++) {
        let held = out[to];
        let reach = held < 0 ? -held : held;
        for (const end = Math.min(sheet.width, j + across); j < end; j++, at += sheet.stepAcross) {
          const v = data[at];
          const far = v < 0 ? -v : v;
          // Not a number stays not a number: no comparison with it holds.
          if (far > reach || far !== far) {
            held = v;
            reach = far !== far ? Infinity : far;
          }
        }
        out[to] = held;
      }
    }
  return { rows, columns, data: out };
}

export function canvasOf(pixels, rows, columns) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = rows;
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), columns, rows), 0, 0);
  return canvas;
}
