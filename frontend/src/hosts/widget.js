// The notebook's host: questions and answers are messages between the page and the kernel.
import { Refused, aborted } from "./live.js";

export function widgetHost(model) {
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
        const id = ++last;
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
