// The notebook's host: questions and answers are messages between the page and the kernel.
import { Refused, aborted } from "./live.js";

export function widgetHost(model) {
  // A widget may be shown in two cells, and both hear every message: questions need names of their own.
  const name = Math.random().toString(36).slice(2);
  let last = 0;
  const open = new Map();
  const heard = (message) => {
    const question = open.get(message.id);
    if (!question) return;
    if (message.kind === "progress") question.onProgress?.(message);
    if (message.kind !== "reply") return;
    open.delete(message.id);
    if (message.ok) question.settle(message.result);
    else question.fail(new Refused(message.error ?? { what: "the kernel gave no reason" }));
  };
  model.on("msg:custom", heard);

  return {
    kind: "widget",
    keep: {},
    ask: (verb, args, { signal, onProgress } = {}) =>
      new Promise((settle, fail) => {
        const id = `${name}-${++last}`;
        open.set(id, { settle, fail, onProgress });
        signal?.addEventListener("abort", () => {
          if (!open.delete(id)) return;
          model.send({ kind: "cancel", id });
          fail(aborted());
        });
        model.send({ kind: "ask", id, verb, args });
      }),
    close: () => model.off?.("msg:custom", heard),
  };
}
