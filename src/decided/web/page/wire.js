// From a draft to the request, as JSON, curl and Python; and the request sent.

const WIDTH = 96;
const BASE = new URL(".", document.baseURI); // so that the page also works under a path of a reverse proxy
export const ADDRESS = new URL("v1/systemone", BASE).href;

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
  const state = draft.format === "json" ? new Raw(draft.state.trim().replaceAll("\n", "\n  ")) : draft.state;
  const questions = draft.questions.map((question) => [question.name, definition(question)]);
  return laidOut(new Pairs(["state", state], ["questions", new Pairs(...questions)]), 0, true);
}

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

// A here-document: nothing in it needs escaping, whatever quotes the state has, and there is no limit on its length.
export const curl = (draft, withKey) =>
  `curl -s ${ADDRESS} \\
  -H 'Content-Type: application/json' \\
${withKey ? `  -H "Authorization: Bearer $DECIDED_KEY" \\\n` : ""}  --data-binary @- <<'JSON'
${json(draft)}
JSON
`;

export const python = (draft, withKey) =>
  `import json
${withKey ? "import os\n" : ""}import urllib.request

body = ${pythonic(json(draft))}
request = urllib.request.Request(
    "${ADDRESS}",
    data=json.dumps(body).encode(),
    headers={
        "Content-Type": "application/json",
${withKey ? `        "Authorization": f"Bearer {os.environ['DECIDED_KEY']}",\n` : ""}    },
)
with urllib.request.urlopen(request) as response:
    answers = json.load(response)["answers"]
for name, answer in answers.items():
    print(name, answer)
`;

// JSON is Python but for three words and one escape.
const WORDS = { true: "True", false: "False", null: "None" };
const pythonic = (text) =>
  text.replace(
    /"[^"\\]*(?:\\.[^"\\]*)*"|\b(?:true|false|null)\b/g,
    (token) => WORDS[token] ?? token.replace(/\\(.)/g, (pair, sign) => (sign === "/" ? "/" : pair)),
  );

// What the server said: `{reply, ms, id}`, or `{status, detail, id}` where it refused.
export async function ask(draft, key, signal) {
  const headers = headersFor(key);
  const began = performance.now();
  const response = await fetch(ADDRESS, { method: "POST", headers, body: json(draft), signal, cache: "no-store" });
  const id = response.headers.get("x-request-id");
  const reply = await response.json().catch(() => ({}));
  if (reply.answers) return { reply, ms: performance.now() - began, id };
  return { status: response.status, detail: reply.detail ?? "The reply is not one of this service.", id };
}

// What turned out to be right, told to a server that takes it; how that went, in words.
export async function tell(id, name, right, key) {
  const body = JSON.stringify({ request_id: id, outcomes: { [name]: right } });
  try {
    const response = await fetch(new URL("v1/outcomes", BASE), { method: "POST", headers: headersFor(key), body });
    return response.ok ? "Noted." : ((await response.json()).detail ?? "Not noted.");
  } catch {
    return "The server cannot be reached.";
  }
}

function headersFor(key) {
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = `Bearer ${asBytes(key)}`;
  return headers;
}

// A header carries bytes: a key beyond Latin letters goes as UTF-8.
const asBytes = (key) => Array.from(new TextEncoder().encode(key), (byte) => String.fromCharCode(byte)).join("");

export async function servedModel() {
  const response = await fetch(new URL("v1/models", BASE));
  return (await response.json()).models[0];
}
