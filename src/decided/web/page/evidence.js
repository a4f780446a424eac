// What an answer rests on: the parts that the server names, found again in the text, marked there and listed.

import { html, useLayoutEffect, useMemo, useRef } from "./preact.js";
import { percent } from "./verdict.js";

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/g;

// The parts as places in the text of a draft, the strongest first. The server counts whole characters, JavaScript the
// halves that it makes of some.
function partsOf({ format, state }, evidence) {
  if (format === "json") {
    const places = placesOf(state);
    return evidence.map(({ pointer, effect }) => ({ ...places.get(pointer), effect, field: pathOf(pointer) }));
  }
  const characters = Array.from(state);
  const unit = (place) => characters.slice(0, place).join("").length;
  return evidence.map(({ start, end, effect }) => ({ start: unit(start), end: unit(end), effect }));
}

const pathOf = (pointer) =>
  pointer
    .split("/")
    .slice(1)
    .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"))
    .join(" › ");

// Where the values inside a JSON text stand, by their pointers. The text is known to be JSON.
function placesOf(text) {
  const tokens = [...text.matchAll(TOKEN)];
  const places = new Map();
  let next = 0;
  const read = (pointer) => {
    const first = tokens[next++];
    if (first[0] === "{" || first[0] === "[") {
      for (let index = 0; !["}", "]"].includes(tokens[next][0]); index++) {
        if (index) next++; // the comma
        const key = first[0] === "{" ? JSON.parse(tokens[next][0]) : String(index);
        if (first[0] === "{") next += 2; // the key and its colon
        read(`${pointer}/${key.replaceAll("~", "~0").replaceAll("/", "~1")}`);
      }
      next++;
    }
    const last = tokens[next - 1];
    places.set(pointer, { start: first.index, end: last.index + last[0].length });
  };
  read("");
  return places;
}

// The parts of one answer, `{name, parts}`, while the text is still the one that was asked about.
export function useMarked(outcome, shown, { format, state }) {
  const asked = outcome?.reply && outcome.asked;
  const same = asked && asked.format === format && asked.state === state;
  return useMemo(() => {
    const question = same && (asked.questions.find(({ key }) => key === shown) ?? asked.questions[0]);
    const evidence = question && outcome.reply.answers[question.name].evidence;
    return evidence ? { key: question.key, name: question.name, parts: partsOf(asked, evidence) } : null;
  }, [outcome, shown, same]);
}

// Marks behind the letters of a text box: the same text in the same place, seen only where it is marked.
export function Marks({ text, parts, box }) {
  const sheet = useRef(null);
  useLayoutEffect(() => {
    const field = document.getElementById(box);
    const follow = () => (sheet.current.scrollTop = field.scrollTop);
    const first = sheet.current.querySelector("[data-strongest]");
    if (first && (first.offsetTop < field.scrollTop || first.offsetTop > field.scrollTop + field.clientHeight / 2))
      field.scrollTop = first.offsetTop - field.clientHeight / 4;
    follow();
    field.addEventListener("scroll", follow);
    return () => field.removeEventListener("scroll", follow);
  }, [parts]);
  const inOrder = [...parts].sort((one, other) => one.start - other.start);
  const gap = (at) => text.slice(at ? inOrder[at - 1].end : 0, inOrder[at]?.start);
  // The last, empty line of a text has no height of its own outside a box.
  return html`
    <div class="marks" aria-hidden="true" ref=${sheet}>${inOrder.map(
      (part, at) => html`${gap(at)}<mark key=${part.start} data-strongest=${part === parts[0]}
        style=${{ "--share": part.effect }}>${text.slice(part.start, part.end)}</mark>`,
    )}${gap(inOrder.length)}${"\u200b"}</div>
  `;
}

// The same parts under the answer, in words: how likely it would be without each of them.
export function Evidence({ id, asked, answer }) {
  const parts = useMemo(() => partsOf(asked, answer.evidence), [asked, answer]);
  const share = Math.max(...Object.values(answer.probabilities));
  return html`
    <div class="evidence" id=${id}>
      <p>${parts.length ? "Rests on" : "Rests on no single part."}</p>
      <ol>
        ${parts.map(
          ({ start, end, effect, field }) => html`
            <li key=${start}>
              <span class="quote">
                ${field && html`<b>${field}</b> `}
                <mark style=${{ "--share": effect }}>${asked.state.slice(start, end)}</mark>
              </span>
              <span class="bar-share">${percent(Math.max(0, share - effect))} without it</span>
            </li>
          `,
        )}
      </ol>
    </div>
  `;
}
