// Where one has been: the browser's history where there is an address, a list where there is none.
import { indexText, parseIndex } from "../data/index.js";

/** A view as a fragment, in words that a person can read and change. */
export function toFragment(view, keep = {}) {
  const words = new URLSearchParams(keep);
  words.set("target", view.target);
  if (view.at) words.set("at", indexText(view.at).replaceAll(" ", ""));
  words.set("source", view.source);
  if (view.from) words.set("from", indexText(view.from).replaceAll(" ", ""));
  if (view.asks === "map" || view.asks === "block") words.set("map", view.asks);
  return words.toString().replaceAll("%2C", ",").replaceAll("%3A", ":");
}

/** The view in a fragment, or null when there is none that can be read. */
export function fromFragment(fragment) {
  const words = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!words.has("target") || !words.has("source")) return null;
  const index = (field) => (words.has(field) ? parseIndex(words.get(field)) : null);
  const [at, from] = [index("at"), index("from")];
  if (at === undefined || from === undefined) return null;
  const map = words.get("map");
  return {
    target: words.get("target"),
    at,
    source: words.get("source"),
    from,
    asks: map === "map" || map === "block" ? map : null,
  };
}

export function listTrail() {
  const views = [];
  let at = -1;
  const trail = {
    moved: null,
    start: () => null,
    push(view, { replace = false } = {}) {
      if (!replace || at < 0) at++;
      views.splice(at, views.length, view);
    },
    go(by) {
      if (views[at + by] === undefined) return;
      at += by;
      trail.moved?.(views[at]);
    },
    can: (by) => views[at + by] !== undefined,
    link: null,
    close() {},
  };
  return trail;
}

export function browserTrail(keep, fallback = listTrail()) {
  // A reloaded page stands in the middle of its own history; how far forward it reaches, browsers do not tell.
  let at = window.history.state?.wrt ?? 0;
  let last = at;
  const onPop = (event) => {
    at = event.state?.wrt ?? 0;
    const view = fromFragment(window.location.hash);
    if (view) trail.moved?.(view);
  };
  const address = (view) => `#${toFragment(view, keep)}`;
  const trail = {
    moved: null,
    start: () => fromFragment(window.location.hash),
    push(view, { replace = false } = {}) {
      const same = window.location.hash === address(view);
      if (!same && !replace) last = ++at;
      try {
        window.history[same || replace ? "replaceState" : "pushState"]({ wrt: at }, "", address(view));
      } catch {
        fallback.push(view); // a page without an address of its own, as in a sandboxed frame
      }
    },
    go: (by) => window.history.go(by),
    can: (by) => (by < 0 ? at > 0 : at < last),
    link: (view) => `${window.location.href.split("#")[0]}${address(view)}`,
    close: () => window.removeEventListener("popstate", onPop),
  };
  window.addEventListener("popstate", onPop);
  return trail;
}
