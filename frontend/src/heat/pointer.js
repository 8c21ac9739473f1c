// Mouse, pen and fingers on a picture: point, click, drag a region, move, zoom.
import { useEffect, useRef } from "preact/hooks";
import { indexOf } from "../data/index.js";
import { cellAt, held, pan } from "./camera.js";
import { elementAt, regionBetween } from "./sheet.js";

const still = 4; // pixels that a click may tremble

/** Zoom with ctrl and the wheel or by pinching a touchpad; move with the wheel alone once zoomed in. */
function useWheel(place, stage, spot, move) {
  useEffect(() => {
    const onWheel = (event) => {
      if (event.ctrlKey || event.metaKey) stage.scale(Math.exp(-event.deltaY / 200), ...spot(event));
      else if (stage.camera !== stage.whole) move(-event.deltaX, -event.deltaY);
      else return;
      event.preventDefault();
    };
    const box = place.current;
    // Not passive: zooming must keep the browser from zooming the page, or from going back.
    box.addEventListener("wheel", onWheel, { passive: false });
    return () => box.removeEventListener("wheel", onWheel);
  });
}

const apart = ([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const middle = ([a, b]) => [(a[0] + b[0]) / 2, (a[1] + b[1]) / 2];

/** Handlers for the element in `place`; `stage` is what is on it: sheet, camera, size. */
export function usePointer(place, stage, { hand, dragged, setDragged, onSelect, onHover }) {
  const press = useRef(null);
  const fingers = useRef(new Map());
  const { sheet, camera, whole, bars, width, height, setCamera } = stage;
  const spot = (event) => {
    const box = place.current.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const element = (event) => {
    const [row, column] = cellAt(camera, ...spot(event));
    return elementAt(sheet, bars ? 0 : row, column);
  };
  const move = (dx, dy) => setCamera((now) => now && held(pan(now, dx, dy), sheet, width, height));
  useWheel(place, stage, spot, move);

  function pinch(event) {
    const before = [...fingers.current.values()];
    fingers.current.set(event.pointerId, spot(event));
    const after = [...fingers.current.values()];
    const [x, y] = middle(after);
    stage.scale(apart(after) / Math.max(1, apart(before)), x, y);
    move(x - middle(before)[0], y - middle(before)[1]);
  }

  function drag(event, pressed) {
    const [x, y] = spot(event);
    const [dx, dy] = [x - pressed.at[0], y - pressed.at[1]];
    if (Math.hypot(dx, dy) <= still) return;
    if (pressed.panning) {
      move(dx, dy);
      Object.assign(pressed, { at: [x, y], moved: true });
    } else if (!pressed.touch && pressed.first !== null) {
      const under = element(event);
      if (under !== null && under !== pressed.first) setDragged(regionBetween(sheet, pressed.first, under));
    }
  }

  return {
    onPointerDown(event) {
      if (event.button > 1 || !camera) return;
      const touch = event.pointerType === "touch";
      fingers.current.set(event.pointerId, spot(event));
      const panning = event.button === 1 || hand || (touch && camera !== whole);
      press.current = { at: spot(event), first: element(event), panning, touch };
      try {
        if (!touch) place.current.setPointerCapture(event.pointerId);
      } catch {
        // A pointer that is already gone cannot be captured; its click still counts.
      }
    },
    onPointerMove(event) {
      if (!camera) return;
      if (fingers.current.size === 2 && fingers.current.has(event.pointerId)) return pinch(event);
      onHover(element(event));
      if (press.current) drag(event, press.current);
    },
    onPointerUp(event) {
      fingers.current.delete(event.pointerId);
      const pressed = press.current;
      press.current = null;
      if (!pressed || pressed.moved) return;
      setDragged(null);
      const how = { both: event.shiftKey };
      if (dragged) onSelect(dragged, how);
      else if (pressed.first !== null && element(event) === pressed.first) onSelect(indexOf(pressed.first, sheet.shape), how);
    },
    onPointerCancel(event) {
      fingers.current.delete(event.pointerId);
      press.current = null;
      setDragged(null);
    },
    onPointerLeave: () => onHover(null),
  };
}
