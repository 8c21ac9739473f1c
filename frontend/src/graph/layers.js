// A layout for large graphs: longest path down, order within a layer by the mean place of its inputs.
// dagre takes seconds on thousands of boxes; this takes milliseconds and crosses a few more lines.

export function layered({ boxes, arrows }, { width, height, across, down }) {
  const inputs = new Map(boxes.map((box) => [box.key, []]));
  const place = new Map(boxes.map((box, i) => [box.key, i]));
  // Boxes come in the order of computation; an arrow against it closes a cycle of folded modules.
  for (const arrow of arrows) if (place.get(arrow.from) < place.get(arrow.to)) inputs.get(arrow.to).push(arrow.from);

  const layer = new Map();
  const layers = [];
  for (const { key } of boxes) {
    const at = inputs.get(key).reduce((deepest, from) => Math.max(deepest, layer.get(from) + 1), 0);
    layer.set(key, at);
    (layers[at] ??= []).push(key);
  }

  const x = new Map();
  for (const keys of layers) {
    const wish = new Map(keys.map((key) => [key, mean(inputs.get(key).map((from) => x.get(from)))]));
    keys.sort((a, b) => wish.get(a) - wish.get(b) || place.get(a) - place.get(b));
    spread(keys, wish, x, width + across);
  }
  const left = Math.min(...x.values());
  const at = new Map(boxes.map(({ key }) => [key, { x: x.get(key) - left, y: layer.get(key) * (height + down) }]));
  return {
    at,
    width: Math.max(...x.values()) - left + width,
    height: layers.length * (height + down) - down,
    frames: [],
    bends: new Map(),
  };
}

const mean = (numbers) => (numbers.length ? numbers.reduce((a, b) => a + b, 0) / numbers.length : 0);

/** Each key as near to its wish as its neighbors allow. */
function spread(keys, wish, x, pitch) {
  let last = -Infinity;
  for (const key of keys) {
    last = Math.max(wish.get(key), last + pitch);
    x.set(key, last);
  }
  const shift = mean(keys.map((key) => wish.get(key) - x.get(key)));
  for (const key of keys) x.set(key, x.get(key) + shift);
}
