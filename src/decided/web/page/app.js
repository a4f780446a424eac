// The page: a draft on one side, its answers and its request on the other.

import { Answers, spoken } from "./answers.js";
import { keyed, problems } from "./draft.js";
import { Questions, StateBox } from "./editor.js";
import { EXAMPLES } from "./examples.js";
import { draftAt, fragmentOf } from "./link.js";
import { Copy, Field, focusSoon, Pick } from "./parts.js";
import { html, render, useEffect, useMemo, useRef, useState } from "./preact.js";
import { ask, curl, json, python, servedModel, tell } from "./wire.js";

const FORMS = {
  curl: { title: "curl", write: curl },
  python: { title: "Python", write: python },
  json: { title: "JSON", write: json },
};
const SHOWN_CHARACTERS = 20_000;

function App() {
  const [{ draft, trouble, example }, setPlace] = useState(() => draftAt(location.hash));
  const [key, setKey] = useState("");
  const [outcome, setOutcome] = useState(null);
  const [asking, setAsking] = useState(false);
  const [said, say] = useState("");
  const [model, setModel] = useState(null);
  const underway = useRef(null);
  const setDraft = (changed) => setPlace({ draft: changed });

  const submit = async () => {
    underway.current?.abort();
    const wrong = problems(draft);
    const aborter = (underway.current = new AbortController());
    setAsking(true);
    const found = wrong.length ? { detail: wrong } : await answered(draft, key.trim(), aborter.signal);
    if (aborter.signal.aborted) return;
    setAsking(false);
    setOutcome({ ...found, asked: draft });
    say(spoken({ ...found, asked: draft }));
    if (found.status === 401) focusSoon("key");
    else showAnswers();
  };
  const keyRefused = outcome?.status === 401;
  const latest = useRef(submit);
  latest.current = submit;

  // Leaving for an example keeps the draft in the history: the browser's back button brings it back.
  const follow = (event) => {
    setPlace(event.state?.questions ? { draft: keyed(event.state) } : draftAt(location.hash));
    setOutcome(null);
  };
  const leave = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    history.replaceState(draft, "");
    history.pushState(null, "", event.currentTarget.hash);
    follow({});
    say(`Example ${event.currentTarget.textContent}.`);
  };

  useEffect(() => void servedModel().then(setModel, () => {}), []);

  useEffect(() => {
    const shortcut = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) latest.current();
    };
    addEventListener("popstate", follow);
    addEventListener("keydown", shortcut);
    return () => {
      removeEventListener("popstate", follow);
      removeEventListener("keydown", shortcut);
    };
  }, []);

  return html`
    <${Head} model=${model} current=${example} onExample=${leave} />
    <main>
      <div class="left">
        ${trouble && html`<p class="note bad" role="alert">${trouble}</p>`}
        <${StateBox} draft=${draft} onChange=${setDraft} />
        <${Questions} draft=${draft} onChange=${setDraft} say=${say} />
        <div class="ask">
          <button type="button" class="button main" id="ask" aria-busy=${asking ? "true" : null} onClick=${submit}>
            ${asking ? "Asking…" : "Ask"}
          </button>
          <span class="hint keys"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>
          <${Field} id="key" class="key" label="API key" type="password" value=${key} onText=${setKey}
            placeholder="if the server has one" aria-describedby="key-note"
            aria-invalid=${keyRefused ? "true" : null} />
          <p id="key-note" class=${keyRefused ? "wrong" : "unseen"}>
            ${keyRefused ? "The server asks for a valid key." : "Kept in this page alone, until it is closed."}
          </p>
        </div>
      </div>
      <div class="right">
        <section class="block" aria-labelledby="answers-title">
          <div class="title"><h2 id="answers-title">Answers</h2></div>
          <${Answers} outcome=${outcome} edited=${outcome && outcome.asked !== draft}
            onOutcome=${model?.outcomes && ((name, right) => tell(outcome.id, name, right, key.trim()))} />
        </section>
        <${Request} draft=${draft} withKey=${key.trim() !== ""} say=${say} />
      </div>
    </main>
    <p class="unseen" role="status">${said}</p>
  `;
}

function Head({ model, current, onExample }) {
  return html`
    <header class="head">
      <div>
        <h1>decided</h1>
        <p class="hint">${model && html`<code>${model.name}</code> ${model.description}`}</p>
      </div>
      <nav aria-label="Examples">
        ${Object.entries(EXAMPLES).map(
          ([name, { title }]) => html`
            <a key=${name} class="button" href=${`#${name}`} onClick=${onExample}
              aria-current=${name === current ? "true" : null}>${title}</a>
          `,
        )}
      </nav>
    </header>
  `;
}

function Request({ draft, withKey, say }) {
  const [form, setForm] = useState("curl");
  const text = useMemo(() => FORMS[form].write(draft, withKey), [form, draft, withKey]);
  return html`
    <section class="block" aria-labelledby="request-title">
      <div class="title">
        <h2 id="request-title">Request</h2>
        <${Pick} legend="Form of the request" name="form" value=${form}
          choices=${Object.entries(FORMS).map(([name, { title }]) => [name, title])} onPick=${setForm} />
      </div>
      <pre class="request" tabindex="0" role="region" aria-label=${`The request as ${FORMS[form].title}`}>
        <code>${text.slice(0, SHOWN_CHARACTERS)}</code>
      </pre>
      ${text.length > SHOWN_CHARACTERS && html`<p class="hint">Shown in part. The copy is whole.</p>`}
      ${
        withKey &&
        form !== "json" &&
        html`<p class="hint">Reads the key from the environment variable <code>DECIDED_KEY</code>.</p>`
      }
      <div class="actions">
        <${Copy} label=${`Copy ${FORMS[form].title}`} done="Copied" of=${text} text=${String} say=${say} />
        <${Copy} label="Copy link" done="Link copied" of=${draft} text=${linkTo} say=${say} />
        <span class="hint">The link carries state and questions after its #, which no server sees.</span>
      </div>
    </section>
  `;
}

// On a narrow screen the answers stand below the editor.
function showAnswers() {
  const title = document.getElementById("answers-title");
  if (title.getBoundingClientRect().top > innerHeight - 120) title.scrollIntoView();
}

function linkTo(draft) {
  history.replaceState(null, "", `#${fragmentOf(draft)}`);
  return location.href;
}

async function answered(draft, key, signal) {
  try {
    return await ask(draft, key, signal);
  } catch {
    return { detail: ["The server cannot be reached."] };
  }
}

render(html`<${App} />`, document.getElementById("page"));
