// Small parts that the page uses more than once.

import { html, useState } from "./preact.js";

const SHAPES = {
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  remove: "M4.5 4.5l7 7m0-7l-7 7",
  add: "M8 3.5v9M3.5 8h9",
};

export const Icon = ({ shape }) => html`
  <svg class="icon" viewBox="0 0 16 16" aria-hidden="true"><path d=${SHAPES[shape]} /></svg>
`;

// One of a few: radio buttons, which brings the arrow keys with it.
export const Pick = ({ legend, value, choices, onPick, name }) => html`
  <fieldset class="pick">
    <legend class="unseen">${legend}</legend>
    ${choices.map(
      ([each, label]) => html`
        <label key=${each}>
          <input type="radio" name=${name} value=${each} checked=${each === value} onChange=${() => onPick(each)} />
          <span>${label}</span>
        </label>
      `,
    )}
  </fieldset>
`;

// A text field with its label, which may be for screen readers alone. It tells its new value.
export const Field = ({ id, label, unseen, lines, onText, class: kind, ...rest }) => html`
  <div class=${`field ${kind ?? ""}`}>
    <label for=${id} class=${unseen ? "unseen" : ""}>${label}</label>
    ${
      lines
        ? html`<textarea id=${id} rows=${lines} onInput=${(event) => onText(event.target.value)} ...${rest} />`
        : html`<input id=${id} autocomplete="off" onInput=${(event) => onText(event.target.value)} ...${rest} />`
    }
  </div>
`;

// Up, down, remove for one row of a list. A button at its end stays in the tab order: the focus must not get lost.
export const RowTools = ({ row, what, index, count, onMove, onRemove }) => html`
  <div class="tools">
    ${tool(row, "up", `Move up: ${what}`, index === 0, () => onMove(-1))}
    ${tool(row, "down", `Move down: ${what}`, index === count - 1, () => onMove(1))}
    ${tool(row, "remove", `Remove: ${what}`, false, onRemove)}
  </div>
`;

const tool = (row, shape, label, off, onClick) => html`
  <button
    type="button"
    class="tool"
    id=${`${row.key}-${shape}`}
    aria-label=${label}
    title=${label}
    aria-disabled=${off ? "true" : null}
    onClick=${() => off || onClick()}
  >
    <${Icon} shape=${shape} />
  </button>
`;

export const focusSoon = (id) => requestAnimationFrame(() => document.getElementById(id)?.focus());

// A button that copies a text made of something, and says so until that has changed.
export function Copy({ label, done, of, text, say }) {
  const [copied, setCopied] = useState(null);
  const onClick = async () => {
    await copy(text(of));
    setCopied(of);
    say(`${done}.`);
  };
  const shown = copied === of ? `✓ ${done}` : label;
  return html`<button type="button" class="button" onClick=${onClick}>${shown}</button>`;
}

// The clipboard of a page that came over plain HTTP from another machine is closed to scripts; the old way is not.
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const before = document.activeElement;
  const box = Object.assign(document.createElement("textarea"), { value: text, className: "unseen" });
  document.body.append(box);
  box.select();
  document.execCommand("copy");
  box.remove();
  before?.focus();
}
