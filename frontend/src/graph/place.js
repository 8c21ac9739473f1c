// Where the boxes go: dagre while the graph is small, layers of our own when it is not.
import dagre from "@dagrejs/dagre";
import { layered } from "./layers.js";

export const box = { width: 176, height: 50, across: 18, down: 26 };
const few = 140;
const margin = 14;
const title = 18; // room for the name of an open module

export function placed(drawn) {
  const begun = performance.now();
  const layout = drawn.boxes.length > few ? layered(drawn, box) : byDagre(drawn);
  return { ...layout, drawn, ms: performance.now() - begun };
}

function byDagre({ boxes, arrows }) {
  const graph = new dagre.graphlib.Graph({ compound: true });
  graph.setGraph({ rankdir: "TB", nodesep: box.across, ranksep: box.down, marginx: 0, marginy: 0 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const { key } of boxes) graph.setNode(key, { width: box.width, height: box.height });
  const frames = framesOf(boxes);
  for (const path of frames) graph.setNode(`f${path}`, {});
  for (const path of frames) within(graph, `f${path}`, path.slice(0, Math.max(0, path.lastIndexOf("."))), frames);
  for (const { key, parent } of boxes) within(graph, key, parent, frames);
  for (const { from, to } of arrows) graph.setEdge(from, to);
  dagre.layout(graph);
  return read(graph, boxes, arrows, frames);
}

/** Open modules that hold at least two boxes get a frame. */
function framesOf(boxes) {
  const held = new Map();
  for (const { parent } of boxes)
    for (let path = parent; path; path = path.slice(0, Math.max(0, path.lastIndexOf("."))))
      held.set(path, (held.get(path) ?? 0) + 1);
  return new Set([...held].filter(([, count]) => count > 1).map(([path]) => path));
}

function within(graph, key, parent, frames) {
  for (let path = parent; path; path = path.slice(0, Math.max(0, path.lastIndexOf("."))))
    if (frames.has(path)) return graph.setParent(key, `f${path}`);
}

function read(graph, boxes, arrows, frames) {
  const at = new Map(
    boxes.map(({ key }) => [key, { x: graph.node(key).x - box.width / 2, y: graph.node(key).y - box.height / 2 }]),
  );
  const bends = new Map(arrows.map((arrow) => [arrow, graph.edge(arrow.from, arrow.to)?.points ?? []]));
  const rectangles = [...frames].map((path) => {
    const { x, y, width, height } = graph.node(`f${path}`);
    return { path, x: x - width / 2, y: y - height / 2, width, height };
  });
  const left = Math.min(...[...at.values()].map(({ x }) => x), ...rectangles.map(({ x }) => x)) - margin;
  const top = Math.min(...[...at.values()].map(({ y }) => y), ...rectangles.map(({ y }) => y - title)) - 4;
  const moved = ({ x, y, ...rest }) => ({ ...rest, x: x - left, y: y - top });
  const placedAt = new Map([...at].map(([key, spot]) => [key, moved(spot)]));
  const framed = rectangles.map(moved);
  const far = (list, edge, size) => Math.max(0, ...list.map((one) => one[edge] + (one[size] ?? box[size])));
  return {
    at: placedAt,
    frames: framed,
    bends: new Map([...bends].map(([arrow, points]) => [arrow, points.map(moved)])),
    width: Math.max(far([...placedAt.values()], "x", "width"), far(framed, "x", "width")) + margin,
    height: Math.max(far([...placedAt.values()], "y", "height"), far(framed, "y", "height")) + margin,
  };
}
