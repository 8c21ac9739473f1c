// One tensor as a picture: pointed at, clicked, dragged over, walked with the arrow keys.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { html } from "../html.js";
import { held, showing, zoom } from "./camera.js";
import { palettes } from "./colors.js";
import { pictureOf } from "./drawing.js";
import { keyed } from "./keys.js";
import { usePointer } from "./pointer.js";
import { draw, heightFor, wholeOf } from "./scene.js";
import { rectanglesOf } from "./sheet.js";

/** Width of an element as it changes. */
function useWidth(place) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watch.observe(place.current);
    return () => watch.disconnect();
  }, []);
  return width;
}

/** What is on the canvas and from where it is seen; `camera` is null until the element has a width. */
function useStage(place, sheet, bars, square) {
  const width = useWidth(place);
  const height = width ? heightFor(sheet, width, { bars, square }) : 0;
  const whole = useMemo(
    () => (width ? wholeOf(sheet, width, height, { bars, square }) : null),
    [sheet, width, height, bars, square],
  );
  const [chosen, setCamera] = useState(null);
  useEffect(() => setCamera(null), [whole]);
  const camera = chosen ?? whole;
  const scale = (factor, x = width / 2, y = height / 2) =>
    camera && setCamera(held(zoom(camera, whole, factor, x, y), sheet, width, height));
  return { sheet, bars, width, height, whole, camera, setCamera, scale, zoomed: chosen !== null };
}

/** Where an element is drawn, for whoever drives the page from outside. */
function spotOf({ sheet, camera, bars, height }, index) {
  const [cell] = rectanglesOf(sheet, index);
  const x = (cell.column + 0.5 - camera.left) * camera.across;
  return { x, y: bars ? height / 2 : (cell.row + 0.5 - camera.top) * camera.down };
}

function keysOf(stage, index, onSelect) {
  const { sheet, camera, width, height, scale, setCamera } = stage;
  const own = {
    "+": () => scale(1.5),
    "=": () => scale(1.5),
    "-": () => scale(1 / 1.5),
    0: () => setCamera(null),
    Enter: (event) => index && onSelect(index, { both: event.shiftKey }),
  };
  return (event) => {
    const next = keyed(event, sheet, index);
    if (next) {
      onSelect(next, { keyboard: true });
      const [cell] = rectanglesOf(sheet, next);
      if (stage.zoomed && cell) setCamera(showing(camera, cell, sheet, width, height));
    } else if (Object.hasOwn(own, event.key) && !event.ctrlKey && !event.metaKey) own[event.key](event);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
}

export function HeatMap({ sheet, content, theme, index, square, bars, label, hand, onSelect, onHover, onZoom, api }) {
  const place = useRef(null);
  const canvas = useRef(null);
  const stage = useStage(place, sheet, bars, square);
  const [dragged, setDragged] = useState(null);
  const picture = useMemo(() => {
    let made = null;
    return () => (made ??= pictureOf(sheet, content, palettes[theme]));
  }, [sheet, content, theme]);
  useEffect(() => onZoom?.(stage.zoomed), [stage.zoomed]);
  useEffect(() => {
    place.current.spotOf = (at) => spotOf(stage, at);
    if (stage.camera) draw(canvas.current, { ...stage, picture, content, theme, index: dragged ?? index });
  });
  if (api) api.current = { zoom: stage.scale, fit: () => stage.setCamera(null) };
  const handlers = usePointer(place, stage, { hand, dragged, setDragged, onSelect, onHover });
  return html`<div class=${`wrt-heat${hand || stage.zoomed ? " wrt-hand" : ""}`} ref=${place} tabindex="0" role="application"
      aria-roledescription="heat map" aria-label=${label} style=${{ height: `${stage.height || 120}px` }}
      onKeyDown=${keysOf(stage, index, onSelect)} ...${handlers}>
    <canvas ref=${canvas} aria-hidden="true"></canvas>
  </div>`;
}
