// The editor of a draft: the state, and a card for each question.

import { changed, newLevel, newOption, newQuestion, stateProblem, swapped, without } from "./draft.js";
import { Field, focusSoon, Icon, Pick, RowTools } from "./parts.js";
import { html } from "./preact.js";

const MAX_STATE_CHARACTERS = 200_000;
const TYPES = {
  choice: "one of several options",
  score: "a level on a scale, lowest first",
  noul: "the probability of a yes",
};

export function StateBox({ draft, onChange }) {
  const wrong = stateProblem(draft);
  const characters = [...draft.state].length;
  return html`
    <section class="block" aria-labelledby="state-title">
      <div class="title">
        <h2 id="state-title">State</h2>
        <span class="hint">what the questions are about</span>
        <${Pick}
          legend="Format of the state"
          name="format"
          value=${draft.format}
          choices=${[
            ["text", "Text"],
            ["json", "JSON"],
          ]}
          onPick=${(format) => onChange({ ...draft, format })}
        />
      </div>
      <${Field}
        id="state"
        class=${draft.format === "json" ? "code" : ""}
        label="State"
        unseen
        lines="7"
        spellcheck=${draft.format === "text"}
        value=${draft.state}
        aria-invalid=${wrong ? "true" : null}
        aria-describedby="state-notes"
        onText=${(state) => onChange({ ...draft, state })}
      />
      <p id="state-notes" class="notes">
        <span class="wrong">${wrong && `Not valid JSON: ${wrong}`}</span>
        <span class=${characters > MAX_STATE_CHARACTERS ? "wrong" : ""}>
          ${characters.toLocaleString("en")} of ${MAX_STATE_CHARACTERS.toLocaleString("en")} characters
        </span>
      </p>
    </section>
  `;
}

export function Questions({ draft, onChange, say }) {
  const list = useRows(draft.questions, (questions) => onChange({ ...draft, questions }), say, "questions-add");
  const add = () => {
    const question = newQuestion(draft.questions);
    onChange({ ...draft, questions: [...draft.questions, question] });
    focusSoon(`${question.key}-instructions`);
  };
  return html`
    <section class="block" aria-labelledby="questions-title">
      <div class="title">
        <h2 id="questions-title">Questions</h2>
      </div>
      <ol class="cards">
        ${draft.questions.map(
          (question, index) => html`
            <${Question}
              key=${question.key}
              question=${question}
              tools=${list.tools(question, index, `question ${question.name || index + 1}`)}
              onChange=${(change) => list.change(index, change)}
              say=${say}
            />
          `,
        )}
      </ol>
      <button type="button" class="button add" id="questions-add" onClick=${add}>
        <${Icon} shape="add" /> Add a question
      </button>
    </section>
  `;
}

function Question({ question, tools, onChange, say }) {
  const id = question.key;
  return html`
    <li class="card">
      <div class="card-head">
        <${Field} id=${`${id}-name`} class="name code" label="Question name" unseen value=${question.name}
          placeholder="name" spellcheck=${false} onText=${(name) => onChange({ name })} />
        <${Pick} legend=${`Type of ${question.name}`} name=${`${id}-type`} value=${question.type}
          choices=${Object.keys(TYPES).map((type) => [type, type])} onPick=${(type) => onChange({ type })} />
        ${tools}
      </div>
      <${Field} id=${`${id}-instructions`} label="Instructions" unseen lines="1" value=${question.instructions}
        placeholder="The question, in words" onText=${(instructions) => onChange({ instructions })} />
      <p class="hint">${TYPES[question.type]}</p>
      ${question.type === "choice" && html`<${Options} question=${question} onChange=${onChange} say=${say} />`}
      ${question.type === "score" && html`<${Levels} question=${question} onChange=${onChange} say=${say} />`}
      ${question.type === "noul" && html`<${Outcomes} question=${question} onChange=${onChange} />`}
    </li>
  `;
}

function Options({ question, onChange, say }) {
  const list = useRows(question.options, (options) => onChange({ options }), say, `${question.key}-add`);
  const add = () => list.add(newOption());
  return html`
    <ul class="rows" aria-label=${`Options of ${question.name}`}>
      ${question.options.map(
        (option, index) => html`
          <li class="row" key=${option.key} onKeyDown=${list.keys(index, add)}>
            <${Field} id=${`${option.key}-first`} class="code first" label=${`Option ${index + 1}`} unseen
              value=${option.name} placeholder="option" spellcheck=${false}
              onText=${(name) => list.change(index, { name })} />
            <${Field} id=${`${option.key}-more`} class="more" label=${`Description of option ${index + 1}`} unseen
              value=${option.description} placeholder="description, if the name is not enough"
              onText=${(description) => list.change(index, { description })} />
            ${list.tools(option, index, `option ${option.name || index + 1}`)}
          </li>
        `,
      )}
    </ul>
    <${AddRow} id=${`${question.key}-add`} onClick=${add}>Add an option<//>
  `;
}

function Levels({ question, onChange, say }) {
  const list = useRows(question.levels, (levels) => onChange({ levels }), say, `${question.key}-add`);
  const add = () => list.add(newLevel());
  return html`
    <ol class="rows" aria-label=${`Levels of ${question.name}`}>
      ${question.levels.map(
        (level, index) => html`
          <li class="row" key=${level.key} onKeyDown=${list.keys(index, add)}>
            <span class="number" aria-hidden="true">${index}</span>
            <${Field} id=${`${level.key}-first`} class="more" label=${`Level ${index}`} unseen value=${level.label}
              placeholder="label" onText=${(label) => list.change(index, { label })} />
            ${list.tools(level, index, `level ${level.label || index}`)}
          </li>
        `,
      )}
    </ol>
    <${AddRow} id=${`${question.key}-add`} onClick=${add}>Add a level<//>
  `;
}

const Outcomes = ({ question, onChange }) => html`
  <div class="rows">
    ${[
      ["yes", "Yes means"],
      ["no", "No means"],
    ].map(
      ([outcome, label]) => html`
        <${Field} key=${outcome} id=${`${question.key}-${outcome}`} class="outcome" label=${label}
          value=${question[outcome]} placeholder="optional" onText=${(text) => onChange({ [outcome]: text })} />
      `,
    )}
  </div>
`;

const AddRow = ({ id, onClick, children }) => html`
  <button type="button" class="button add quiet" id=${id} onClick=${onClick}>
    <${Icon} shape="add" /> ${children}
  </button>
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
  const remove = (index, what) => {
    const next = rows[index + 1] ?? rows[index - 1];
    onRows(without(rows, index));
    say(`Removed ${what}.`);
    focusSoon(next ? `${next.key}-remove` : addId);
  };
  return {
    change: (index, change) => onRows(changed(rows, index, change)),
    add: (row) => {
      onRows([...rows, row]);
      focusSoon(`${row.key}-first`);
    },
    // In a row, Enter goes on to the next one, a new one after the last; Alt and an arrow move the row.
    keys: (index, add) => (event) => {
      if (event.target.tagName !== "INPUT" || event.ctrlKey || event.metaKey) return;
      const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (event.altKey && by) move(index, by, `row ${index + 1}`, event.target.id);
      else if (event.key !== "Enter") return;
      else if (rows[index + 1]) focusSoon(`${rows[index + 1].key}-first`);
      else add();
      event.preventDefault();
    },
    tools: (row, index, what) => html`
      <${RowTools} row=${row} what=${what} index=${index} count=${rows.length}
        onMove=${(by) => move(index, by, what, `${row.key}-${by < 0 ? "up" : "down"}`)}
        onRemove=${() => remove(index, what)} />
    `,
  };
}
