// The graph as it is drawn: closed modules are one box, operations without a name are part of an arrow.

/** All modules around a value, outermost first: "a.b.c" lies in "a", "a.b" and "a.b.c". */
export function modulesAround(path) {
  if (!path) return [];
  const parts = path.split(".");
  return parts.map((_, i) => parts.slice(0, i + 1).join("."));
}

const plain = (node, keep) => !node.name && node.gradient === "yes" && !node.finding && !keep.has(node.id);

/** Modules to open at first: from the outside in, while the whole can still be taken in. */
export function openedAtFirst(nodes, budget = 36) {
  const open = new Set();
  const closedAt = (node) => modulesAround(node.module).find((path) => !open.has(path)) ?? node.id;
  const shownNow = () => new Set(nodes.map(closedAt));
  const layers = Math.max(0, ...nodes.map((node) => modulesAround(node.module).length));
  for (let depth = 0; depth < layers; depth++) {
    const added = new Set(nodes.map((node) => modulesAround(node.module)[depth]).filter(Boolean));
    added.forEach((path) => open.add(path));
    if (shownNow().size > budget) {
      added.forEach((path) => open.delete(path));
      break;
    }
  }
  return open;
}

/** `keep` are ids drawn whether they have a name or not; `detail` is "names" or "all". */
export function folded(run, ids, { open, keep, detail }) {
  const boxes = new Map();
  const ends = new Map(); // id -> keys of the boxes that stand for it
  const arrows = new Map();
  for (const node of run.order) {
    if (!ids.has(node.id)) continue;
    const closed = modulesAround(node.module).find((path) => !open.has(path));
    const from = inputsOf(node, ends);
    if (closed === undefined && detail === "names" && plain(node, keep)) {
      ends.set(node.id, from.slice(0, 8)); // an operation without a name: those who read it read what it read
      continue;
    }
    const key = closed === undefined ? `v${node.id}` : `m${closed}`;
    if (!boxes.has(key)) boxes.set(key, { key, module: closed ?? null, nodes: [] });
    boxes.get(key).nodes.push(node);
    ends.set(node.id, [key]);
    for (const other of from)
      if (other !== key) {
        const arrow = `${other}>${key}`;
        const cut = node.gradient === "cut";
        if (!arrows.has(arrow)) arrows.set(arrow, { from: other, to: key, cut });
        else if (!cut) arrows.get(arrow).cut = false;
      }
  }
  return { boxes: [...boxes.values()].map(described), arrows: [...arrows.values()] };
}

function inputsOf(node, ends) {
  const keys = new Set();
  for (const input of node.inputs) for (const key of ends.get(input) ?? []) keys.add(key);
  return [...keys];
}

/** What is written in a box: a value's own words, or those of what comes out of a module. */
function described(box) {
  const last = box.nodes.at(-1);
  const cut = box.nodes.find((node) => node.gradient === "cut");
  const around = modulesAround(last.module);
  return {
    ...box,
    last,
    cut,
    finding: cut?.finding ?? box.nodes.find((node) => node.finding)?.finding ?? null,
    label: box.module ?? last.label,
    parent: box.module ? (around[around.indexOf(box.module) - 1] ?? null) : last.module || null,
  };
}
