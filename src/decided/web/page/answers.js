// The answers: for each question what was decided, how sure the model is, and a bar for every option.

import { html, useState } from "./preact.js";

const percent = (share) => `${(100 * share).toFixed(1)}%`;
const plural = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
const milliseconds = (ms) => (ms < 10 ? ms.toFixed(1) : Math.round(ms).toLocaleString("en"));

export function Answers({ outcome, edited, onOutcome }) {
  if (!outcome)
    return html`<p class="empty">Every option gets a probability, every answer a confidence. Press Ask.</p>`;
  if (outcome.detail)
    return html`
      <div class="note bad">
        <strong>${outcome.status ? `Refused with ${outcome.status}` : "Not asked"}</strong>
        ${[outcome.detail].flat().map((line) => html`<p key=${line}>${line}</p>`)}
        ${outcome.id && html`<p class="hint">Request <code>${outcome.id}</code></p>`}
      </div>
    `;
  const { asked, reply, ms } = outcome;
  const { input_tokens: read, output_tokens: written } = reply.usage;
  return html`
    <dl class="figures">
      <div><dt>Latency</dt><dd>${milliseconds(ms)} ms</dd></div>
      <div><dt>Tokens read</dt><dd>${read.toLocaleString("en")}</dd></div>
      <div><dt>Tokens written</dt><dd>${written.toLocaleString("en")}</dd></div>
      <div><dt>Model</dt><dd>${reply.model}</dd></div>
    </dl>
    ${edited && html`<p class="hint edited">Changed since this was asked.</p>`}
    ${
      reply.warnings &&
      html`
      <div class="note warn">
        <strong>The model could not read everything</strong>
        <ul>
          ${reply.warnings.map((warning) => html`<li key=${warning}>${warning}</li>`)}
        </ul>
      </div>
    `
    }
    <div class=${edited ? "answers old" : "answers"}>
      ${asked.questions.map(
        (each) => html`<${Answer} key=${`${each.key} ${outcome.id}`} question=${each} answer=${reply.answers[each.name]}
          onOutcome=${onOutcome && ((right) => onOutcome(each.name, right))} />`,
      )}
    </div>
  `;
}

function Answer({ question, answer, onOutcome }) {
  const bars = barsOf(question, answer);
  return html`
    <article class="answer">
      <header>
        <h3>${question.name}</h3>
        ${answer.truncated && html`<span class="badge">input cut</span>`}
        ${answer.profile && html`<span class="badge learnt" title="made with this profile">${answer.profile}</span>`}
        ${answer.decided === false && html`<span class="badge">undecided</span>`}
        <p class="confidence" title="0 is a guess, 1 is certain">
          <span class="ring" style=${{ "--share": answer.confidence }}></span>
          confidence <b>${answer.confidence.toFixed(2)}</b>
        </p>
      </header>
      <p class="verdict">${verdict(question, answer)}</p>
      <ul class="bars">
        ${bars.map(
          ({ name, share, top }) => html`
            <li key=${name} class=${top ? "bar top" : "bar"}>
              <span class="bar-name">${name}</span>
              <span class="track" aria-hidden="true"><span style=${{ "--share": share }}></span></span>
              <span class="bar-share">${percent(share)}</span>
            </li>
          `,
        )}
      </ul>
      ${onOutcome && html`<${Outcome} question=${question} answer=${answer} onOutcome=${onOutcome} />`}
    </article>
  `;
}

// Was it right? If not, what would have been.
function Outcome({ question, answer, onOutcome }) {
  const [said, setSaid] = useState("");
  const tell = async (right) => {
    setSaid("…");
    setSaid(await onOutcome(right));
  };
  const options = optionsOf(question);
  const chosen = chosenOf(question, answer);
  return html`
    <p class="outcome">
      ${said ? html`<span role="status">${said}</span>` : html`
        <button type="button" class="button small" onClick=${() => tell(chosen)}>Right</button>
        ${
          options.length === 2
            ? html`<button type="button" class="button small"
                onClick=${() => tell(options.find(({ value }) => value !== chosen).value)}>Wrong</button>`
            : html`<select aria-label=${`Right answer to ${question.name}`}
                onChange=${(event) => event.target.value && tell(options[event.target.value].value)}>
                <option value="">Wrong: it is…</option>
                ${options.map(
                  ({ name, value }, at) =>
                    value !== chosen && html`<option key=${name} value=${at}>${name}</option>`,
                )}
              </select>`
        }
      `}
    </p>
  `;
}

// The options as an outcome names them.
function optionsOf({ type, options, levels }) {
  if (type === "noul") return [{ name: "yes", value: true }, { name: "no", value: false }];
  if (type === "score") return levels.map(({ label }, at) => ({ name: `${at} · ${label}`, value: at }));
  return options.map(({ name }) => ({ name, value: name }));
}

function chosenOf({ type }, answer) {
  if (type === "noul") return answer.noul >= 0.5;
  return type === "score" ? answer.level : answer.choice;
}

// Options by probability; levels and outcomes in their own order.
function barsOf(question, { probabilities, choice, level }) {
  if (question.type === "noul")
    return [
      { name: "yes", share: probabilities.true, top: probabilities.true >= probabilities.false },
      { name: "no", share: probabilities.false, top: probabilities.false > probabilities.true },
    ];
  if (question.type === "score")
    return question.levels.map(({ label }, at) => ({
      name: `${at} · ${label}`,
      share: probabilities[at],
      top: at === level,
    }));
  return question.options
    .map(({ name }) => ({ name, share: probabilities[name], top: name === choice }))
    .sort((one, other) => other.share - one.share);
}

function verdict(question, answer) {
  if (question.type === "choice") return answer.choice;
  if (question.type === "noul") return answer.noul >= 0.5 ? "yes" : "no";
  const label = question.levels[answer.level].label;
  return html`${label} <small>score ${answer.score.toFixed(2)} of ${question.levels.length - 1}</small>`;
}

// The same in a sentence, for those who listen.
export function spoken(outcome) {
  if (outcome.detail) return [outcome.detail].flat().join(" ");
  const { asked, reply, ms } = outcome;
  const parts = asked.questions.map((question) => {
    const answer = reply.answers[question.name];
    const { name } = barsOf(question, answer).find((bar) => bar.top);
    return `${question.name}: ${name}, confidence ${answer.confidence.toFixed(2)}.`;
  });
  const cut = reply.warnings ? " The model could not read everything." : "";
  return `${plural(parts.length, "answer")} in ${milliseconds(ms)} ms.${cut} ${parts.join(" ")}`;
}
