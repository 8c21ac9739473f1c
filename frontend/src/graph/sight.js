// What of a large drawing is in sight, and what has to come into sight.
import { useEffect, useState } from "preact/hooks";
import { box } from "./place.js";

const margin = 14;
const beyond = 240; // pixels drawn above and below what is in sight, so that scrolling meets no holes

function useWindow(place, width, height) {
  const [seen, setSeen] = useState({ top: 0, tall: 900, wide: 300 });
  useEffect(() => {
    const at = place.current;
    const look = () => setSeen({ top: at.scrollTop, tall: at.clientHeight, wide: at.clientWidth - 2 * margin });
    const watch = new ResizeObserver(look);
    watch.observe(at);
    at.addEventListener("scroll", look, { passive: true });
    look();
    return () => {
      watch.disconnect();
      at.removeEventListener("scroll", look);
    };
  }, [width, height]);
  return seen;
}

/** The boxes and arrows to be drawn now, and how large. */
export function useSight(place, layout) {
  const seen = useWindow(place, layout.width, layout.height);
  // A drawing a little too wide is made a little smaller, rather than scrolled in both directions.
  const scale = Math.max(0.74, Math.min(1, seen.wide / layout.width));
  const [top, bottom] = [(seen.top - beyond) / scale, (seen.top + seen.tall + beyond) / scale];
  const inSight = (low, high) => high > top && low < bottom;
  const y = (key) => layout.at.get(key).y;
  return {
    scale,
    boxes: layout.drawn.boxes.filter(({ key }) => inSight(y(key), y(key) + box.height)),
    arrows: layout.drawn.arrows.filter(({ from, to }) => inSight(Math.min(y(from), y(to)), Math.max(y(from), y(to)))),
    band: { top: Math.max(0, top), height: Math.max(0, Math.min(layout.height, bottom) - Math.max(0, top)) },
  };
}

function bring(scroller, { x, y, width = box.width, height = box.height }, scale) {
  const [left, top] = [x * scale, y * scale];
  const out = top < scroller.scrollTop || top + height * scale > scroller.scrollTop + scroller.clientHeight;
  if (out) scroller.scrollTop = Math.max(0, top + Math.min(0, height * scale - scroller.clientHeight) / 2 - scroller.clientHeight / 3);
  scroller.scrollLeft = left - (scroller.clientWidth - width * scale) / 2;
}

/** A new question brings its target into sight, a module that was opened or closed itself; other scrolling is the reader's. */
export function useFollow(place, layout, scale, toggled) {
  const target = layout.drawn.boxes.find(({ nodes }) => nodes.some(({ id }) => id === layout.target));
  useEffect(() => {
    if (target) bring(place.current, layout.at.get(target.key), scale);
  }, [layout.target, layout.source, layout.run, layout.mode]);
  useEffect(() => {
    if (toggled === null) return;
    const frame = layout.frames.find(({ path }) => path === toggled.path);
    const closed = layout.at.get(`m${toggled.path}`);
    if (frame ?? closed) bring(place.current, frame ?? closed, scale);
  }, [toggled]);
}

/** The next box up or down: the nearest in the drawing among those linked, else the next in order. */
export function neighbor(layout, one, by) {
  const [end, other] = by > 0 ? ["from", "to"] : ["to", "from"];
  const x = (key) => layout.at.get(key).x;
  const far = (key) => Math.abs(x(key) - x(one.key));
  const linked = layout.drawn.arrows.filter((arrow) => arrow[end] === one.key).map((arrow) => arrow[other]);
  const [key] = linked.sort((a, b) => far(a) - far(b));
  const { boxes } = layout.drawn;
  return boxes.find((next) => next.key === key) ?? boxes[boxes.indexOf(one) + by];
}

export function focusOn(scroller, layout, scale, one) {
  bring(scroller, layout.at.get(one.key), scale);
  // The box may be drawn only after the scroll.
  const focus = () => scroller.querySelector(`[data-key="${CSS.escape(one.key)}"]`)?.focus();
  requestAnimationFrame(() => requestAnimationFrame(focus));
}
