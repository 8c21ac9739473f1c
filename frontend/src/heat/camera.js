// Where the sheet lies in the window: pixels per cell, and the cell in the upper left corner.

/** The largest view that shows everything. Only pictures keep square cells. */
export function fit(sheet, width, height, square) {
  let across = width / sheet.columns;
  let down = Math.min(height / sheet.rows, 34);
  if (square) across = down = Math.min(across, height / sheet.rows, 48);
  else across = Math.min(across, 64);
  return { across, down, left: -(width / across - sheet.columns) / 2, top: -(height / down - sheet.rows) / 2 };
}

/** Zoom by a factor, keeping the cell under (x, y) where it is. */
export function zoom(camera, whole, factor, x, y) {
  const scale = Math.max(1, Math.min(200, (camera.across * factor) / whole.across));
  const across = whole.across * scale;
  const down = whole.down * scale;
  if (scale === 1) return whole;
  return { across, down, left: camera.left + x / camera.across - x / across, top: camera.top + y / camera.down - y / down };
}

export const pan = (camera, x, y) => ({ ...camera, left: camera.left - x / camera.across, top: camera.top - y / camera.down });

/** Keep some of the sheet in the window. */
export function held(camera, sheet, width, height) {
  const clamp = (start, shown, whole) => (shown >= whole ? -(shown - whole) / 2 : Math.max(0, Math.min(whole - shown, start)));
  return {
    ...camera,
    left: clamp(camera.left, width / camera.across, sheet.columns),
    top: clamp(camera.top, height / camera.down, sheet.rows),
  };
}

export const cellAt = (camera, x, y) => [Math.floor(camera.top + y / camera.down), Math.floor(camera.left + x / camera.across)];

/** Move so that a cell is in the window, by as little as possible. */
export function showing(camera, { row, column }, sheet, width, height) {
  const [rows, columns] = [height / camera.down, width / camera.across];
  const into = (start, shown, at) => (at < start ? at : at + 1 > start + shown ? at + 1 - shown : start);
  return held({ ...camera, top: into(camera.top, rows, row), left: into(camera.left, columns, column) }, sheet, width, height);
}
