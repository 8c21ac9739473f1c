// From what was picked in a picture to the next question.

/** The view with a new selection in one tensor; that in the other one goes, unless both are wanted. */
export function picked(view, role, index, both = false) {
  const [here, there] = role === "target" ? ["at", "from"] : ["from", "at"];
  return { ...view, asks: null, [here]: index, [there]: both ? view[there] : null };
}

/** A pixel of a colored picture is all its channels. */
export const wholePixel = (index, sheet) =>
  sheet.stacked ? index.map((part, axis) => (sheet.axes.planes.includes(axis) && sheet.shape[axis] === 3 ? null : part)) : index;
