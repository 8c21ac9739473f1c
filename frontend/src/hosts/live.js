// The live host: a server on this machine computes what is clicked.

export class Lost extends Error {}

export class Refused extends Error {
  /** @param {{what: string, stands?: string, write?: string}} lines */
  constructor(lines) {
    super(lines.what);
    this.lines = lines;
  }
}

export const aborted = () => new DOMException("cancelled", "AbortError");

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

const stranger = {
  what: "the server does not know this page",
  stands: "it was opened without the token of this run",
  write: "open the link that the running program printed",
};

async function post(verb, args, headers = {}) {
  let response;
  try {
    response = await fetch(`api/${verb}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", ...headers },
      body: JSON.stringify(args),
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch {
    throw new Lost("the server does not answer");
  }
  if (response.status === 401 || response.status === 403) throw new Refused(stranger);
  const reply = await response.json().catch(() => null);
  if (reply === null) throw new Refused({ what: `the server answered ${response.status}`, stands: "", write: "" });
  return reply;
}

/** Wait for a long question, telling how far it is; a cancelled one is cancelled at the server, too. */
async function follow(job, { signal, onProgress }) {
  for (let wait = 60; ; wait = Math.min(wait * 1.5, 300)) {
    await pause(wait);
    if (signal?.aborted) {
      await post("cancel", { job });
      throw aborted();
    }
    const reply = await post("progress", { job });
    // An interim reply may come bare or within a result; a final one is the answer itself.
    const interim = reply.done === false ? reply : reply.ok && reply.result?.done === false ? reply.result : null;
    if (interim === null) return reply;
    onProgress?.(interim);
  }
}

/** The token of the address, once: a cookie that no script can read takes its place, and it goes from the address. */
function entrance(place) {
  const words = new URLSearchParams(place.hash.slice(1));
  const token = words.get("token");
  let entered = token === null;
  return async () => {
    if (entered) return;
    await post("enter", {}, { "X-Wrt-Token": token });
    entered = true;
    const now = new URLSearchParams(window.location.hash.slice(1));
    now.delete("token");
    window.history.replaceState(window.history.state, "", `#${now}`);
  };
}

export function liveHost(place = window.location) {
  const enter = entrance(place);
  return {
    kind: "live",
    keep: {},
    async ask(verb, args, options = {}) {
      await enter();
      // The first reply is never aborted: it may carry the number of the job that has to be cancelled.
      let reply = await post(verb, args);
      if (reply.ok && reply.pending) reply = await follow(reply.pending, options);
      if (options.signal?.aborted) throw aborted();
      if (!reply.ok) throw new Refused(reply.error ?? { what: "the server gave no reason" });
      if (verb === "hello") document.title = `${reply.result.title} · wrt`;
      return reply.result;
    },
  };
}
