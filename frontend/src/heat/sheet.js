// A sheet lays the elements of a tensor out as cells: one plane, or all planes side by side.
import { boundsOf, indexOf, sizeOf, stridesOf } from "../data/index.js";

/** Which axes run down and across, as the host says or else the last two; the others number the planes. */
export function axesOf(shape, given = null) {
  const rank = shape.length;
  const last = rank === 0 ? [null, null] : rank === 1 ? [null, 0] : [rank - 2, rank - 1];
  const [down, across] = given ? [given.rows, given.columns] : last;
  return { down, across, planes: shape.map((_, axis) => axis).filter((axis) => axis !== down && axis !== across) };
}

/** How many planes stand in a row, so that the whole is about as wide as `aspect` times its height. */
function columnsOf(planes, height, width, aspect) {
  let best = 1;
  let badness = Infinity;
  for (let across = 1; across <= planes; across++) {
    const down = Math.ceil(planes / across);
    const ratio = (across * (width + 1)) / (down * (height + 1));
    const bad = Math.abs(Math.log(ratio / aspect)) + (0.15 * (across * down - planes)) / planes;
    if (bad < badness) [best, badness] = [across, bad];
  }
  return best;
}

/** `fixed` holds one entry per axis that numbers planes: the only position shown, or null for all of them. */
export function sheetOf(shape, given, fixed = [], aspect = 1.3) {
  const axes = axesOf(shape, given);
  const strides = stridesOf(shape);
  const height = axes.down === null ? 1 : shape[axes.down];
  const width = axes.across === null ? 1 : shape[axes.across];
  const free = axes.planes.filter((_, i) => (fixed[i] ?? null) === null);
  const freeShape = free.map((axis) => shape[axis]);
  const shown = sizeOf(freeShape);
  const origin = axes.planes.reduce((sum, axis, i) => sum + (fixed[i] ?? 0) * strides[axis], 0);
  const tiles = columnsOf(shown, height, width, aspect);
  const gap = shown > 1 ? Math.max(1, Math.round(Math.min(height, width) / 12)) : 0;

  return {
    shape,
    axes,
    fixed,
    freeShape,
    shown,
    height,
    width,
    gap,
    tiles,
    planeShape: axes.planes.map((axis) => shape[axis]),
    stepDown: axes.down === null ? 0 : strides[axes.down],
    stepAcross: axes.across === null ? 0 : strides[axes.across],
    rows: Math.ceil(shown / tiles) * (height + gap) - gap,
    columns: tiles * (width + gap) - gap,
    /** First element of the k-th plane that is shown. */
    start: (k) => indexOf(k, freeShape).reduce((sum, at, i) => sum + at * strides[free[i]], origin),
    corner: (k) => [Math.floor(k / tiles) * (height + gap), (k % tiles) * (width + gap)],
  };
}

/** The element under a cell, or null between planes. */
export function elementAt(sheet, row, column) {
  if (row < 0 || column < 0 || row >= sheet.rows || column >= sheet.columns) return null;
  const [down, across] = [row % (sheet.height + sheet.gap), column % (sheet.width + sheet.gap)];
  const k = Math.floor(row / (sheet.height + sheet.gap)) * sheet.tiles + Math.floor(column / (sheet.width + sheet.gap));
  if (down >= sheet.height || across >= sheet.width || k >= sheet.shown) return null;
  return sheet.start(k) + down * sheet.stepDown + across * sheet.stepAcross;
}

/** The rectangle of cells, one per plane shown, that a region covers. */
export function rectanglesOf(sheet, index) {
  const bounds = boundsOf(index, sheet.shape);
  const [top, bottom] = sheet.axes.down === null ? [0, 1] : bounds[sheet.axes.down];
  const [left, right] = sheet.axes.across === null ? [0, 1] : bounds[sheet.axes.across];
  const rectangles = [];
  for (let k = 0; k < sheet.shown; k++) {
    const whole = indexOf(sheet.start(k), sheet.shape);
    const inside = sheet.axes.planes.every((axis) => whole[axis] >= bounds[axis][0] && whole[axis] < bounds[axis][1]);
    const [row, column] = sheet.corner(k);
    if (inside) rectangles.push({ row: row + top, column: column + left, rows: bottom - top, columns: right - left });
  }
  return rectangles;
}

/** The index of the region between two elements, kept within the plane of the first. */
export function regionBetween(sheet, first, second) {
  const a = indexOf(first, sheet.shape);
  const b = indexOf(second, sheet.shape);
  return a.map((at, axis) => {
    if (axis !== sheet.axes.down && axis !== sheet.axes.across) return at;
    const [low, high] = [Math.min(at, b[axis]), Math.max(at, b[axis]) + 1];
    return high - low === 1 ? low : [low, high];
  });
}

/** One step with the arrow keys: within the plane, never out of it. */
export function step(sheet, index, down, across) {
  const next = [...index];
  const move = (axis, by) => {
    if (axis !== null) next[axis] = Math.max(0, Math.min(sheet.shape[axis] - 1, next[axis] + by));
  };
  move(sheet.axes.down, down);
  move(sheet.axes.across, across);
  return next;
}

export function stepPlane(sheet, index, by) {
  const planes = sizeOf(sheet.planeShape);
  const now = sheet.axes.planes.reduce((k, axis, i) => k * sheet.planeShape[i] + index[axis], 0);
  const at = indexOf(Math.max(0, Math.min(planes - 1, now + by)), sheet.planeShape);
  const next = [...index];
  sheet.axes.planes.forEach((axis, i) => (next[axis] = at[i]));
  return next;
}

/** What is shown at first: the first of a batch, and all channels unless they are too many to be told apart. */
export function fixedAtFirst(shape, given) {
  const axes = axesOf(shape, given);
  let room = 600; // small multiples that can still be told apart
  return [...axes.planes]
    .reverse()
    .map((axis) => {
      if (axis !== given?.batch && shape[axis] <= room) {
        room = Math.floor(room / shape[axis]);
        return null;
      }
      return 0;
    })
    .reverse();
}

/** Keep the plane of the selected element in sight. */
export function fixedFor(fixed, axes, index) {
  return fixed.map((at, i) => (at === null || !Number.isInteger(index?.[axes.planes[i]]) ? at : index[axes.planes[i]]));
}
