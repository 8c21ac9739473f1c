// Indices as the protocol writes them: an integer, a half-open [low, high], or null for a whole axis.

export const sizeOf = (shape) => shape.reduce((product, n) => product * n, 1);

export function stridesOf(shape) {
  const strides = new Array(shape.length);
  let step = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    strides[axis] = step;
    step *= shape[axis];
  }
  return strides;
}

export function flatOf(index, shape) {
  const strides = stridesOf(shape);
  return index.reduce((flat, at, axis) => flat + at * strides[axis], 0);
}

export function indexOf(flat, shape) {
  const index = new Array(shape.length);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index[axis] = flat % shape[axis];
    flat = Math.floor(flat / shape[axis]);
  }
  return index;
}

export const isElement = (index, shape) =>
  index !== null && index.length === shape.length && index.every((part) => Number.isInteger(part));

/** Low and high of every axis that the index selects. */
export function boundsOf(index, shape) {
  return shape.map((n, axis) => {
    const part = index?.[axis] ?? null;
    if (part === null) return [0, n];
    return Array.isArray(part) ? part : [part, part + 1];
  });
}

export const countOf = (index, shape) => boundsOf(index, shape).reduce((count, [low, high]) => count * (high - low), 1);

const partText = (part) => (part === null ? ":" : Array.isArray(part) ? `${part[0]}:${part[1]}` : String(part));

export const indexText = (index) => index.map(partText).join(", ");

/** The inverse of `indexText`; undefined for anything else, since fragments are written by anyone. */
export function parseIndex(text) {
  if (text.trim() === "") return [];
  const parts = text.split(",").map((part) => part.trim());
  if (!parts.every((part) => /^(\d{1,9}|:|\d{1,9}:\d{1,9})$/.test(part))) return undefined;
  return parts.map((part) => {
    if (part === ":") return null;
    const [low, high] = part.split(":").map(Number);
    return high === undefined ? low : [low, high];
  });
}

export const shapeText = (shape) => (shape === null ? "" : shape.length === 0 ? "scalar" : shape.join(" × "));

/** Does the index lie within the shape? A link may have been made for another run. */
export function fits(index, shape) {
  if (index === null) return true;
  if (index.length > shape.length) return false;
  return index.every((part, axis) => {
    if (part === null) return true;
    const [low, high] = Array.isArray(part) ? part : [part, part + 1];
    return low >= 0 && low < high && high <= shape[axis];
  });
}

/** Flat positions of all elements of a region, in row-major order. */
export function flatsOf(index, shape) {
  const bounds = boundsOf(index, shape);
  const strides = stridesOf(shape);
  let flats = [0];
  bounds.forEach(([low, high], axis) => {
    const next = [];
    for (const flat of flats) for (let at = low; at < high; at++) next.push(flat + at * strides[axis]);
    flats = next;
  });
  return flats;
}
