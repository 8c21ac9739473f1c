// What the page knows, and the only place from which the host is asked.
import { batch, computed, signal } from "@preact/signals";
import { decode, summary } from "../data/array.js";
import { countOf, fits, sizeOf } from "../data/index.js";
import { Lost, Refused } from "../hosts/live.js";

const open = (array) => (array == null ? null : array.base64 === undefined ? array : decode(array));

/** A reply with its arrays opened and counted, so that nothing is computed while the pointer moves. */
function opened(reply) {
  const data = open(reply.data);
  const block = reply.block ? open(reply.block.data ?? reply.block) : null;
  const facts = data ? summary(data.data) : { low: 0, high: 0, size: 0, zeros: 0, nonfinite: 0 };
  return {
    ...reply,
    ...facts,
    values: data?.data ?? null,
    block: block && { shape: reply.block.shape, data: block.data, ...summary(block.data) },
  };
}

const remembered = 32; // tensors kept by the page: a walk through a large model must not fill its memory

const linesOf = (error) =>
  error instanceof Refused
    ? error.lines
    : { what: "the page met an error of its own", stands: String(error?.message ?? error), write: "" };

export function createStore(host, trail) {
  const store = {
    host,
    trail,
    hello: signal(null),
    graph: signal(null),
    view: signal(null),
    tensors: { target: signal(null), source: signal(null) },
    answer: signal(null),
    sizes: signal(null),
    findings: signal([]),
    progress: signal(null),
    busy: signal(true), // from a click until everything about it has arrived
    trouble: signal(null),
    lost: signal(false),
    said: signal(""),
    steps: signal(0), // changes with every step of the trail, whose own state is the browser's
  };
  store.stale = computed(() => store.answer.value !== null && store.answer.value.view !== store.view.value);
  store.over = computed(() => overOf(store.answer.value, store.view.value));
  const asker = askerOf(store);
  store.cancel = asker.cancel;
  store.open = asker.open;
  store.show = asker.show;
  trail.moved = (view) => asker.show(view, { silent: true });
  return store;
}

/** Which of the two tensors the answer lies over. */
function overOf(answer, view) {
  if (!answer || answer.kind === "map") return null;
  return answer.over ?? (view?.at === null && view?.from !== null ? "target" : "source");
}

function askerOf(store) {
  const known = new Map(); // tensors by name: what was recorded does not change
  let running = null;
  let timer = 0;
  let retry = 0;

  async function tensor(name) {
    if (!known.has(name)) {
      const reply = await store.host.ask("tensor", { name });
      const data = open(reply.data)?.data ?? null;
      if (known.size >= remembered) known.delete(known.keys().next().value);
      known.set(name, { ...reply, name, values: data, ...(data ? summary(data) : { low: 0, high: 0, zeros: 0, nonfinite: 0 }) });
    }
    return known.get(name);
  }

  async function run(view, how) {
    running?.abort();
    const mine = (running = new AbortController());
    const onProgress = (progress) => mine === running && (store.progress.value = progress);
    const late = setTimeout(() => store.progress.value ?? onProgress({ doing: "computing", share: null, left_s: null }), 200);
    // Sizes and reasons come after the picture: nobody waits for them.
    const onAnswer = () => {
      clearTimeout(late);
      onProgress(null);
    };
    const options = { signal: mine.signal, onProgress, onAnswer };
    try {
      const [target, source] = await Promise.all([tensor(view.target), tensor(view.source)]);
      if (mine !== running) return;
      view = settled(view, target, source);
      batch(() => {
        store.view.value = view;
        store.tensors.target.value = target;
        store.tensors.source.value = source;
        store.trouble.value = null;
      });
      if (!how.silent) store.trail.push(view, { replace: how.replace });
      store.steps.value++;
      await derivative(store, view, options);
    } catch (error) {
      if (mine === running && error.name !== "AbortError") failed(error, view);
    } finally {
      clearTimeout(late);
      if (mine === running) batch(() => ((store.progress.value = null), (store.busy.value = store.lost.value)));
    }
  }

  function failed(error, view) {
    if (error instanceof Lost) return lost(view);
    batch(() => {
      for (const role of ["target", "source"])
        if (store.tensors[role].value?.name !== view?.[role]) store.tensors[role].value = null;
      store.answer.value = null;
      store.trouble.value = linesOf(error);
      store.said.value = linesOf(error).what;
    });
  }

  function lost(view, patience = 700) {
    store.lost.value = true;
    clearTimeout(retry);
    retry = setTimeout(async () => {
      try {
        await store.host.ask("hello", {});
        known.clear();
        store.lost.value = false;
        store.said.value = "connected again";
        await begin(view);
      } catch (error) {
        if (error instanceof Lost) lost(view, Math.min(3000, patience * 1.3));
        else {
          batch(() => ((store.lost.value = false), (store.busy.value = false)));
          failed(error, view);
        }
      }
    }, patience);
  }

  /** Ask what there is, then show what the address says or the host proposes. */
  async function begin(view) {
    try {
      const [hello, graph] = await Promise.all([store.host.ask("hello", {}), store.host.ask("graph", {})]);
      batch(() => {
        store.hello.value = hello;
        store.graph.value = graph;
      });
      const first = view ?? store.trail.start() ?? proposed(hello);
      if (first.target === null || first.source === null) throw new Refused(nothing);
      await show(first, { replace: true });
    } catch (error) {
      failed(error, view);
    }
  }

  function show(view, how = {}) {
    clearTimeout(timer);
    running?.abort(); // nobody waits for the answer to an earlier question
    running = null;
    batch(() => ((store.busy.value = true), (store.progress.value = null), (store.view.value = view)));
    if (!how.keyboard) return run(view, how);
    // Holding an arrow key moves at once and asks when it rests.
    timer = setTimeout(() => run(view, how), 90);
    return Promise.resolve();
  }

  return {
    open: () => begin(null),
    show,
    cancel() {
      running?.abort();
      running = null;
      batch(() => ((store.progress.value = null), (store.busy.value = false), (store.said.value = "cancelled")));
    },
  };
}

const nothing = {
  what: "there is nothing to look at in this recording",
  stands: "it holds no number that was computed from another and has a name",
  write: "t = wrt.trace(model, x)",
};

const proposed = (hello) => ({
  target: hello.default.target,
  at: hello.default.index ?? null,
  source: hello.default.source,
  from: null,
  asks: null,
});

/** A view made to fit: a scalar needs no click, and a link of another run may point outside. */
function settled(view, target, source) {
  let { at, from } = view;
  if (!fits(at, target.shape)) at = null;
  if (!fits(from, source.shape)) from = null;
  if (at === null && from === null && !view.asks && sizeOf(target.shape) === 1) at = target.shape.map(() => 0);
  return { ...view, at, from };
}

async function derivative(store, view, options) {
  const ask = { target: { name: view.target, index: view.at }, source: { name: view.source, index: view.from }, reduce: null };
  if (view.at === null && view.from === null && !view.asks) {
    batch(() => ((store.answer.value = null), (store.sizes.value = null), (store.findings.value = [])));
    return;
  }
  const keep = view.asks === "map" ? keptAxes(store) : null;
  const reply = opened(await store.host.ask(keep ? "map" : "derivative", keep ? { ...ask, keep } : ask, options));
  if (keep) reply.kind = "map";
  reply.view = view;
  if (options.signal.aborted) return;
  batch(() => {
    store.answer.value = reply;
    store.findings.value = reply.finding ? [reply.finding] : [];
    store.said.value = spoken(reply, store);
  });
  options.onAnswer();
  await evidence(store, view, reply, options);
}

/** The axes that a map keeps: tokens where there are some, otherwise the first that is longer than one. */
function keptAxes(store) {
  const axis = ({ axes, shape }) =>
    axes?.tokens ??
    Math.max(
      0,
      shape.findIndex((n) => n > 1),
    );
  return [axis(store.tensors.target.value), axis(store.tensors.source.value)];
}

const unasked = new Set(["not_requires_grad", "unwatched"]);

/** What comes after the picture: gradient sizes along the path, and reasons where nothing arrived. */
async function evidence(store, view, reply, options) {
  const missing = reply.connected === false || (reply.values !== null && reply.zeros === reply.values.length);
  const quiet = { signal: options.signal };
  const [sizes, why] = await Promise.all([
    view.at ? store.host.ask("sizes", { target: { name: view.target, index: view.at } }, quiet).catch(() => null) : null,
    missing
      ? store.host
          .ask("why", { target: { name: view.target, index: view.at }, source: { name: view.source, index: view.from } }, quiet)
          .catch(() => null)
      : null,
  ]);
  if (options.signal.aborted) return;
  batch(() => {
    store.sizes.value = sizes?.sizes ?? null;
    // What the framework alone would have missed is no reason for zeros that were computed.
    const told = (why?.findings ?? []).filter(({ cause }) => reply.connected === false || !unasked.has(cause));
    if (told.length) store.findings.value = told;
  });
}

function spoken(reply, store) {
  const view = store.view.value;
  if (reply.values === null) return reply.finding?.sentence ?? "no gradient";
  const tensor = store.tensors[overOf(reply, view) ?? "source"].value;
  const seen = `${reply.values.length - reply.zeros} of ${reply.values.length} entries are not zero`;
  const region = view.at !== null && countOf(view.at, store.tensors.target.value.shape) > 1;
  return `${reply.python ?? "answered"}: ${seen}, over ${tensor.name}${region ? ", summed over the region" : ""}`;
}
