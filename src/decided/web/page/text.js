// What is asked about: one text, JSON, or many texts, as lines or from a file.

import { EMPTY, length, MAX_CHARACTERS, refusals } from "./checks.js";
import { decoded, longestColumn, parsed } from "./csv.js";
import { textsOf } from "./draft.js";
import { Marks } from "./evidence.js";
import { Field, focusSoon, Icon, Pick } from "./parts.js";
import { html, useRef, useState } from "./preact.js";
import { plural } from "./verdict.js";

const MAX_FILE_BYTES = 20_000_000;
const FORMATS = [
  ["text", "One text"],
  ["many", "Many texts"],
  ["json", "JSON"],
];
const PLACEHOLDERS = {
  text: "Paste a message, a review, a ticket …",
  many: "One text on each line. Or drop a CSV file here.",
  json: '{"subject": "…", "body": "…"}',
};

export function TextBox({ draft, onChange, example, marked, wrong, say }) {
  const [dragged, setDragged] = useState(false);
  const [trouble, setTrouble] = useState("");
  const take = async (file) => {
    setDragged(false);
    const found = await read(file);
    setTrouble(found.trouble ?? "");
    say(found.trouble ?? `${file.name} is read.`);
    if (!found.trouble) onChange({ ...draft, format: "many", ...found });
  };
  const drop = {
    onDragOver: (event) => {
      event.preventDefault();
      setDragged(true);
    },
    onDragLeave: (event) => event.currentTarget.contains(event.relatedTarget) || setDragged(false),
    onDrop: (event) => {
      event.preventDefault();
      const [file] = event.dataTransfer.files;
      if (file) take(file);
      else setDragged(false);
    },
  };
  const withFile = draft.format === "many" && draft.file;
  return html`
    <section class=${dragged ? "block dragged" : "block"} aria-labelledby="state-title" ...${drop}>
      <div class="title">
        <h2 id="state-title">Text</h2>
        ${example && html`<span class="badge plain wide">Example</span>`}
        <${Pick} legend="Format of the text" name="format" value=${draft.format} choices=${FORMATS}
          onPick=${(format) => onChange({ ...draft, format })} />
      </div>
      ${
        withFile
          ? html`<${FileCard} draft=${draft} onChange=${onChange} />`
          : html`<${Field} id="state" class=${draft.format === "json" ? "code" : ""} label="Text" unseen lines="7"
              spellcheck=${draft.format === "text"} value=${draft.state} placeholder=${PLACEHOLDERS[draft.format]}
              wrong=${wrong.state} aria-describedby="state-marked state-notes"
              behind=${marked && html`<${Marks} text=${draft.state} parts=${marked.parts} box="state" />`}
              onText=${(state) => onChange({ ...draft, state })} />`
      }
      <div class="notes">
        ${draft.format === "many" && html`<${ChooseFile} onFile=${take} />`}
        ${trouble && html`<span class="wrong" role="alert">${trouble}</span>`}
        <span id="state-marked">
          ${marked?.parts.length > 0 && html`Marked: what <b>${marked.name}</b> rests on`}
        </span>
        <span id="state-notes" class=${draft.format === "many" ? "" : "wide"}>${counted(draft)}</span>
      </div>
    </section>
  `;
}

function counted(draft) {
  if (draft.format === "many") return plural(refusals(draft).filter((refusal) => refusal !== EMPTY).length, "text");
  const characters = length(draft.state);
  const room = characters > MAX_CHARACTERS / 2 ? ` of ${MAX_CHARACTERS.toLocaleString("en")}` : "";
  return `${characters.toLocaleString("en")}${room} characters`;
}

function FileCard({ draft, onChange }) {
  const { file } = draft;
  const misfits = file.problems.filter(Boolean).length;
  const remove = () => {
    onChange({ ...draft, file: undefined });
    focusSoon("state");
  };
  return html`
    <div class="file">
      <${Icon} shape="file" />
      <p><b>${file.name}</b> <span class="hint">${plural(file.rows.length, "row")}${
        misfits > 0 && `, ${misfits.toLocaleString("en")} with too many or too few cells`
      }${
        file.encoding === "cp1252" ? ", read as Windows-1252: it is not UTF-8" : ""
      }</span></p>
      <button type="button" class="tool" aria-label="Remove the file" title="Remove the file" onClick=${remove}>
        <${Icon} shape="remove" />
      </button>
      <label for="column">Column with the text</label>
      <select id="column" onChange=${(event) => onChange({ ...draft, file: { ...file, column: +event.target.value } })}>
        ${file.columns.map(
          (name, at) => html`
            <option key=${at} value=${at} selected=${at === file.column}>${name || `column ${at + 1}`}</option>
          `,
        )}
      </select>
      <p class="hint sample">${textsOf(draft).find(Boolean)?.slice(0, 200) ?? "This column is empty."}</p>
    </div>
  `;
}

function ChooseFile({ onFile }) {
  const input = useRef(null);
  const chosen = (event) => {
    const [file] = event.target.files;
    event.target.value = ""; // so that the same file can be chosen again
    if (file) onFile(file);
  };
  return html`
    <button type="button" class="button quiet" onClick=${() => input.current.click()}>
      <${Icon} shape="file" /> Choose a CSV file
    </button>
    <input ref=${input} type="file" hidden aria-label="CSV file" accept=".csv,.tsv,.txt,text/csv,text/plain"
      onChange=${chosen} />
  `;
}

// A file as a part of a draft: a table, or lines in the box. `{trouble}` where it is neither.
async function read(file) {
  if (file.size > MAX_FILE_BYTES) return { trouble: "This file is larger than 20 MB. Use decided run for it." };
  if (/\.(xlsx?|ods|numbers)$/i.test(file.name)) return { trouble: "Save the spreadsheet as CSV first." };
  const { text, encoding } = decoded(new Uint8Array(await file.arrayBuffer()));
  if (text.includes("\0")) return { trouble: "This file is not a text. Choose a CSV or a text file." };
  if (/\.txt$/i.test(file.name)) return { state: text.trim(), file: undefined };
  const table = parsed(text);
  if (!table.rows.length) return { trouble: "This table has no rows below its first." };
  return { file: { name: file.name, encoding, ...table, column: longestColumn(table) } };
}
