// Many texts: their answers as a table that fills while they come, what they say together, and all of it as CSV.

import { Trouble } from "./answers.js";
import { EMPTY } from "./checks.js";
import { written } from "./csv.js";
import { save } from "./parts.js";
import { html, useState } from "./preact.js";
import { chosenOf, headline, isUnsure, optionsOf, percent, plural } from "./verdict.js";

const PAGE_ROWS = 100;
const DECIMALS = 6;

// `run` is `{draft, texts, results, trouble, busy}`; results has a `{reply}` or `{detail}` for each text that is done.
export function Table({ run, edited, onStop, onRetry }) {
  const [shown, setShown] = useState(PAGE_ROWS);
  const { draft, texts, results, busy, trouble } = run;
  const asked = results.filter((result) => result !== EMPTY).length;
  const done = results.filter((result) => result && result !== EMPTY).length;
  const left = !busy && !trouble && done < asked;
  return html`
    <div class="run">
      <div class="run-head">
        <p class="hint">
          ${busy ? `${done.toLocaleString("en")} of ${plural(asked, "text")} answered` : ended(run, done)}
        </p>
        ${busy && html`<button type="button" class="button small" onClick=${onStop}>Stop</button>`}
        ${left && html`<button type="button" class="button small" onClick=${onRetry}>Continue</button>`}
        ${
          done > 0 &&
          html`<button type="button" class="button small" onClick=${() => download(run)}>Download CSV</button>`
        }
      </div>
      ${
        busy &&
        html`<div class="progress" role="progressbar" aria-label="Texts answered" aria-valuemin="0" aria-valuemax=${asked}
          aria-valuenow=${done}><span class="known" style=${{ "--share": done / asked }}></span></div>`
      }
      ${edited && html`<p class="hint edited">Changed since this was asked.</p>`}
      ${trouble && html`<${Trouble} trouble=${trouble} onRetry=${onRetry} again=${done ? "Continue" : "Try again"} />`}
      ${done > 0 && html`<${Together} run=${run} />`}
      <div class="scroll" tabindex="0" role="region" aria-label="Answers to each text">
        <table>
          <thead>
            <tr>
              <th scope="col">Text</th>
              ${draft.questions.map(({ key, name }) => html`<th key=${key} scope="col">${name}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${texts.slice(0, shown).map(
              (text, at) =>
                html`<${Row} key=${at} text=${text} result=${results[at]} questions=${draft.questions} />`,
            )}
          </tbody>
        </table>
      </div>
      ${
        texts.length > shown &&
        html`<button type="button" class="button" onClick=${() => setShown(shown + PAGE_ROWS)}>
          Show more (${(texts.length - shown).toLocaleString("en")} left)
        </button>`
      }
    </div>
  `;
}

function ended({ results, ms }, done) {
  const failed = results.filter((result) => result?.detail && result !== EMPTY).length;
  const empty = results.filter((result) => result === EMPTY).length;
  return [
    `${plural(done, "text")} in ${(ms / 1000).toFixed(1)} s`,
    failed && `${failed} without an answer`,
    empty && `${plural(empty, "empty row")} left out`,
  ]
    .filter(Boolean)
    .join(", ");
}

// What went wrong with a text is said once, beside it.
const Row = ({ text, result, questions }) => html`
  <tr class=${result?.detail ? "failed" : ""}>
    <th scope="row"><span>${text || "empty"}</span></th>
    ${
      result?.detail && result !== EMPTY
        ? html`<td class="why" colspan=${questions.length}><span class="hint">${result.detail}</span></td>`
        : questions.map((question) => html`<${Cell} key=${question.key} question=${question} result=${result} />`)
    }
  </tr>
`;

function Cell({ question, result }) {
  if (!result) return html`<td data-name=${question.name}><span class="hint">…</span></td>`;
  if (result === EMPTY) return html`<td data-name=${question.name}><span class="hint">–</span></td>`;
  const answer = result.reply.answers[question.name];
  const share = Math.max(...Object.values(answer.probabilities));
  return html`
    <td data-name=${question.name} class=${isUnsure(answer) ? "unsure" : ""}>
      <span class="cell-name">${isUnsure(answer) && "unsure: "}${headline(question, answer)}</span>
      <span class="cell-bar"><span class="track" aria-hidden="true"><span style=${{ "--share": share }}></span></span>
      <span class="bar-share">${percent(share)}</span></span>
    </td>
  `;
}

// How often each answer was given. Unsure ones are counted apart: they are for a person to look at.
function Together({ run: { draft, results } }) {
  const replies = results.filter((result) => result?.reply).map(({ reply }) => reply);
  return html`
    <div class="together">
      ${draft.questions.map((question) => {
        const answers = replies.map(({ answers }) => answers[question.name]);
        const sure = answers.filter((answer) => !isUnsure(answer));
        const counts = optionsOf(question).map(({ name, value }) => [
          name,
          sure.filter((answer) => chosenOf(question, answer) === value).length,
        ]);
        if (question.type === "choice") counts.sort(([, one], [, other]) => other - one);
        return html`
          <figure key=${question.key}>
            <figcaption>${question.name}</figcaption>
            <ul>
              ${[...counts, ["unsure", answers.length - sure.length]]
                .filter(([, count]) => count)
                .map(
                  ([name, count], at) => html`
                    <li key=${at} class=${name === "unsure" ? "unsure" : ""}>
                      <span class="bar-name">${name}</span>
                      <span class="track" aria-hidden="true">
                        <span style=${{ "--share": count / answers.length }}></span>
                      </span>
                      <span class="bar-share">${count.toLocaleString("en")}</span>
                    </li>
                  `,
                )}
            </ul>
          </figure>
        `;
      })}
    </div>
  `;
}

// The columns of `decided run`: the answer, its confidence and the probability of each option. A file keeps its
// separator: a spreadsheet that reads one may not read another.
function download({ draft, texts, results }) {
  const { file, questions } = draft;
  const names = file ? file.columns : ["text"];
  const columns = questions.map((question) => columnsOf(question));
  const head = [...names, ...columns.flatMap(({ names }) => names), "warning", "error"];
  const rows = texts.map((text, at) => {
    const given = file ? names.map((_, column) => file.rows[at][column]) : [text];
    const answers = results[at]?.reply?.answers;
    const values = columns.flatMap(({ names, values }, of) =>
      answers ? values(answers[questions[of].name]) : names.map(() => ""),
    );
    const error = results[at]?.detail ?? (answers ? "" : "not asked");
    return [...given, ...values, results[at]?.reply?.warnings?.join("; "), error];
  });
  const name = file ? file.name.replace(/\.\w+$/, "") : "texts";
  const ending = /\.tsv$/i.test(file?.name) ? "tsv" : "csv";
  save(`${name}-answers.${ending}`, `\ufeff${written([head, ...rows], file?.separator ?? ",")}`, "text/csv");
}

function columnsOf(question) {
  const name = safe(question.name);
  const options = optionsOf(question);
  const score = question.type === "score";
  return {
    names: [
      name,
      ...(score ? [`${name}.level`, `${name}.score`] : []),
      `${name}.confidence`,
      ...options.map(({ key }) => `${name}.p.${safe(key)}`),
    ],
    values: (answer) => [
      chosenOf(question, answer),
      ...(score ? [question.levels[answer.level].label, rounded(answer.score)] : []),
      rounded(answer.confidence),
      ...options.map(({ key }) => rounded(answer.probabilities[key])),
    ],
  };
}

const safe = (name) => name.replace(/[^\p{L}\p{N}_.-]+/gu, "_").replace(/^_+|_+$/g, "") || "_";
const rounded = (number) => Number(number.toFixed(DECIMALS));
