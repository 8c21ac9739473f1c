// Arrays travel as base64 of little-endian bytes, so that NaN and infinity need no words.

const kinds = { f32: Float32Array, f64: Float64Array, i32: Int32Array };

/** {dtype, shape, base64} -> {shape, data}. */
export function decode(array) {
  const Kind = kinds[array.dtype];
  if (!Kind) throw new Error(`unknown array type ${array.dtype}`);
  const text = atob(array.base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return { shape: array.shape, data: new Kind(bytes.buffer) };
}

/** Smallest and largest finite entry, largest size, zeros and entries that are not finite. */
export function summary(data) {
  let low = Infinity;
  let high = -Infinity;
  let zeros = 0;
  let nonfinite = 0;
  for (let i = 0; i < data.length; i++) {
    const v = data[i];
    if (v - v !== 0) nonfinite++;
    else {
      if (v < low) low = v;
      if (v > high) high = v;
      if (v === 0) zeros++;
    }
  }
  if (low > high) low = high = 0;
  return { low, high, size: Math.max(Math.abs(low), Math.abs(high)), zeros, nonfinite };
}

/** A scalar that the protocol may have sent as "nan", "inf" or "-inf". */
export function scalar(value) {
  if (typeof value === "number" || value === null || value === undefined) return value;
  return { nan: NaN, inf: Infinity, "-inf": -Infinity }[value] ?? Number(value);
}
