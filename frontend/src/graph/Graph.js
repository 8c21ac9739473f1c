// The left side: the computation between what is selected, in the user's names.
import { useMemo, useState } from "preact/hooks";
import { html } from "../html.js";
import { Details } from "./Details.js";
import { Drawing } from "./Drawing.js";
import { folded, openedAtFirst } from "./fold.js";
import { between, indexed } from "./path.js";
import { placed } from "./place.js";

/** The layout changes with the question and with what is open; never with a scroll or a gradient. */
function useLayout(store, { whole, detail, changed }) {
  const run = useMemo(() => indexed(store.graph.value), [store.graph.value]);
  const view = store.view.value;
  const target = run.byName.get(view?.target);
  const source = run.byName.get(view?.source);
  return useMemo(() => {
    const everything = { ids: new Set(run.byId.keys()), connected: true };
    const { ids, connected } = whole || target === undefined ? everything : between(run, target, source);
    const open = openedAtFirst(run.order.filter((node) => ids.has(node.id)));
    for (const [path, is] of changed)
      if (is) open.add(path);
      else open.delete(path);
    const drawn = folded(run, ids, { open, keep: new Set([target, source]), detail });
    return { ...placed(drawn), target, source, connected, run, mode: `${whole} ${detail}` };
  }, [run, target, source, whole, detail, changed]);
}

const holding = (boxes, id) => boxes.find(({ nodes }) => nodes.some((node) => node.id === id));

export function Graph({ store, wide, setWide }) {
  const [whole, setWhole] = useState(false);
  const [detail, setDetail] = useState("names");
  const [changed, setChanged] = useState(new Map());
  const [toggled, setToggled] = useState(null);
  const [focused, setFocused] = useState(null);
  const layout = useLayout(store, { whole, detail, changed });
  const toggle = (path, is) => {
    setToggled({ path }); // a new object each time: the same module may be opened again
    setChanged(new Map([...changed, [path, is]]));
  };
  const { boxes } = layout.drawn;
  const current = boxes.find(({ key }) => key === focused) ?? holding(boxes, layout.source) ?? boxes[0];
  const { target, source } = store.view.value;
  const all = detail === "all";
  return html`<section class="wrt-graph" aria-label="computation">
    <header>
      <h2>computation</h2>
      <button type="button" aria-pressed=${all} title="also draw operations that have no name"
        onClick=${() => setDetail(all ? "names" : "all")}>all steps</button>
      <button type="button" aria-pressed=${whole} title="also draw what lies beside the path"
        onClick=${() => setWhole(!whole)}>whole run</button>
      <button type="button" class="wrt-widen" aria-pressed=${wide} aria-label="wide" title="more room for the computation"
        onClick=${() => setWide(!wide)}>${wide ? "⇤" : "⇥"}</button>
    </header>
    ${!layout.connected && html`<p class="wrt-note">no path: ${target} was not computed from ${source}</p>`}
    <${Drawing} store=${store} layout=${layout} current=${current} toggle=${toggle} toggled=${toggled} setFocused=${setFocused} />
    <${Details} store=${store} current=${current} toggle=${toggle} />
  </section>`;
}
