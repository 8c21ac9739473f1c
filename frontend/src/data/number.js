// Numbers for people: exact where one element is shown, three digits where a legend is.

const minus = (text) => text.replaceAll("-", "−").replace("e+", "e");

const beyond = (v) => (Number.isNaN(v) ? "NaN" : v > 0 ? "∞" : "−∞");

/** The shortest decimal that reads back as the same number, in single precision when it is one. */
export function exact(v) {
  if (v === null || v === undefined) return "";
  if (!Number.isFinite(v)) return beyond(v);
  if (v === 0) return "0";
  if (Math.fround(v) === v) {
    for (let digits = 1; digits < 10; digits++) {
      const text = v.toPrecision(digits);
      if (Math.fround(Number(text)) === v) return minus(String(Number(text)));
    }
  }
  return minus(String(v));
}

export function short(v) {
  if (v === null || v === undefined) return "";
  if (!Number.isFinite(v)) return beyond(v);
  if (v === 0) return "0";
  const size = Math.abs(v);
  if (size >= 1e-3 && size < 1e5) return minus(String(Number(v.toPrecision(3))));
  return minus(Number(v.toPrecision(3)).toExponential());
}

export const count = (n) => n.toLocaleString("en-US");

export function seconds(s) {
  if (s === null || s === undefined) return "";
  if (s < 0.0995) return `${(s * 1000).toPrecision(2)} ms`;
  return s < 60 ? `${Number(s.toPrecision(2))} s` : `${Math.round(s / 60)} min`;
}

export const percent = (share) => (share > 0 && share < 0.01 ? "<1%" : `${Math.round(share * 100)}%`);
