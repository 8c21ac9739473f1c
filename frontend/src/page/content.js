// What a panel draws of a tensor: which axes run where, which numbers, on which scale.
import { flatsOf, sizeOf } from "../data/index.js";
import { sheetOf } from "../heat/sheet.js";

/** A series runs across, whichever of its axes is the long one. */
export function axesFor(tensor) {
  if (tensor.view !== "series") return tensor.axes ?? null;
  return {
    ...tensor.axes,
    rows: null,
    columns: Math.max(
      0,
      tensor.shape.findIndex((n) => n > 1),
    ),
  };
}

export const squareCells = ({ view }, sheet) =>
  view === "image" ||
  view === "planes" ||
  view === "heat" ||
  (view === "matrix" && sheet.rows < 2.5 * sheet.columns && sheet.columns < 2.5 * sheet.rows);

/** The derivative over this tensor; what was not asked stays empty. */
export function gradientOver(answer, tensor) {
  if (!answer?.values) return null;
  const size = sizeOf(tensor.shape);
  if (answer.values.length === size) return answer.values;
  const part = new Float64Array(size);
  const index = answer.index ?? (answer.over === "target" ? answer.ask?.target.index : answer.ask?.source.index) ?? null;
  const places = flatsOf(index, tensor.shape);
  if (places.length !== answer.values.length) return null;
  places.forEach((flat, i) => (part[flat] = answer.values[i]));
  return part;
}

export function contentOf(tensor, gradient, answer, mode, gain) {
  const under = mode === "both" ? { values: tensor.values, low: tensor.low, high: tensor.high } : null;
  if (gradient && mode !== "values") return { data: gradient, signed: true, size: answer.size / 10 ** gain, under };
  if (tensor.values)
    return { data: tensor.values, signed: false, low: tensor.low, high: tensor.high, colors: tensor.view === "image" };
  return { data: new Float32Array(sizeOf(tensor.shape)), signed: true, size: 0, empty: true };
}

/** Colored pictures are one plane while their values are shown, and a plane per channel for gradients. */
export function sheetFor(tensor, given, fixed, mode) {
  const sheet = sheetOf(tensor.shape, given, fixed);
  if (mode !== "values" || tensor.view !== "image" || sheet.shown !== 3) return sheet;
  return { ...sheet, rows: sheet.height, columns: sheet.width, tiles: 1, corner: () => [0, 0], stacked: true };
}
