// Why the answer can be trusted, how it was computed, and why it is missing where it is.
import { html } from "../html.js";

export function Trouble({ lines }) {
  return html`<div class="wrt-trouble" role="alert">
    <p><b>${lines.what}</b></p>
    ${lines.stands && html`<p>${lines.stands}</p>`}
    ${lines.write && html`<pre>${lines.write}</pre>`}
  </div>`;
}

const place = (finding) => [finding.file && `${finding.file}:${finding.line}`, finding.function].filter(Boolean).join(" in ");

export function Why({ findings }) {
  if (!findings.length) return null;
  return html`<section class="wrt-why" aria-label="why">
    <h2>why</h2>
    ${findings.map(
      (finding, i) => html`<article key=${i}>
      <p><b>${finding.sentence}</b> ${place(finding) && html`<span class="wrt-place">${place(finding)}</span>`}
        ${finding.certain === false && html`<span class="wrt-place">likely, not certain</span>`}</p>
      ${
        finding.source_lines &&
        html`<ol class="wrt-lines">
        ${finding.source_lines.map(({ line, text, mark }) => html`<li key=${line} value=${line}
            class=${mark ? "wrt-mark" : ""}><span>${line}</span><code>${text}</code></li>`)}
      </ol>`
      }
      ${(finding.evidence ?? []).map((one, k) => html`<p key=${k} class="wrt-note">${one}</p>`)}
      ${finding.remedy && html`<p class="wrt-remedy">${finding.remedy}</p>`}
    </article>`,
    )}
  </section>`;
}

/** A step of a plan as a sentence: rows by pull, one by one: 1 pass. */
function stepText({ what, way, rung, passes }) {
  const how = [what, way && `by ${way}`].filter(Boolean).join(" ");
  return `${[how, rung].filter(Boolean).join(", ")}: ${passes} ${passes === 1 ? "pass" : "passes"}`;
}

const isStep = (value) => value !== null && typeof value === "object" && "what" in value && "passes" in value;

/** A plan is whatever `explain()` says: words and numbers, shown by their own names. */
const worded = (value) => {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value))
    return value.length
      ? value
          .map(worded)
          .filter(Boolean)
          .join(value.every(Number.isFinite) ? ", " : "; ")
      : null;
  if (isStep(value)) return stepText(value);
  if (typeof value === "object")
    return Object.entries(value)
      .map(([key, inner]) => `${key.replaceAll("_", " ")} ${worded(inner) ?? "none"}`)
      .join(", ");
  return String(value);
};

export function Evidence({ answer }) {
  if (!answer) return null;
  const rows = Object.entries(answer.plan ?? {})
    .filter(([key]) => key !== "certificate") // it stands above
    .map(([key, value]) => [key, worded(value)])
    .filter(([, text]) => text);
  return html`<section class="wrt-evidence" aria-label="evidence">
    ${answer.note && answer.connected !== false && html`<p class="wrt-note">${answer.note}</p>`}
    ${answer.certificate && html`<div><h2>certificate</h2><p>${answer.certificate}</p></div>`}
    ${
      rows.length > 0 &&
      html`<details open><summary><h2>plan</h2></summary>
      <dl>${rows.map(([key, text]) => html`<div
          key=${key}><dt>${key.replaceAll("_", " ")}</dt><dd>${text}</dd></div>`)}</dl></details>`
    }
  </section>`;
}
