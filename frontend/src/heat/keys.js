// What the keys do to the selection of a picture.
import { boundsOf, flatOf } from "../data/index.js";
import { regionBetween, step, stepPlane } from "./sheet.js";

const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e9], End: [0, 1e9] };

/** The next selection; undefined for keys that are not ours. */
export function keyed(event, sheet, index) {
  const { shape } = sheet;
  const first = index ? boundsOf(index, shape).map(([low]) => low) : shape.map(() => 0);
  if (event.key === "PageUp" || event.key === "PageDown") return stepPlane(sheet, first, event.key === "PageUp" ? -1 : 1);
  if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return undefined;
  if (!index) return first;
  if (!event.shiftKey) return step(sheet, first, ...moves[event.key]);
  const last = boundsOf(index, shape).map(([, high]) => high - 1);
  return regionBetween(sheet, flatOf(first, shape), flatOf(step(sheet, last, ...moves[event.key]), shape));
}
