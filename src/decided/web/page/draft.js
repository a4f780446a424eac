// A draft is what the editor edits: a text, as such, as JSON or as many, and a list of questions. Lists rather than
// objects, because JavaScript would sort keys that look like numbers, and the order of options is the user's.

let last = 0;
const key = () => `k${++last}`;

const EMPTY = { name: "", type: "choice", instructions: "", yes: "", no: "" };
const FORMATS = ["text", "json", "many"];
const TYPES = ["choice", "score", "noul"];

export const newOption = () => ({ key: key(), name: "", description: "" });
export const newLevel = () => ({ key: key(), label: "" });
export const newQuestion = (taken) => {
  let number = taken.length + 1;
  while (taken.some((question) => question.name === `question_${number}`)) number++;
  return keyedQuestion({ name: `question_${number}` });
};

// Every row gets a key by which the page tells rows apart while they move; what is missing is filled in.
export const keyed = (draft) => ({
  format: FORMATS.includes(draft.format) ? draft.format : "text",
  state: String(draft.state ?? ""),
  questions: draft.questions.map(keyedQuestion),
});

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

// The texts of a draft with many: the lines that have one, or a column of the file, where an empty cell keeps its row.
export const textsOf = ({ file, state }) =>
  file
    ? file.rows.map((row) => (row[file.column] ?? "").trim())
    : state
        .split("\n")
        .map((line) => line.trim())
        .filter((line) => line);
