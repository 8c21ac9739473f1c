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
  stands: "its link carries the token of another run",
  write: "open the link that the running program printed",
};

async function post(token, verb, args) {
  let response;
  try {
    response = await fetch(`/api/${verb}`, {
      method: "POST",
      headers: { "Content-Type": "application/json", "X-Wrt-Token": token },
      body: JSON.stringify(args),
      credentials: "omit",
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
async function follow(token, job, { signal, onProgress }) {
  for (let wait = 60; ; wait = Math.min(wait * 1.5, 300)) {
    await pause(wait);
    if (signal?.aborted) {
      await post(token, "cancel", { job });
      throw aborted();
    }
    const reply = await post(token, "progress", { job });
    // An interim reply may come bare or within a result; a final one is the answer itself.
    const interim = reply.done === false ? reply : reply.ok && reply.result?.done === false ? reply.result : null;
    if (interim === null) return reply;
    onProgress?.(interim);
  }
}

export function liveHost(place = window.location) {
  const token = new URLSearchParams(place.hash.slice(1)).get("token") ?? "";
  return {
    kind: "live",
    keep: { token },
    async ask(verb, args, options = {}) {
      // The first reply is never aborted: it may carry the number of the job that has to be cancelled.
      let reply = await post(token, verb, args);
      if (reply.ok && reply.pending) reply = await follow(token, reply.pending, options);
      if (options.signal?.aborted) throw aborted();
      if (!reply.ok) throw new Refused(reply.error ?? { what: "the server gave no reason" });
      return reply.result;
    },
  };
}
