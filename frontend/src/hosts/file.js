// The file's host: everything that can be asked was computed when the file was written.
import { indexText, isElement } from "../data/index.js";
import { Refused } from "./live.js";
import { answerFrom, normsFrom, openMatrix } from "./matrix.js";

const keyOf = ({ target, source, reduce }) =>
  JSON.stringify([target.name, target.index ?? null, source.name, source.index ?? null, reduce ?? null]);

const quoted = ({ name, index }, tensor) =>
  `d(${tensor?.python ?? `t[${JSON.stringify(name)}]`})${index?.length ? `[${indexText(index)}]` : ""}`;

/** The question in Python; a tensor knows how it is reached, most by their name. */
export const pythonOf = (ask, { target, source } = {}) => `${quoted(ask.target, target)} / ${quoted(ask.source, source)}`;

const unsaved = (python) =>
  new Refused({
    what: "this derivative is not in the file",
    stands: "a saved page holds what was computed when it was written",
    write: `${python}   or look live with t.show()`,
  });

const kindOf = (ask, shapes) => {
  const row = isElement(ask.target.index, shapes.target);
  const column = isElement(ask.source.index, shapes.source);
  return row && column ? "element" : row ? "row" : column ? "column" : "block";
};

function fromMatrix(saved, ask, python) {
  const shapes = { target: saved.target.shape, source: saved.source.shape };
  saved.opened ??= openMatrix(saved);
  const answer = answerFrom(saved.opened, ask.target.index, shapes.target, ask.source.index, shapes.source);
  if (answer === null) throw unsaved(python);
  return {
    ...answer,
    ask,
    kind: kindOf(ask, shapes),
    data: { shape: answer.shape, data: answer.data },
    ...evidence(saved, python),
  };
}

const evidence = (saved, python) => ({
  python,
  plan: saved.plan ?? null,
  certificate: saved.certificate ?? null,
  passes: null,
  seconds: null,
  connected: true,
  finding: null,
});

/** A norm for every pair of steps along two axes: only from a matrix that is there as a whole. */
function mapFrom(saved, ask, python) {
  if (!saved) throw unsaved(python);
  saved.opened ??= openMatrix(saved);
  if (!saved.opened.complete) throw unsaved(python);
  const { shape, data } = normsFrom(saved.opened, saved.target.shape, saved.source.shape, ask.keep);
  return { kind: "map", ask, shape, data: { shape, data }, ...evidence(saved, python) };
}

export function fileHost(run) {
  const answers = new Map((run.answers ?? []).map(({ ask, reply }) => [keyOf(ask), reply]));
  const same = (saved, { target, source }) =>
    (saved.target.name ?? saved.target) === target.name && (saved.source.name ?? saved.source) === source.name;
  const python = (ask) => pythonOf(ask, { target: run.tensors[ask.target.name], source: run.tensors[ask.source.name] });
  const reasons = (ask) => (run.whys ?? []).find((saved) => same(saved, ask))?.reply ?? { findings: [] };
  const jacobian = (ask) => (run.maps ?? []).find((one) => same(one, ask));

  /** A saved answer, one computed from a saved matrix, or the saved reason why there is none. */
  function derivative(ask) {
    const saved = jacobian(ask);
    const known = answers.get(keyOf(ask)) ?? (saved && fromMatrix(saved, ask, python(ask)));
    if (known) return known;
    const [finding] = reasons(ask).findings;
    if (!finding) throw unsaved(python(ask));
    return { ...evidence({}, python(ask)), ask, kind: "row", shape: null, data: null, connected: false, finding };
  }

  function tensor({ name }) {
    if (Object.hasOwn(run.tensors, name)) return run.tensors[name];
    throw new Refused({
      what: `the values of ${name} are not in the file`,
      stands: "a saved page holds what was chosen when it was written",
      write: `t.show()   or t[${JSON.stringify(name)}].value`,
    });
  }

  const verbs = {
    hello: () => run.hello,
    graph: () => run.graph,
    tensor,
    derivative,
    sizes: ({ target }) =>
      (run.sizes ?? []).find((saved) => saved.target.name === target.name && sameIndex(saved.target.index, target.index)) ?? null,
    why: reasons,
    map: (ask) => mapFrom(jacobian(ask), ask, python(ask)),
  };
  return {
    kind: "file",
    keep: {},
    ask: async (verb, args) => verbs[verb](args),
    /** Whether a map of the two tensors can be had: only from a whole matrix. */
    maps: ({ target, source }) =>
      (run.maps ?? []).some((one) => !one.rows && same(one, { target: { name: target }, source: { name: source } })),
  };
}

const sameIndex = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
