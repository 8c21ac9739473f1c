// The canvas of one tensor: how tall it is, what shows everything, and one drawing of it.
import { short } from "../data/number.js";
import { fit } from "./camera.js";
import { palettes } from "./colors.js";
import { drawBars, drawCells, drawNumbers, drawSelection } from "./drawing.js";

const tallest = 460;

export function heightFor(sheet, width, { bars, square }) {
  if (bars) return 150;
  if (square) return Math.round(Math.max(48, Math.min(tallest, (width * sheet.rows) / sheet.columns, sheet.rows * 48)));
  return Math.round(Math.max(26, Math.min(tallest, sheet.rows * Math.min(34, Math.max(3, 380 / sheet.rows)))));
}

/** The camera that shows everything. */
export function wholeOf(sheet, width, height, { bars, square }) {
  if (!bars) return fit(sheet, width, height, square);
  const across = Math.min(40, width / sheet.columns);
  return { across, down: height, left: -(width / across - sheet.columns) / 2, top: 0 };
}

const light = { accent: "#00755a", halo: "#ffffff", line: "#b9b9b3", bar: "#6f6f6a", odd: "#f0b400" };
const dark = { accent: "#52d6a8", halo: "#101112", line: "#4a4b4d", bar: "#9b9b97", odd: "#ffcd28" };
const inks = { light, dark };

/** Ink that can be read over the color of a cell. */
const over = (theme) => (content, v) => {
  const share = content.signed ? Math.abs(v) / (content.size || 1) : (v - content.low) / (content.high - content.low || 1);
  const bright = content.signed === (theme === "dark") ? share > 0.55 : content.signed ? share < 0.5 : share > 0.5;
  return bright ? "#1b1b1a" : "#f1f1ef";
};

export function draw(canvas, scene) {
  const begun = performance.now();
  const { width, height, theme } = scene;
  const ratio = window.devicePixelRatio || 1;
  const [wide, tall] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== tall) [canvas.width, canvas.height] = [wide, tall];
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const all = { ...scene, ratio, short, palette: palettes[theme], ink: { ...inks[theme], over: over(theme) } };
  if (scene.bars) drawBars(context, all);
  else {
    drawCells(context, { ...all, picture: scene.picture() });
    drawNumbers(context, all);
  }
  if (scene.index) drawSelection(context, all);
  canvas.dataset.drawn = (performance.now() - begun).toFixed(2); // milliseconds, for whoever measures
}
