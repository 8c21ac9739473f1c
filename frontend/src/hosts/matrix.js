// Rows, columns and sums of rows of a saved matrix: dense, a product of two thin ones, or sparse.
import { decode, summary } from "../data/array.js";
import { flatsOf, indexOf, sizeOf } from "../data/index.js";

const dense = ({ shape: [, n], data }) => ({
  addRow(i, weights) {
    for (let j = 0; j < n; j++) weights[j] += data[i * n + j];
  },
  addColumn(j, weights) {
    for (let i = 0; i < weights.length; i++) weights[i] += data[i * n + j];
  },
});

function lowrank(u, v) {
  const [, rank] = u.shape;
  const [, n] = v.shape;
  return {
    addRow(i, weights) {
      for (let k = 0; k < rank; k++) {
        const factor = u.data[i * rank + k];
        if (factor !== 0) for (let j = 0; j < n; j++) weights[j] += factor * v.data[k * n + j];
      }
    },
    addColumn(j, weights) {
      for (let k = 0; k < rank; k++) {
        const factor = v.data[k * n + j];
        if (factor !== 0) for (let i = 0; i < weights.length; i++) weights[i] += u.data[i * rank + k] * factor;
      }
    },
  };
}

const sparse = (starts, places, values) => ({
  addRow(i, weights) {
    for (let at = starts[i]; at < starts[i + 1]; at++) weights[places[at]] += values[at];
  },
  addColumn(j, weights) {
    for (let i = 0; i < weights.length; i++)
      for (let at = starts[i]; at < starts[i + 1]; at++) if (places[at] === j) weights[i] += values[at];
  },
});

/** Only some rows may have been kept: `placeOf` says where the row of an element lies, or undefined. */
function withRows(matrix, rows, m) {
  const placeOf = rows ? new Map(rows.map((flat, place) => [flat, place])) : null;
  const kept = rows ?? Array.from({ length: m }, (_, i) => i);
  return {
    has: (i) => placeOf === null || placeOf.has(i),
    complete: kept.length === m,
    addRow: (i, weights) => matrix.addRow(placeOf ? placeOf.get(i) : i, weights),
    addColumn(j, weights) {
      const column = new Float64Array(kept.length);
      matrix.addColumn(j, column);
      kept.forEach((flat, place) => (weights[flat] += column[place]));
    },
  };
}

export function openMatrix(saved) {
  const m = sizeOf(saved.target.shape);
  const forms = {
    dense: () => dense(decode(saved.dense)),
    factors: () => lowrank(decode(saved.factors.left), decode(saved.factors.right)),
    sparse: () => sparse(decode(saved.sparse.indptr).data, decode(saved.sparse.indices).data, decode(saved.sparse.values).data),
  };
  return withRows(forms[saved.kind](), saved.rows ?? null, m);
}

/** The answer to a question about two regions, from the matrix between their tensors; null when rows are missing. */
export function answerFrom(matrix, at, targetShape, from, sourceShape) {
  const rows = flatsOf(at, targetShape);
  const columns = flatsOf(from, sourceShape);
  const over = at === null && from !== null ? "target" : "source";
  if (over === "target" ? !matrix.complete : !rows.every(matrix.has)) return null;
  const data = new Float64Array(sizeOf(over === "target" ? targetShape : sourceShape));
  if (over === "target") columns.forEach((j) => matrix.addColumn(j, data));
  else rows.forEach((i) => matrix.addRow(i, data));
  const reply = { over, shape: over === "target" ? targetShape : sourceShape, data, ...summary(data) };
  if (rows.length > 1 && columns.length > 1 && rows.length * columns.length <= 4096)
    reply.block = blockOf(matrix, rows, columns, sizeOf(sourceShape));
  return reply;
}

function blockOf(matrix, rows, columns, n) {
  const data = new Float64Array(rows.length * columns.length);
  rows.forEach((i, r) => {
    const row = new Float64Array(n);
    matrix.addRow(i, row);
    columns.forEach((j, c) => (data[r * columns.length + c] = row[j]));
  });
  return { shape: [rows.length, columns.length], data: { shape: [rows.length, columns.length], data } };
}

/** How much each step along one axis of the target depends on each step along one axis of the source. */
export function normsFrom(matrix, targetShape, sourceShape, [down, across]) {
  const [m, n] = [sizeOf(targetShape), sizeOf(sourceShape)];
  const shape = [targetShape[down], sourceShape[across]];
  const squares = new Float64Array(shape[0] * shape[1]);
  for (let i = 0; i < m; i++) {
    const row = new Float64Array(n);
    matrix.addRow(i, row);
    const line = indexOf(i, targetShape)[down] * shape[1];
    for (let j = 0; j < n; j++) squares[line + indexOf(j, sourceShape)[across]] += row[j] * row[j];
  }
  return { shape, data: squares.map(Math.sqrt) };
}
