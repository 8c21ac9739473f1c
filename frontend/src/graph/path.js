// Which values lie between the source and the target of a question.

/** The run with look-ups in both directions; made once for each graph. */
export function indexed(graph) {
  const byId = new Map(graph.nodes.map((node) => [node.id, node]));
  const readers = new Map(graph.nodes.map((node) => [node.id, []]));
  for (const node of graph.nodes) for (const input of node.inputs) readers.get(input)?.push(node.id);
  const byName = new Map();
  for (const node of graph.nodes)
    for (const name of node.names ?? (node.name ? [node.name] : [])) if (!byName.has(name)) byName.set(name, node.id);
  for (const node of graph.nodes) if (node.name && !byName.has(node.label)) byName.set(node.label, node.id);
  return { ...graph, byId, readers, byName, order: inOrder(graph.nodes, byId) };
}

/** Values after what they were computed from; without recursion, since chains may be thousands long. */
function inOrder(nodes, byId) {
  const order = [];
  const state = new Map();
  for (const root of nodes) {
    const stack = [root];
    while (stack.length) {
      const node = stack.at(-1);
      if (state.get(node.id) === undefined) {
        state.set(node.id, "open");
        for (const input of node.inputs) if (byId.has(input) && !state.has(input)) stack.push(byId.get(input));
      } else {
        stack.pop();
        if (state.get(node.id) === "open") order.push(node);
        state.set(node.id, "done");
      }
    }
  }
  return order;
}

function reached(start, next) {
  const seen = new Set([start]);
  const stack = [start];
  while (stack.length)
    for (const id of next(stack.pop()))
      if (!seen.has(id)) {
        seen.add(id);
        stack.push(id);
      }
  return seen;
}

/** Ids on the way from source to target; all that the target was computed from when there is no way. */
export function between(run, target, source) {
  const before = reached(target, (id) => (run.byId.get(id)?.inputs ?? []).filter((input) => run.byId.has(input)));
  if (source === undefined || source === target || !before.has(source))
    return { ids: before.add(source ?? target), connected: source === target };
  const after = reached(source, (id) => run.readers.get(id) ?? []);
  const ids = new Set([...before].filter((id) => after.has(id)));
  // What a path is cut by may end in a value that nobody reads (`.item()`); it belongs to the story.
  for (const id of [...ids]) for (const reader of run.readers.get(id)) if (run.byId.get(reader).shape === null) ids.add(reader);
  return { ids, connected: true };
}
