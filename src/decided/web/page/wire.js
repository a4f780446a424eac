// Talking to the server: one text, many texts as a stream, outcomes, the model, the API document.

import { address, BATCH, batchJson, json, MAX_STATES, SINGLE } from "./request.js";

const LINES = "application/x-ndjson";
const PART_CHARACTERS = 200_000; // of one batch: a mebibyte takes them in any language
const FIRST_PART = 8;
const QUICK_MS = 4000; // a batch that is answered within this may be followed by one of twice the size
const ATTEMPTS = 60;

export const UNREACHABLE = { detail: "The server cannot be reached. Is it running, and are you online?" };

// What the server said: `{reply, ms, id}`, or `{status, detail, id, wrongKey}` where it refused, without a status where
// it could not be reached. Null where the asking was given up.
export async function ask(draft, key, signal) {
  const began = performance.now();
  try {
    const response = await post(SINGLE, json(draft), key, signal);
    const reply = await response.json().catch(() => ({}));
    const id = response.headers.get("x-request-id");
    return reply.answers ? { reply, ms: performance.now() - began, id } : refusal(response, reply, key, id);
  } catch {
    return signal.aborted ? null : UNREACHABLE;
  }
}

// Asks about many texts, part by part, and tells of each as it is answered: `onRow(index, {reply} or {detail})`. Parts
// grow while the server is quick, and what took too long is asked again in smaller ones. Resolves to null at the end,
// or to what ended it before.
export async function askMany(draft, texts, key, signal, onRow) {
  let waiting = texts;
  let size = FIRST_PART;
  let attempts = ATTEMPTS;
  while (waiting.length && !signal.aborted) {
    const part = firstOf(waiting, size);
    const began = performance.now();
    const { late, trouble } = await askPart(draft, part, key, signal, onRow);
    if (trouble?.status === 503 && attempts-- > 0) await sleep(1000);
    else if (trouble) return trouble;
    else {
      waiting = [...late, ...waiting.slice(part.length)];
      if (late.length) size = Math.max(1, size >> 1);
      else if (performance.now() - began < QUICK_MS) size = Math.min(MAX_STATES, 2 * size);
    }
  }
  return null;
}

function firstOf(texts, size) {
  let characters = 0;
  const end = texts.slice(0, size).findIndex(({ text }) => (characters += text.length) > PART_CHARACTERS);
  return texts.slice(0, end < 0 ? size : Math.max(1, end));
}

async function askPart(draft, part, key, signal, onRow) {
  const late = [];
  try {
    const body = batchJson(draft, part.map(({ text }) => text));
    const response = await post(BATCH, body, key, signal, { accept: LINES });
    if (!response.headers.get("content-type")?.startsWith(LINES)) {
      const trouble = refusal(response, await response.json().catch(() => ({})), key);
      if (response.status !== 413 || part.length > 1) return { trouble };
      onRow(part[0].index, { detail: trouble.detail });
      return { late };
    }
    let answered = 0;
    for await (const line of linesOf(response.body)) {
      const { index, ...said } = JSON.parse(line);
      answered++;
      if (said.status === 504 && part.length > 1) late.push(part[index]);
      else onRow(part[index].index, said.answers ? { reply: said } : { detail: said.detail });
    }
    return answered === part.length ? { late } : { trouble: UNREACHABLE };
  } catch {
    return signal.aborted ? { late } : { trouble: UNREACHABLE };
  }
}

async function* linesOf(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    const lines = (rest + part.value).split("\n");
    rest = lines.pop();
    yield* lines;
  }
  if (rest) yield rest;
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const refusal = ({ status }, { detail = "The reply did not come from this service." }, key, id) => ({
  status,
  detail,
  id,
  wrongKey: status === 401 && key !== "",
});

// What turned out to be right, told to a server that takes it; how that went, in words.
export async function tell(id, name, right, key) {
  const body = JSON.stringify({ request_id: id, outcomes: { [name]: right } });
  try {
    const response = await post(address("v1/outcomes"), body, key);
    return response.ok ? "Noted." : ((await response.json()).detail ?? "Not noted.");
  } catch {
    return UNREACHABLE.detail;
  }
}

export async function servedModel() {
  const response = await fetch(address("v1/models"));
  return (await response.json()).models[0];
}

// The API document of a server that shows it only to those with a key; null where the key is wrong.
export async function apiDocument(key) {
  const response = await fetch(address("openapi.json"), { headers: headersFor(key) });
  return response.ok ? response.text() : null;
}

const post = (url, body, key, signal, headers = {}) =>
  fetch(url, { method: "POST", headers: { ...headersFor(key), ...headers }, body, signal, cache: "no-store" });

function headersFor(key) {
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = `Bearer ${asBytes(key)}`;
  return headers;
}

// A header carries bytes: a key beyond Latin letters goes as UTF-8.
const asBytes = (key) => Array.from(new TextEncoder().encode(key), (byte) => String.fromCharCode(byte)).join("");
