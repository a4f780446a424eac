// From a draft to the request that asks it: as JSON, as a curl command and as a Python program.

import { textsToAsk } from "./checks.js";

const WIDTH = 96;
export const MAX_STATES = 256; // of one batch
const BASE = new URL(".", document.baseURI); // so that the page also works under a path of a reverse proxy
export const address = (path) => new URL(path, BASE).href;
export const SINGLE = address("v1/systemone");
export const BATCH = address("v1/systemone/batch");

// What JSON.stringify would not write: text that is JSON already, and an object as pairs, in their order.
class Raw {
  constructor(text) {
    this.text = text;
  }
}
class Pairs {
  constructor(...pairs) {
    this.pairs = pairs;
  }
}

// The JSON of a draft, laid out for reading. A JSON state is passed on as it was typed, so that no digit of a large
// number is lost on the way through JavaScript.
export function json(draft) {
  const questions = ["questions", questionsOf(draft)];
  if (draft.format === "many") return laidOut(new Pairs(["states", firstTexts(draft)], questions), 0, true);
  const state = draft.format === "json" ? new Raw(draft.state.trim().replaceAll("\n", "\n  ")) : draft.state;
  const explain = draft.explain ? [["explain", true]] : [];
  return laidOut(new Pairs(["state", state], questions, ...explain), 0, true);
}

// The body of a batch with some of the texts.
export const batchJson = (draft, texts) =>
  `{"states":${JSON.stringify(texts)},"questions":${laidOut(questionsOf(draft), 0)}}`;

const firstTexts = (draft) => textsToAsk(draft).slice(0, MAX_STATES);
const questionsOf = ({ questions }) => new Pairs(...questions.map((question) => [question.name, definition(question)]));

function definition({ type, instructions, options, levels, yes, no }) {
  const fields = [["type", type]];
  if (instructions) fields.push(["instructions", instructions]);
  if (type === "choice")
    fields.push(["criteria", new Pairs(...options.map(({ name, description }) => [name, description || null]))]);
  if (type === "score") fields.push(["criteria", levels.map(({ label }) => label)]);
  if (type === "noul" && (yes || no))
    fields.push(["criteria", new Pairs(["true", yes || null], ["false", no || null])]);
  return new Pairs(...fields);
}

// On one line where that fits, else each entry on a line of its own.
function laidOut(value, indent, broken = false) {
  if (value instanceof Raw) return value.text;
  const isObject = value instanceof Pairs;
  if (!isObject && !Array.isArray(value)) return JSON.stringify(value);
  const [start, end] = isObject ? "{}" : "[]";
  const entries = isObject
    ? value.pairs.map(([name, each]) => [`${JSON.stringify(name)}: `, each])
    : value.map((each) => ["", each]);
  const line = start + entries.map(([name, each]) => name + laidOut(each, 0)).join(", ") + end;
  if (!broken && line.length + indent <= WIDTH && !line.includes("\n")) return line;
  const pad = " ".repeat(indent + 2);
  const lines = entries.map(([name, each]) => pad + name + laidOut(each, indent + 2));
  return `${start}\n${lines.join(",\n")}\n${" ".repeat(indent)}${end}`;
}

// A here-document: nothing in it needs escaping, whatever quotes the text has, and there is no limit on its length.
export const curl = (draft, withKey) =>
  `curl -s ${draft.format === "many" ? BATCH : SINGLE} \\
  -H 'Content-Type: application/json' \\
${withKey ? `  -H "Authorization: Bearer $DECIDED_KEY" \\\n` : ""}  --data-binary @- <<'JSON'
${json(draft)}
JSON
`;

export const python = (draft, withKey) =>
  `${draft.format === "many" && draft.file ? "import csv\n" : ""}import json
${withKey ? "import os\n" : ""}import urllib.request

${draft.format === "many" ? askBatches(draft, withKey) : askOnce(draft, withKey)}`;

const askOnce = (draft, withKey) => `body = ${pythonic(json(draft))}
${pythonRequest(SINGLE, withKey)}
with urllib.request.urlopen(request) as response:
    answers = json.load(response)["answers"]
for name, answer in answers.items():
    print(name, answer)
`;

// All the texts, however many: a file is read again by the program, lines stand in it.
const askBatches = (draft, withKey) => `${draft.file ? pythonReader(draft.file) : pythonTexts(draft)}
questions = ${pythonic(laidOut(questionsOf(draft), 0, true))}
for start in range(0, len(texts), ${MAX_STATES}):
    batch = texts[start : start + ${MAX_STATES}]
    body = {"states": batch, "questions": questions}
${pythonRequest(BATCH, withKey).replace(/^/gm, "    ")}
    with urllib.request.urlopen(request) as response:
        results = json.load(response)["results"]
    for text, result in zip(batch, results):
        print(text, result["answers"])
`;

const pythonTexts = (draft) => `texts = ${pythonic(laidOut(textsToAsk(draft), 0, true))}`;

const pythonReader = ({ name, encoding, separator, column, columns }) =>
  `with open(${pythonic(JSON.stringify(name))}, encoding="${encoding}", newline="") as file:
    rows = list(csv.reader(file, delimiter=${pythonic(JSON.stringify(separator))}))[1:]  # the first has the names
texts = [row[${column}] for row in rows if len(row) == ${columns.length} and row[${column}].strip()]`;

const pythonRequest = (url, withKey) => `request = urllib.request.Request(
    "${url}",
    data=json.dumps(body).encode(),
    headers={
        "Content-Type": "application/json",
${withKey ? `        "Authorization": f"Bearer {os.environ['DECIDED_KEY']}",\n` : ""}    },
)`;

// JSON is Python but for three words and one escape.
const WORDS = { true: "True", false: "False", null: "None" };
const pythonic = (text) =>
  text.replace(
    /"[^"\\]*(?:\\.[^"\\]*)*"|\b(?:true|false|null)\b/g,
    (token) => WORDS[token] ?? token.replace(/\\(.)/g, (pair, sign) => (sign === "/" ? "/" : pair)),
  );
