// Everything that ends up on the canvas of one tensor.
import { canvasOf, colorPicture, grayPicture, pooled, signedPicture, tint } from "./paint.js";
import { rectanglesOf } from "./sheet.js";

/** A picture to be drawn again and again while panning: built once per content, not once per frame. */
export function pictureOf(sheet, content, palette) {
  let full = null;
  return { pools: new Map(), full: () => (full ??= paint(sheet, content, palette)) };
}

function paint(sheet, content, palette) {
  const { data, size, low, high } = content;
  const colors = content.colors ? colorPicture(sheet, data, low, high, palette) : null;
  if (colors) return canvasOf(colors, sheet.height, sheet.width);
  const pixels = content.signed ? signedPicture(sheet, data, size, palette) : grayPicture(sheet, data, low, high, palette);
  if (content.under) tint(sheet, pixels, content, palette);
  return canvasOf(pixels, sheet.rows, sheet.columns);
}

function pool(picture, sheet, content, palette, by) {
  const key = `${by.down} ${by.across}`;
  if (!picture.pools.has(key)) {
    const { rows, columns, data } = pooled(sheet, content.data, by);
    const flat = {
      rows: rows * sheet.shown,
      columns,
      height: rows * sheet.shown,
      width: columns,
      shown: 1,
      stepDown: columns,
      stepAcross: 1,
      start: () => 0,
      corner: () => [0, 0],
    };
    const canvas = canvasOf(signedPicture(flat, data, content.size, palette), flat.rows, columns);
    picture.pools.set(key, { canvas, rows, columns });
  }
  return picture.pools.get(key);
}

export function drawCells(context, { sheet, camera, picture, content, palette, ratio }) {
  // A little under one pixel per cell needs no shrinking by hand: the next whole factor would blur what fits.
  const by = { down: Math.ceil(0.999 / (camera.down * ratio)), across: Math.ceil(0.999 / (camera.across * ratio)) };
  const shrunk = by.down > 1 || by.across > 1;
  if (content.signed && !content.under && shrunk)
    return drawPooled(context, sheet, camera, pool(picture, sheet, content, palette, by), by);
  context.imageSmoothingEnabled = !content.signed && shrunk;
  const canvas = picture.full();
  context.drawImage(
    canvas,
    -camera.left * camera.across,
    -camera.top * camera.down,
    canvas.width * camera.across,
    canvas.height * camera.down,
  );
}

function drawPooled(context, sheet, camera, small, by) {
  context.imageSmoothingEnabled = false;
  for (let plane = 0; plane < sheet.shown; plane++) {
    const [row, column] = sheet.corner(plane);
    const x = (column - camera.left) * camera.across;
    const y = (row - camera.top) * camera.down;
    context.save();
    context.beginPath();
    context.rect(x, y, sheet.width * camera.across, sheet.height * camera.down);
    context.clip();
    context.drawImage(
      small.canvas,
      0,
      plane * small.rows,
      small.columns,
      small.rows,
      x,
      y,
      small.columns * by.across * camera.across,
      small.rows * by.down * camera.down,
    );
    context.restore();
  }
}

/** A series as bars from zero; where bars are thinner than a pixel, the reach of all bars within it. */
export function drawBars(context, { sheet, camera, content, palette, width, height, ink }) {
  const { data } = content;
  const [low, high] = content.signed ? [-content.size, content.size] : [Math.min(0, content.low), Math.max(0, content.high)];
  const margin = 8;
  const y = (v) => margin + ((high - Math.max(low, Math.min(high, v))) / (high - low || 1)) * (height - 2 * margin);
  const color = (v) => (content.signed ? palette.css((v / (content.size || 1)) * 0.72 + Math.sign(v) * 0.28) : ink.bar);
  const first = Math.max(0, Math.floor(camera.left));
  const last = Math.min(sheet.columns, Math.ceil(camera.left + width / camera.across));
  const together = Math.max(1, Math.ceil(1 / camera.across)); // bars that share a pixel
  const gap = camera.across > 5 ? 1 : 0;
  for (let column = first; column < last; column += together) {
    const { least, most, odd } = reach(data, column, Math.min(last, column + together));
    const far = -least > most ? least : most;
    context.fillStyle = odd ? ink.odd : color(far);
    const [from, to] = odd ? [margin, height - margin] : [y(Math.max(most, 0)), y(Math.min(least, 0))];
    const x = (column - camera.left) * camera.across;
    context.fillRect(x, from, Math.max(1, camera.across * together - gap), Math.max(far === 0 ? 0 : 1, to - from));
  }
  context.fillStyle = ink.line;
  context.fillRect(0, Math.round(y(0)), width, 1);
}

function reach(data, first, end) {
  let [least, most, odd] = [Infinity, -Infinity, false];
  for (let i = first; i < end; i++) {
    const v = data[i];
    if (v - v !== 0) odd = true;
    if (v < least) least = v;
    if (v > most) most = v;
  }
  return { least, most, odd };
}

/** The outline of what is selected: a dark and a light line, to be seen on every color. */
export function drawSelection(context, { sheet, camera, index, ink, height, bars }) {
  for (const { row, column, rows, columns } of rectanglesOf(sheet, index)) {
    const x = (column - camera.left) * camera.across;
    const y = bars ? 1 : (row - camera.top) * camera.down;
    const wide = Math.max(columns * camera.across, 5);
    const tall = bars ? height - 2 : Math.max(rows * camera.down, 5);
    context.lineWidth = 4;
    context.strokeStyle = ink.halo;
    context.strokeRect(x - 0.5, y - 0.5, wide + 1, tall + 1);
    context.lineWidth = 2;
    context.strokeStyle = ink.accent;
    context.strokeRect(x - 0.5, y - 0.5, wide + 1, tall + 1);
  }
}

/** Numbers in the cells once they are large enough to be read. */
export function drawNumbers(context, { sheet, camera, content, width, height, ink, short }) {
  if (camera.across < 46 || camera.down < 15 || sheet.shown > 1) return;
  context.font = "11px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace";
  context.textAlign = "center";
  context.textBaseline = "middle";
  const right = Math.min(sheet.columns, Math.ceil(camera.left + width / camera.across));
  const bottom = Math.min(sheet.rows, Math.ceil(camera.top + height / camera.down));
  for (let row = Math.max(0, Math.floor(camera.top)); row < bottom; row++)
    for (let column = Math.max(0, Math.floor(camera.left)); column < right; column++) {
      const v = content.data[sheet.start(0) + row * sheet.stepDown + column * sheet.stepAcross];
      context.fillStyle = ink.over(content, v);
      context.fillText(short(v), (column + 0.5 - camera.left) * camera.across, (row + 0.5 - camera.top) * camera.down);
    }
}
