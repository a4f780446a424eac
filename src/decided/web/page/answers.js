// The answers: for each question what was decided, how sure the model is, and a bar for every option.

import { Evidence } from "./evidence.js";
import { html, useEffect, useState } from "./preact.js";
import { barsOf, chosenOf, headline, isUnsure, optionsOf, percent, plural, reason, surety } from "./verdict.js";

const milliseconds = (ms) => (ms < 10 ? ms.toFixed(1) : Math.round(ms).toLocaleString("en"));
const TITLES = {
  401: "This server asks for a key",
  "wrong key": "This key is not accepted",
  413: "This is too large for the server",
  500: "The model failed on this",
  503: "The server is busy",
  504: "This took longer than the server allows",
};
const HINTS = {
  401: "Type it into the field beside the button, and ask again.",
  "wrong key": "Check it, and ask again.",
};
const LONG_CHARACTERS = 5000;
const WORTH_A_RETRY = [undefined, 500, 503, 504];

export function Answers({ outcome, asking, edited, explain, marked, onMark, onOutcome, onRetry }) {
  if (!outcome && asking) return html`<div class="skeleton" aria-hidden="true"><span></span><span></span></div>`;
  if (!outcome)
    return html`<p class="empty">Press Ask. Every option gets a probability, and every answer says how sure it is.</p>`;
  if (outcome.detail) return html`<${Trouble} trouble=${outcome} onRetry=${onRetry} />`;
  const { asked, reply } = outcome;
  return html`
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
          asked=${asked} explain=${explain} marked=${marked === each.key} onMark=${() => onMark(each.key)}
          onOutcome=${onOutcome && ((right) => onOutcome(each.name, right))} />`,
      )}
    </div>
  `;
}

// How quick it was, by whom, and how much was read.
export const Figures = ({ outcome: { reply, ms } }) => html`
  <p class="hint figures">${milliseconds(ms)} ms · ${reply.model} · ${tokens(reply.usage)}</p>
`;

const tokens = ({ input_tokens: read, output_tokens: written }) =>
  `${plural(read, "token")} read${written ? `, ${written.toLocaleString("en")} written` : ""}`;

// What went wrong, and a way on where there is one.
export function Trouble({ trouble: { status, detail, id, wrongKey }, onRetry, again = "Try again" }) {
  const kind = wrongKey ? "wrong key" : status;
  return html`
    <div class=${status === 401 ? "note" : "note bad"} role="alert">
      <strong>${status ? (TITLES[kind] ?? "The server refused this") : "No answer"}</strong>
      <p>${HINTS[kind] ?? detail}</p>
      ${
        WORTH_A_RETRY.includes(status) &&
        html`<button type="button" class="button" onClick=${onRetry}>${again}</button>`
      }
      ${status && html`<p class="hint">Status ${status}${id && html`, request <code>${id}</code>`}</p>`}
    </div>
  `;
}

// What takes long is said to be under way, and for how long.
export function Waiting({ characters, explain, onStop }) {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSeconds((before) => before + 1), 1000);
    return () => clearInterval(timer);
  }, []);
  const long = characters > LONG_CHARACTERS;
  const why = explain ? "To see what answers rest on, the text is read again without each part." : null;
  const what = long ? `Reading ${characters.toLocaleString("en")} characters` : "Waiting for the answers";
  return html`
    <div class="waiting">
      <p><b>${what}</b> <span class="hint">${seconds > 0 && plural(seconds, "second")}</span></p>
      <div class="progress" role="progressbar" aria-label=${what}><span></span></div>
      <p class="hint">${why ?? (long ? "A long text takes a while." : "The server may be busy with others.")}</p>
      <button type="button" class="button" onClick=${onStop}>Stop</button>
    </div>
  `;
}

// Where it says what the answer rests on, pointer, finger or focus on it mark that in the text.
function Answer({ question, answer, asked, explain, marked, onMark, onOutcome }) {
  const unsure = isUnsure(answer);
  const evidence = explain && answer.evidence && `${question.key}-evidence`;
  const marking = evidence && {
    tabIndex: 0,
    "aria-labelledby": `${question.key}-answer`,
    "aria-describedby": evidence,
    "aria-current": marked ? "true" : null,
    onPointerEnter: onMark,
    onFocusCapture: onMark,
  };
  return html`
    <article class=${unsure ? "answer unsure" : "answer"} ...${marking}>
      <header>
        <h3 id=${`${question.key}-answer`}>${question.name}</h3>
        ${answer.truncated && html`<span class="badge">text cut</span>`}
        ${answer.profile && html`<span class="badge learnt" title="made with this profile">${answer.profile}</span>`}
        <span class=${`surety ${surety(answer).replace(" ", "-")}`}>${surety(answer)}</span>
      </header>
      <p class="verdict">${unsure && "Unsure: "}${headline(question, answer)}${
        question.type === "score" &&
        html` <small>expected level ${answer.score.toFixed(2)} of ${question.levels.length - 1}</small>`
      }</p>
      <${Bars} bars=${barsOf(question, answer)} />
      <p class="confidence">
        <span class="ring" style=${{ "--share": answer.confidence }}></span>
        <span><b>Confidence ${answer.confidence.toFixed(2)}</b>: ${reason(question, answer)}.</span>
      </p>
      ${evidence && html`<${Evidence} id=${evidence} asked=${asked} answer=${answer} />`}
      ${onOutcome && html`<${Outcome} question=${question} answer=${answer} onOutcome=${onOutcome} />`}
    </article>
  `;
}

const Bars = ({ bars }) => html`
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
`;

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
      ${
        said
          ? html`<span role="status">${said}</span>`
          : html`
              <span>Is it right?</span>
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
            `
      }
    </p>
  `;
}

// The same in a sentence, for those who listen.
export function spoken(outcome) {
  if (outcome.detail) return outcome.detail;
  const { asked, reply, ms } = outcome;
  const parts = asked.questions.map((question) => {
    const answer = reply.answers[question.name];
    const unsure = isUnsure(answer) ? "unsure, " : "";
    return `${question.name}: ${unsure}${headline(question, answer)}, confidence ${answer.confidence.toFixed(2)}.`;
  });
  const cut = reply.warnings ? " The model could not read everything." : "";
  return `${plural(parts.length, "answer")} in ${milliseconds(ms)} ms.${cut} ${parts.join(" ")}`;
}
