// What is wrong with a draft, and at which field. A mistake (`always`) is marked while it is typed; what is only not
// filled in yet, after the first try to ask. And which of many texts cannot be asked.

import { textsOf } from "./draft.js";

export const MAX_CHARACTERS = 200_000;
export const MAX_QUESTIONS = 64;
export const EMPTY = { detail: "empty" };

export function problems(draft) {
  const found = stateProblems(draft);
  const { questions } = draft;
  if (!questions.length) found.push({ at: "questions-add", text: "Add a question.", always: true });
  if (questions.length > MAX_QUESTIONS)
    found.push({ at: "questions-add", text: `At most ${MAX_QUESTIONS} questions.`, always: true });
  const twice = repeated(questions.map((question) => question.name));
  for (const question of questions)
    for (const problem of questionProblems(question, twice)) found.push({ ...problem, question: question.key });
  return found;
}

// What makes a request another than the one that was meant: of two options with one name, one would be lost.
export const spoilsCode = ({ at, always }) => at !== "state" || always;

function stateProblems(draft) {
  const wrong = (text, always = false) => [{ at: "state", text, always }];
  if (draft.format === "many") return textsOf(draft).some(Boolean) ? [] : wrong("Paste some texts, one on each line.");
  if (!draft.state.trim()) return wrong("Write or paste a text first.");
  const characters = length(draft.state);
  if (characters > MAX_CHARACTERS)
    return wrong(`${(characters - MAX_CHARACTERS).toLocaleString("en")} characters too long.`, true);
  const invalid = draft.format === "json" && jsonProblem(draft.state);
  return invalid ? wrong(`This is not valid JSON: ${invalid}`, true) : [];
}

// For each of many texts a `{detail}` where it cannot be asked, in the words of `decided run`.
export const refusals = (draft) =>
  textsOf(draft).map((text, at) => {
    const problem = draft.file?.problems[at] || lengthProblem(text);
    if (problem) return { detail: problem };
    return text ? undefined : EMPTY;
  });

export function textsToAsk(draft) {
  const refused = refusals(draft);
  return textsOf(draft).filter((_, at) => !refused[at]);
}

function lengthProblem(text) {
  if (text.length <= MAX_CHARACTERS) return "";
  const characters = length(text);
  return characters > MAX_CHARACTERS && `state is too long: ${characters} characters, at most ${MAX_CHARACTERS}`;
}

function* questionProblems({ key, name, type, instructions, options, levels, yes, no }, twice) {
  if (twice.has(name)) yield { at: `${key}-name`, text: "Another question has this name.", always: true };
  else if (!name.trim()) yield { at: `${key}-name`, text: "Name the question." };
  if (type === "noul" && !instructions && !yes && !no) yield { at: `${key}-instructions`, text: "Write the question." };
  if (type === "choice") yield* rowProblems(key, options, ({ name }) => name, "option");
  if (type === "score") yield* rowProblems(key, levels, ({ label }) => label, "level");
}

function* rowProblems(question, rows, nameOf, what) {
  if (!rows.length) yield { at: `${question}-add`, text: `There is no ${what} yet.`, always: true };
  const twice = repeated(rows.map(nameOf));
  for (const row of rows) {
    const at = `${row.key}-first`;
    if (!nameOf(row).trim()) yield { at, text: `Name this ${what}, or remove it.` };
    else if (twice.has(nameOf(row))) yield { at, text: `Another ${what} has this name.`, always: true };
  }
}

function jsonProblem(text) {
  try {
    JSON.parse(text);
    return "";
  } catch (error) {
    return error.message;
  }
}

// In characters as the server counts them, not in the halves that JavaScript makes of some.
export const length = (text) => {
  let count = 0;
  for (const _ of text) count++;
  return count;
};

const repeated = (names) => new Set(names.filter((name, at) => name && names.indexOf(name) !== at));
