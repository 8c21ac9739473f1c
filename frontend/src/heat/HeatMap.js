// One tensor as a picture: pointed at, clicked, dragged over, walked with the arrow keys.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { boundsOf, indexOf, isElement } from "../data/index.js";
import { short } from "../data/number.js";
import { html } from "../html.js";
import { cellAt, fit, held, pan, showing, zoom } from "./camera.js";
import { palettes } from "./colors.js";
import { drawBars, drawCells, drawNumbers, drawSelection, pictureOf } from "./drawing.js";
import { elementAt, rectanglesOf, regionBetween, step, stepPlane } from "./sheet.js";

const tallest = 460;

function heightFor(sheet, width, { bars, square }) {
  if (bars) return 150;
  if (square) return Math.max(48, Math.min(tallest, (width * sheet.rows) / sheet.columns, sheet.rows * 48));
  return Math.max(26, Math.min(tallest, sheet.rows * Math.min(34, Math.max(3, 380 / sheet.rows))));
}

const inks = {
  light: { accent: "#00755a", halo: "#ffffff", line: "#b9b9b3", bar: "#6f6f6a", odd: "#f0b400", dark: "#1b1b1a", pale: "#ffffff" },
  dark: { accent: "#52d6a8", halo: "#101112", line: "#4a4b4d", bar: "#9b9b97", odd: "#ffcd28", dark: "#0f1011", pale: "#f1f1ef" },
};

/** Ink that can be read over the color of a cell. */
const over = (theme) => (content, v) => {
  const share = content.signed ? Math.abs(v) / (content.size || 1) : (v - content.low) / (content.high - content.low || 1);
  const bright = content.signed === (theme === "dark") ? share > 0.55 : content.signed ? share < 0.5 : share > 0.5;
  return bright ? inks.light.dark : inks.dark.pale;
};

/** Width of an element as it changes. */
export function useWidth(place) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  return width;
}

function draw(canvas, scene) {
  const begun = performance.now();
  const { width, height, theme } = scene;
  const ratio = window.devicePixelRatio || 1;
  const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== tall) [canvas.width, canvas.height] = [wide, tall];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const ink = { ...inks[theme], over: over(theme) };
  const all = { ...scene, ratio, ink, short };
  if (scene.bars) drawBars(context, all);
  else {
    drawCells(context, { ...all, picture: scene.picture() });
    drawNumbers(context, all);
  }
  if (scene.index) drawSelection(context, all);
  canvas.dataset.drawn = (performance.now() - begun).toFixed(2);
}

const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], Home: [0, -1e9], End: [0, 1e9] };

/** What a key does to the selection; undefined for keys that are not ours. */
export function keyed(event, sheet, index) {
  const here = isElement(index, sheet.shape) ? index : index ? boundsOf(index, sheet.shape).map(([low]) => low) : null;
  const origin = here ?? sheet.shape.map(() => 0);
  if (event.key === "PageUp" || event.key === "PageDown") return stepPlane(sheet, origin, event.key === "PageUp" ? -1 : 1);
  if (!(event.key in moves) || event.altKey || event.ctrlKey || event.metaKey) return undefined;
  if (here === null) return origin;
  if (!event.shiftKey) return step(sheet, origin, ...moves[event.key]);
  const ends = boundsOf(index, sheet.shape).map(([, high]) => high - 1);
  return regionBetween(sheet, origin.reduce((f, at, axis) => f * sheet.shape[axis] + at, 0),
    step(sheet, ends, ...moves[event.key]).reduce((f, at, axis) => f * sheet.shape[axis] + at, 0));
}

export function HeatMap({ sheet, content, theme, index, square, bars, label, hand, onSelect, onHover, onZoom, api }) {
  const place = useRef(null);
  const canvas = useRef(null);
  const width = useWidth(place);
  const height = width ? Math.round(heightFor(sheet, width, { bars, square })) : 0;
  const whole = useMemo(() => (width ? whole0(sheet, width, height, { square, bars }) : null), [sheet, width, height, square, bars]);
  const [camera, setCamera] = useState(null);
  const [dragged, setDragged] = useState(null);
  const now = camera ?? whole;
  useEffect(() => setCamera(null), [whole]);
  useEffect(() => onZoom?.(camera !== null), [camera !== null]);

  const picture = useMemo(() => {
    let made = null;
    return () => (made ??= pictureOf(sheet, content, palettes[theme]));
  }, [sheet, content, theme]);
  useEffect(() => {
    // Where an element is drawn, for whoever drives the page from outside.
    place.current.spotOf = (at) => spotOf(rectanglesOf(sheet, at)[0], now, bars ? height / 2 : null);
    if (now) draw(canvas.current, { sheet, camera: now, picture, content, palette: palettes[theme], theme, width, height, bars, index: dragged ?? index });
  });

  const scale = (factor, x = width / 2, y = height / 2) => now && setCamera(held(zoom(now, whole, factor, x, y), sheet, width, height));
  if (api) api.current = { zoom: scale, fit: () => setCamera(null), zoomed: camera !== null };
  const handlers = usePointer({ now, whole, sheet, bars, hand, place, setCamera, setDragged, dragged, scale, onSelect, onHover, width, height });

  const onKeyDown = (event) => {
    if (event.key === "+" || event.key === "=") scale(1.5);
    else if (event.key === "-") scale(1 / 1.5);
    else if (event.key === "0") setCamera(null);
    else if (event.key === "Enter" && index) onSelect(index, { both: event.shiftKey });
    else {
      const next = keyed(event, sheet, index);
      if (!next) return;
      onSelect(next, { keyboard: true });
      const [cell] = rectanglesOf(sheet, next);
      if (camera && cell) setCamera(showing(camera, cell, sheet, width, height));
    }
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<div class=${`wrt-heat${hand || camera ? " wrt-hand" : ""}`} ref=${place} tabindex="0" role="application"
      aria-roledescription="heat map" aria-label=${label} style=${{ height: `${height || 120}px` }} onKeyDown=${onKeyDown} ...${handlers}>
    <canvas ref=${canvas} aria-hidden="true"></canvas>
  </div>`;
}

const spotOf = (cell, camera, middle) => ({
  x: (cell.column + 0.5 - camera.left) * camera.across,
  y: middle ?? (cell.row + 0.5 - camera.top) * camera.down,
});

const whole0 = (sheet, width, height, { square, bars }) => {
  if (!bars) return fit(sheet, width, height, square);
  const across = Math.min(40, width / sheet.columns);
  return { across, down: height, left: -(width / across - sheet.columns) / 2, top: 0 };
};

function usePointer({ now, whole, sheet, bars, hand, place, setCamera, setDragged, dragged, scale, onSelect, onHover, width, height }) {
  const press = useRef(null);
  const fingers = useRef(new Map());
  const spot = (event) => {
    const box = place.current.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const element = (event) => {
    const [row, column] = cellAt(now, ...spot(event));
    return elementAt(sheet, bars ? 0 : row, column);
  };
  const move = (dx, dy) => setCamera((camera) => camera && held(pan(camera, dx, dy), sheet, width, height));

  useEffect(() => {
    // Not passive: zooming must keep the browser from zooming the page, or from going back.
    const onWheel = (event) => {
      if (event.ctrlKey || event.metaKey) scale(Math.exp(-event.deltaY / 200), ...spot(event));
      else if (now !== whole) move(-event.deltaX, -event.deltaY);
      else return;
      event.preventDefault();
    };
    const box = place.current;
    box.addEventListener("wheel", onWheel, { passive: false });
    return () => box.removeEventListener("wheel", onWheel);
  });

  function pinch(event) {
    const before = [...fingers.current.values()];
    fingers.current.set(event.pointerId, spot(event));
    const after = [...fingers.current.values()];
    const apart = ([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]);
    const middle = ([a, b]) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];
    const [x, y] = middle(after);
    scale(apart(after) / Math.max(1, apart(before)), x, y);
    move(x - middle(before)[0], y - middle(before)[1]);
  }

  return {
    onPointerDown(event) {
      if (event.button > 1 || !now) return;
      fingers.current.set(event.pointerId, spot(event));
      const panning = event.button === 1 || hand || (event.pointerType === "touch" && now !== whole);
      press.current = { at: spot(event), first: element(event), panning, touch: event.pointerType === "touch" };
      // Capturing may be refused for a pointer that is already gone; then the click still counts.
      try { if (!press.current.touch) place.current.setPointerCapture(event.pointerId); } catch { /* gone */ }
    },
    onPointerMove(event) {
      if (!now) return;
      if (fingers.current.size === 2 && fingers.current.has(event.pointerId)) return pinch(event);
      onHover(element(event));
      const pressed = press.current;
      if (!pressed) return;
      const [x, y] = spot(event);
      const far = Math.hypot(x - pressed.at[0], y - pressed.at[1]) > 4;
      if (pressed.panning && far) {
        move(x - pressed.at[0], y - pressed.at[1]);
        Object.assign(pressed, { at: [x, y], moved: true });
      } else if (!pressed.panning && !pressed.touch && far && pressed.first !== null) {
        const under = element(event);
        if (under !== null && under !== pressed.first) setDragged(regionBetween(sheet, pressed.first, under));
      }
    },
    onPointerUp(event) {
      fingers.current.delete(event.pointerId);
      const pressed = press.current;
      press.current = null;
      if (!pressed || pressed.moved) return;
      setDragged(null);
      if (dragged) onSelect(dragged, { both: event.shiftKey });
      else if (pressed.first !== null && element(event) === pressed.first) onSelect(indexOf(pressed.first, sheet.shape), { both: event.shiftKey });
    },
    onPointerCancel(event) {
      fingers.current.delete(event.pointerId);
      press.current = null;
      setDragged(null);
    },
    onPointerLeave: () => onHover(null),
  };
}
