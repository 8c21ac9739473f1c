// Every element against every element: a block of the Jacobian, or the map of what depends on what.
import { useSignal } from "@preact/signals";
import { useMemo, useState } from "preact/hooks";
import { indexOf, flatsOf, indexText } from "../data/index.js";
import { exact } from "../data/number.js";
import { HeatMap } from "../heat/HeatMap.js";
import { sheetOf } from "../heat/sheet.js";
import { html } from "../html.js";
import { Legend } from "./Legend.js";

export function Matrix({ store, theme }) {
  const answer = store.answer.value;
  const shown =
    answer?.kind === "map" ? { shape: answer.shape, data: answer.values, size: answer.size, zeros: answer.zeros } : answer?.block;
  if (!shown) return null;
  return html`<${Shown} key=${answer.kind === "map" ? "map" : "block"} store=${store} theme=${theme} shown=${shown}
      map=${answer.kind === "map"} />`;
}

/** Which element or token each row and column of the matrix stands for. */
function namesOf(tensor, index, map) {
  if (!map) {
    const flats = flatsOf(index, tensor.shape);
    return (i) => `${tensor.name}[${indexText(indexOf(flats[i], tensor.shape))}]`;
  }
  return (i) => (tensor.tokens?.[i] !== undefined ? `${i} ${tensor.tokens[i]}` : `${tensor.name} ${i}`);
}

function Shown({ store, theme, shown, map }) {
  const view = store.view.value;
  const { target, source } = { target: store.tensors.target.value, source: store.tensors.source.value };
  const [gain, setGain] = useState(0);
  const hovered = useSignal(null);
  const shape = useMemo(() => [shown.shape[0], shown.data.length / shown.shape[0]], [shown]);
  const sheet = useMemo(() => sheetOf(shape, null), [shape]);
  const content = useMemo(() => ({ data: shown.data, signed: true, size: shown.size / 10 ** gain }), [shown, gain]);
  const [cursor, setCursor] = useState(null);
  const walk = (index) => {
    if (!index.every(Number.isInteger)) return;
    setCursor(index);
    hovered.value = index[0] * shape[1] + index[1];
    store.said.value = `${rows(index[0])} with respect to ${columns(index[1])}: ${exact(shown.data[hovered.value])}`;
  };
  const rows = namesOf(target, view.at, map);
  const columns = namesOf(source, view.from, map);
  const pick = ([i, j]) => {
    if (map) return store.show({ ...view, asks: null, from: null, at: tokenIndex(target, i) });
    const [at, from] = [flatsOf(view.at, target.shape)[i], flatsOf(view.from, source.shape)[j]];
    return store.show({ ...view, asks: null, at: indexOf(at, target.shape), from: indexOf(from, source.shape) });
  };
  return html`<section class="wrt-panel wrt-matrix" aria-label=${map ? "dependence map" : "block"}>
    <header><h2>${map ? "dependence map" : "block"}</h2><span class="wrt-shape">${shape.join(" × ")}</span>
      <span class="wrt-axes">down: ${view.target} · across: ${view.source}</span></header>
    <${Ruled} down=${map ? target.tokens : null} across=${map ? source.tokens : null} shape=${shape}>
      <${HeatMap} sheet=${sheet} content=${content} theme=${theme} index=${cursor} square=${true}
          label=${`${map ? "dependence map" : "block"}, ${shape.join(" by ")}`}
        onSelect=${(index, how) => (how.keyboard ? walk(index) : index.every(Number.isInteger) && pick(index))}
            onHover=${(flat) => (hovered.value = flat)} />
    <//>
    <${Under} hovered=${hovered} shown=${shown} width=${shape[1]} rows=${rows} columns=${columns} map=${map} />
    <${Legend} content=${content} theme=${theme} gain=${gain} onGain=${setGain} role=${map ? "map" : "block"} sided=${map}
        zeros=${shown.zeros} />
  </section>`;
}

/** Words beside the rows and above the columns, where there are few enough to be read. */
function Ruled({ down, across, shape: [rows, columns], children }) {
  const cell = Math.max(3, Math.min(48, 460 / rows, 620 / columns));
  const readable = cell >= 13;
  const words = (list, side) =>
    readable &&
    list &&
    html`<div class=${`wrt-ruler wrt-${side}`} aria-hidden="true">${list.map((word, i) => html`<span
        key=${i}>${word}</span>`)}</div>`;
  return html`<div class="wrt-ruled" style=${{ gridTemplateColumns: `auto minmax(0, ${Math.ceil(cell * columns)}px)` }}>
    ${words(across, "above")}${words(down, "beside")}<div class="wrt-sheet">${children}</div></div>`;
}

const tokenIndex = (tensor, i) => {
  const axis =
    tensor.axes?.tokens ??
    Math.max(
      0,
      tensor.shape.findIndex((n) => n > 1),
    );
  return tensor.shape.map((n, other) => (other === axis ? i : n === 1 ? 0 : null));
};

function Under({ hovered, shown, width, rows, columns, map }) {
  const flat = hovered.value;
  if (flat === null)
    return html`<p class="wrt-readout"><span
        class="wrt-where">${map ? "click a row to see it over the source" : "click an entry to see it alone"}</span></p>`;
  return html`<p class="wrt-readout"><span
      class="wrt-where">${rows(Math.floor(flat / width))} wrt ${columns(flat % width)}</span>
    <span class="wrt-slope">${map ? "size" : "derivative"} <b>${exact(shown.data[flat])}</b></span></p>`;
}
