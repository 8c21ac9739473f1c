// From a box of the drawing to a question about it.

/** The best value of a box to ask about: what comes out of it and has a name. */
export const askable = (one) => [...one.nodes].reverse().find((node) => node.name && node.ask !== false);

/** The view with a value as its target or source; what was selected in the other tensor stays. */
export const asked = (view, node, role) =>
  role === "target" ? { ...view, target: node.name, at: null, asks: null } : { ...view, source: node.name, from: null };

/** The gradient at the last value of a box that has one. */
export function sizeOfBox(one, sizes) {
  if (!sizes) return null;
  for (let i = one.nodes.length - 1; i >= 0; i--) if (sizes[one.nodes[i].id]) return sizes[one.nodes[i].id];
  return null;
}

export function roleOf(one, { target, source }) {
  const holds = (id) => one.nodes.some((node) => node.id === id);
  if (holds(target) && holds(source)) return "target, source";
  return holds(target) ? "target" : holds(source) ? "source" : null;
}
