// The questions: a card for each, which opens to be edited.

import { changed, newLevel, newOption, newQuestion, swapped, without } from "./draft.js";
import { Field, focusSoon, Icon, Pick, RowTools, Wrong } from "./parts.js";
import { html } from "./preact.js";

const KINDS = {
  choice: { title: "Options", hint: "One of these options. A description helps where a name is not enough." },
  score: { title: "Scale", hint: "A level on this scale, the lowest first." },
  noul: { title: "Yes/No", hint: "Yes or no. Say what each means where that is not plain." },
};

// `wrong` has a message for the field of each id.
export function Questions({ draft, onChange, say, open, onOpen, wrong }) {
  const list = useRows(draft.questions, (questions) => onChange({ ...draft, questions }), say, "questions-add");
  const add = () => {
    const question = newQuestion(draft.questions);
    onChange({ ...draft, questions: [...draft.questions, question] });
    onOpen(question.key);
    focusSoon(`${question.key}-instructions`);
  };
  return html`
    <section class="block" aria-labelledby="questions-title">
      <div class="title">
        <h2 id="questions-title">Questions</h2>
        <button type="button" class="button quiet" id="questions-add" onClick=${add}>
          <${Icon} shape="add" /> Add a question
        </button>
      </div>
      <${Wrong}>${wrong["questions-add"]}<//>
      <ol class="cards">
        ${draft.questions.map((question, index) => {
          const toggle = () => onOpen(question.key === open ? null : question.key);
          return html`
            <li key=${question.key} class=${question.key === open ? "card open" : "card"}>
              <div class="card-head">
                <${Summary} question=${question} open=${question.key === open} onToggle=${toggle} />
                ${list.tools(question, index, `question ${question.name || index + 1}`, true)}
              </div>
              ${
                question.key === open
                  ? html`<${Question} question=${question} wrong=${wrong} say=${say}
                      onChange=${(change) => list.change(index, change)} />`
                  : html`<${Wrong}>${mistakesIn(question, wrong)}<//>`
              }
            </li>
          `;
        })}
      </ol>
    </section>
  `;
}

// What a closed card says about mistakes inside: the words are at their fields.
const mistakesIn = ({ key, options, levels }, wrong) =>
  [key, ...options.map((row) => row.key), ...levels.map((row) => row.key)].some((id) =>
    Object.keys(wrong).some((at) => at.startsWith(`${id}-`)),
  ) && "Something is missing here. Open it to see what.";

const Summary = ({ question, open, onToggle }) => html`
  <button type="button" class="card-open" id=${`${question.key}-open`} aria-expanded=${open ? "true" : "false"}
    onClick=${onToggle}>
    <${Icon} shape="open" />
    <span class="card-name">${question.name || "unnamed"}</span>
    <span class="card-kind">${KINDS[question.type].title}</span>
    ${!open && html`<span class="card-words">${question.instructions || "No question yet"}</span>`}
    ${!open && question.type !== "noul" && html`<span class="card-rows">${rowNames(question)}</span>`}
  </button>
`;

const rowNames = ({ type, options, levels }) =>
  (type === "choice" ? options.map(({ name }) => name) : levels.map(({ label }) => label)).filter(Boolean).join(" · ");

function Question({ question, onChange, say, wrong }) {
  const id = question.key;
  return html`
    <div class="card-body">
      <${Field} id=${`${id}-instructions`} label="Question" lines="1" value=${question.instructions}
        placeholder="Which team should handle this?" wrong=${wrong[`${id}-instructions`]}
        onText=${(instructions) => onChange({ instructions })} />
      <div class="kind">
        <${Pick} legend=${`Kind of answer to ${question.name}`} name=${`${id}-type`} value=${question.type}
          choices=${Object.entries(KINDS).map(([type, { title }]) => [type, title])}
          onPick=${(type) => onChange({ type })} />
        <p class="hint">${KINDS[question.type].hint}</p>
      </div>
      <${ROWS[question.type]} question=${question} onChange=${onChange} say=${say} wrong=${wrong} />
      <${Field} id=${`${id}-name`} class="name code" label="Name in the answers" value=${question.name}
        placeholder="team" spellcheck=${false} wrong=${wrong[`${id}-name`]} onText=${(name) => onChange({ name })} />
    </div>
  `;
}

function Options({ question, onChange, say, wrong }) {
  const list = useRows(question.options, (options) => onChange({ options }), say, `${question.key}-add`);
  const add = () => list.add(newOption());
  return html`
    <ul class="rows" aria-label=${`Options of ${question.name}`}>
      ${question.options.map(
        (option, index) => html`
          <li class="row" key=${option.key} onKeyDown=${list.keys(index, add, `option ${option.name || index + 1}`)}>
            <${Field} id=${`${option.key}-first`} class="code first" label=${`Option ${index + 1}`} unseen
              value=${option.name} placeholder="option" spellcheck=${false} wrong=${wrong[`${option.key}-first`]}
              onText=${(name) => list.change(index, { name })} />
            <${Field} id=${`${option.key}-more`} class="more" label=${`Description of option ${index + 1}`} unseen
              value=${option.description} placeholder="description (optional)"
              onText=${(description) => list.change(index, { description })} />
            ${list.tools(option, index, `option ${option.name || index + 1}`)}
          </li>
        `,
      )}
    </ul>
    <${AddRow} question=${question} onClick=${add} wrong=${wrong}>Add an option<//>
  `;
}

function Levels({ question, onChange, say, wrong }) {
  const list = useRows(question.levels, (levels) => onChange({ levels }), say, `${question.key}-add`);
  const add = () => list.add(newLevel());
  return html`
    <ol class="rows" aria-label=${`Levels of ${question.name}`}>
      ${question.levels.map(
        (level, index) => html`
          <li class="row" key=${level.key} onKeyDown=${list.keys(index, add, `level ${level.label || index}`)}>
            <span class="number" aria-hidden="true">${index}</span>
            <${Field} id=${`${level.key}-first`} class="more" label=${`Level ${index}`} unseen value=${level.label}
              placeholder="level" wrong=${wrong[`${level.key}-first`]}
              onText=${(label) => list.change(index, { label })} />
            ${list.tools(level, index, `level ${level.label || index}`)}
          </li>
        `,
      )}
    </ol>
    <${AddRow} question=${question} onClick=${add} wrong=${wrong}>Add a level<//>
  `;
}

const Outcomes = ({ question, onChange }) => html`
  <div class="rows">
    ${[
      ["yes", "Yes means"],
      ["no", "No means"],
    ].map(
      ([outcome, label]) => html`
        <${Field} key=${outcome} id=${`${question.key}-${outcome}`} class="meaning" label=${label}
          value=${question[outcome]} placeholder="optional" onText=${(text) => onChange({ [outcome]: text })} />
      `,
    )}
  </div>
`;

const ROWS = { choice: Options, score: Levels, noul: Outcomes };

const AddRow = ({ question, onClick, children, wrong }) => html`
  <div class="after-rows">
    <button type="button" class="button add quiet" id=${`${question.key}-add`} onClick=${onClick}>
      <${Icon} shape="add" /> ${children}
    </button>
    <span class="hint keys">
      <kbd>Alt</kbd> <kbd>↑</kbd> <kbd>↓</kbd> moves, <kbd>Alt</kbd> <kbd>Del</kbd> removes
    </span>
  </div>
  <${Wrong}>${wrong[`${question.key}-add`]}<//>
`;

// What every list can do: change, add, move and remove a row. The focus follows the row, and a move is said aloud.
function useRows(rows, onRows, say, addId) {
  const move = (index, by, what, focus) => {
    const other = index + by;
    if (!rows[other]) return;
    onRows(swapped(rows, index, other));
    say(`Moved ${what} to place ${other + 1} of ${rows.length}.`);
    focusSoon(focus);
  };
  const remove = (index, what, part) => {
    const next = rows[index + 1] ?? rows[index - 1];
    onRows(without(rows, index));
    say(`Removed ${what}.`);
    focusSoon(next ? `${next.key}-${part}` : addId);
  };
  return {
    change: (index, change) => onRows(changed(rows, index, change)),
    add: (row) => {
      onRows([...rows, row]);
      focusSoon(`${row.key}-first`);
    },
    // In a row, Enter goes on to the next one, a new one after the last; Alt with an arrow moves it, with Delete removes.
    keys: (index, add, what) => (event) => {
      if (event.target.tagName !== "INPUT" || event.ctrlKey || event.metaKey) return;
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (event.altKey && by) move(index, by, what, event.target.id);
      else if (event.altKey && ["Delete", "Backspace"].includes(event.key)) remove(index, what, "first");
      else if (event.key !== "Enter") return;
      else if (rows[index + 1]) focusSoon(`${rows[index + 1].key}-first`);
      else add();
      event.preventDefault();
    },
    tools: (row, index, what, stop) => html`
      <${RowTools} row=${row} what=${what} index=${index} count=${rows.length} stop=${stop}
        onMove=${(by) => move(index, by, what, `${row.key}-${by < 0 ? "up" : "down"}`)}
        onRemove=${() => remove(index, what, "remove")} />
    `,
  };
}
