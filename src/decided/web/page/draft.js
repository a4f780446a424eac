// A draft is what the editor edits: a state, as text or as JSON text, and a list of questions. Lists rather than
// objects, because JavaScript would sort keys that look like numbers, and the order of options is the user's.

let last = 0;
const key = () => `k${++last}`;

const EMPTY = { name: "", type: "choice", instructions: "", yes: "", no: "" };

export const newOption = () => ({ key: key(), name: "", description: "" });
export const newLevel = () => ({ key: key(), label: "" });
export const newQuestion = (taken) => {
  let number = taken.length + 1;
  while (taken.some((question) => question.name === `question_${number}`)) number++;
  return keyedQuestion({ name: `question_${number}` });
};

// Every row gets a key by which the page tells rows apart while they move; what is missing is filled in.
export const keyed = (draft) => ({
  format: draft.format === "json" ? "json" : "text",
  state: String(draft.state ?? ""),
  questions: draft.questions.map(keyedQuestion),
});

const TYPES = ["choice", "score", "noul"];

function keyedQuestion(given) {
  const question = filled(EMPTY, given);
  const rows = (list, blank) => (list?.length ? list.map((row) => filled(blank(), row)) : [blank(), blank()]);
  return {
    ...question,
    key: key(),
    type: TYPES.includes(question.type) ? question.type : "choice",
    options: rows(given.options, newOption),
    levels: rows(given.levels, newLevel),
  };
}

// The fields of a blank row, from what was given; a link may bring anything.
const filled = (blank, given) =>
  Object.fromEntries(
    Object.entries(blank).map(([name, empty]) => [name, name === "key" ? empty : String(given[name] ?? empty)]),
  );

export const changed = (rows, index, change) => rows.map((row, at) => (at === index ? { ...row, ...change } : row));
export const without = (rows, index) => rows.filter((_, at) => at !== index);
export const swapped = (rows, index, other) => {
  const next = [...rows];
  [next[index], next[other]] = [rows[other], rows[index]];
  return next;
};

// What cannot be put into JSON at all. Everything else is for the server to judge.
export function problems(draft) {
  const found = [];
  const wrong = stateProblem(draft);
  if (wrong) found.push(`The state is not valid JSON: ${wrong}`);
  if (!draft.questions.length) found.push("There is no question. Add one.");
  const names = draft.questions.map((question) => question.name);
  for (const name of repeated(names)) found.push(`Two questions have the name “${name}”.`);
  for (const question of draft.questions.filter((one) => one.type === "choice")) {
    for (const name of repeated(question.options.map((option) => option.name)))
      found.push(`Question “${question.name}” has two options with the name “${name}”.`);
  }
  return found;
}

export function stateProblem(draft) {
  if (draft.format === "text") return "";
  try {
    JSON.parse(draft.state);
    return "";
  } catch (error) {
    return error.message;
  }
}

const repeated = (names) => new Set(names.filter((name, at) => names.indexOf(name) !== at));
