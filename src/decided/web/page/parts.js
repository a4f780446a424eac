// Small parts that the page uses more than once.

import { html, useState } from "./preact.js";

const SHAPES = {
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  remove: "M4.5 4.5l7 7m0-7l-7 7",
  add: "M8 3.5v9M3.5 8h9",
  open: "M4 6.5l4 4 4-4",
  file: "M4 2.5h5l3 3v8H4zM9 2.5v3h3",
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

// A text field with its label, which may be for screen readers alone, and with what is wrong with it. It tells its new
// value. `behind` is what shows through a box of lines.
export const Field = ({ id, label, unseen, lines, behind, onText, wrong, class: kind, ...rest }) => {
  const about = [rest["aria-describedby"], wrong && `${id}-wrong`].filter(Boolean).join(" ");
  const all = {
    ...rest,
    id,
    onInput: (event) => onText(event.target.value),
    "aria-invalid": wrong ? "true" : null,
    "aria-describedby": about || null,
  };
  return html`
    <div class=${`field ${kind ?? ""}`}>
      <label for=${id} class=${unseen ? "unseen" : ""}>${label}</label>
      ${
        lines
          ? html`<div class="sheet">${behind}<textarea rows=${lines} ...${all} /></div>`
          : html`<input autocomplete="off" ...${all} />`
      }
      <${Wrong} id=${`${id}-wrong`}>${wrong}<//>
    </div>
  `;
};

export const Wrong = ({ id, children }) => children && html`<p class="wrong" id=${id}>${children}</p>`;

// Up, down and remove for one of a list, seen where the pointer or the focus is. A question's are one stop of Tab, with
// arrows between them; an option's are none, for its fields have keys that do the same.
export const RowTools = ({ row, what, index, count, onMove, onRemove, stop }) => html`
  <div class="tools" role="toolbar" aria-label=${`Move or remove ${what}`} onKeyDown=${stop && arrows}>
    ${tool(row, "up", `Move up: ${what}`, index === 0, () => onMove(-1), stop)}
    ${tool(row, "down", `Move down: ${what}`, index === count - 1, () => onMove(1))}
    ${tool(row, "remove", `Remove: ${what}`, false, onRemove)}
  </div>
`;

const tool = (row, shape, label, off, onClick, stop) => html`
  <button
    type="button"
    class="tool"
    id=${`${row.key}-${shape}`}
    aria-label=${label}
    title=${label}
    tabindex=${stop ? null : "-1"}
    aria-disabled=${off ? "true" : null}
    onClick=${() => off || onClick()}
  >
    <${Icon} shape=${shape} />
  </button>
`;

function arrows(event) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (!by) return;
  const tools = [...event.currentTarget.children];
  tools[(tools.indexOf(event.target) + by + tools.length) % tools.length].focus();
  event.preventDefault();
}

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

export function save(name, text, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
