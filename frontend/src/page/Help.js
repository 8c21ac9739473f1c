// What the keys do. Everything here can be done with the pointer, too.
import { useLayoutEffect, useRef } from "preact/hooks";
import { html } from "../html.js";

const keys = [
  ["arrow keys", "move the selected element; in the graph, move along the path"],
  ["shift + arrow keys", "grow a region"],
  ["page up, page down", "previous or next plane"],
  ["shift + click", "keep what is selected on the other side"],
  ["+  −  0", "zoom in, zoom out, show everything; also ctrl + wheel"],
  ["t   s   g", "go to the target, the source, the graph"],
  ["x", "exchange target and source"],
  ["b   f", "back, forward"],
  ["c   l", "copy as Python, copy a link"],
  ["d", "dark or light"],
  ["esc", "cancel what is being computed"],
];

export function Help({ onClose }) {
  const dialog = useRef(null);
  useLayoutEffect(() => dialog.current.showModal(), []);
  return html`<dialog class="wrt-help" ref=${dialog} aria-label="keys" onClose=${onClose}
      onClick=${(event) => event.target === dialog.current && dialog.current.close()}>
    <h2>keys</h2>
    <dl>${keys.map(([key, words]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${words}</dd></div>`)}</dl>
    <button type="button" onClick=${() => dialog.current.close()}>close</button>
  </dialog>`;
}
