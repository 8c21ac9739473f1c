// The microscope: click an element, see what it depends on. One page for three hosts.
import { render } from "preact";
import { html } from "./html.js";
import { fileHost } from "./hosts/file.js";
import { liveHost } from "./hosts/live.js";
import { widgetHost } from "./hosts/widget.js";
import { App } from "./page/App.js";
import { createStore } from "./state/store.js";
import { createTheme } from "./state/theme.js";
import { browserTrail, listTrail } from "./state/trail.js";

/** Draw the page into an element; what is returned takes it away again. */
export function mount(element, host) {
  const trail = host.kind === "widget" ? listTrail() : browserTrail(host.keep ?? {});
  const store = createStore(host, trail);
  const theme = createTheme();
  render(html`<${App} store=${store} theme=${theme} />`, element);
  element.microscope = store; // for the console, and for tests
  store.open();
  return () => {
    render(null, element);
    trail.close();
    theme.close();
    host.close?.();
  };
}

export { fileHost, liveHost, widgetHost };

export default { render: ({ model, el }) => mount(el, widgetHost(model)) };

const place = document.querySelector("[data-wrt-host]");
if (place?.dataset.wrtHost === "live") mount(place, liveHost());
if (place?.dataset.wrtHost === "file") mount(place, fileHost(JSON.parse(document.getElementById("wrt-run").textContent)));
