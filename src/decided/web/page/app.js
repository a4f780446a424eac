// The page: a draft on one side, its answers on the other, and the code that asks the same.

import { Answers, Figures, spoken, Waiting } from "./answers.js";
import { problems, refusals } from "./checks.js";
import { Code } from "./code.js";
import { keyed, textsOf } from "./draft.js";
import { EXAMPLES } from "./examples.js";
import { useMarked } from "./evidence.js";
import { draftAt } from "./link.js";
import { Field, focusSoon, save } from "./parts.js";
import { html, render, useEffect, useRef, useState } from "./preact.js";
import { Questions } from "./questions.js";
import { address } from "./request.js";
import { Table } from "./table.js";
import { TextBox } from "./text.js";
import { plural } from "./verdict.js";
import { apiDocument, ask, askMany, servedModel, tell } from "./wire.js";

const UNSEEN_MS = 400; // an answer that comes within this needs no sign of waiting

function App() {
  const [{ draft, trouble, example, visit }, setPlace] = useState(() => ({ ...draftAt(location.hash), visit: 0 }));
  const [key, setKey] = useState("");
  const [needsKey, setNeedsKey] = useState(false);
  const [outcome, setOutcome] = useState(null);
  const [run, setRun] = useState(null);
  const [asking, setAsking] = useState(false);
  const [slow, setSlow] = useState(false);
  const [tried, setTried] = useState(false);
  const [open, setOpen] = useState(() => firstToEdit(draft));
  const [explain, setExplain] = useState(false);
  const [shown, setShown] = useState(null);
  const [said, say] = useState("");
  const [model, setModel] = useState(null);
  const underway = useRef(null);
  const setDraft = (changed) => setPlace({ draft: changed, visit });

  const found = problems(draft);
  const wrong = Object.fromEntries(found.filter(({ always }) => always || tried).map(({ at, text }) => [at, text]));

  // Ask about what stands there. Opening an example does so too, but moves nothing on the screen.
  const submit = async ({ quiet = false, explained = explain } = {}) => {
    underway.current?.abort();
    setTried(true);
    if (found.length) return showProblem(found[0]);
    const aborter = (underway.current = new AbortController());
    if (draft.format === "many") {
      return fill(aborter, { draft, texts: textsOf(draft), results: refusals(draft), ms: 0 }, quiet);
    }
    setRun(null);
    setAsking(true);
    setSlow(false);
    const timer = setTimeout(() => {
      setSlow(true);
      if (!quiet) showAnswers();
    }, UNSEEN_MS);
    aborter.signal.addEventListener("abort", () => clearTimeout(timer));
    const reply = await ask({ ...draft, explain: explained }, key.trim(), aborter.signal);
    clearTimeout(timer);
    if (aborter.signal.aborted) return;
    setAsking(false);
    setOutcome({ ...reply, asked: draft });
    say(spoken({ ...reply, asked: draft }));
    settle(reply.status, quiet);
  };

  // Ask about the texts of a run that have no answer yet.
  const fill = async (aborter, before, quiet) => {
    const began = performance.now() - before.ms;
    const results = [...before.results];
    const waiting = before.texts.map((text, index) => ({ text, index })).filter(({ index }) => !results[index]);
    const show = (more) => setRun({ ...before, results, trouble: null, ms: performance.now() - began, ...more });
    setOutcome(null);
    setAsking(true);
    show({ busy: true });
    if (!quiet) showAnswers();
    let frame = 0;
    const trouble = await askMany(before.draft, waiting, key.trim(), aborter.signal, (index, result) => {
      results[index] = result;
      frame ||= requestAnimationFrame(() => {
        frame = 0;
        if (underway.current === aborter) show({ busy: !aborter.signal.aborted });
      });
    });
    cancelAnimationFrame(frame);
    if (underway.current !== aborter) return;
    setAsking(false);
    show({ busy: false, trouble });
    say(trouble ? trouble.detail : `${plural(results.filter((result) => result?.reply).length, "text")} answered.`);
    settle(trouble?.status, quiet);
  };

  const settle = (status, quiet) => {
    if (status === 401) setNeedsKey(true);
    if (quiet) return;
    if (status === 401) focusSoon("key");
    else showAnswers();
  };
  const stop = () => {
    underway.current?.abort();
    setAsking(false);
    say("Stopped.");
  };
  const retry = () => {
    if (!run || run.draft !== draft) return submit();
    underway.current?.abort();
    fill((underway.current = new AbortController()), run);
  };
  const showProblem = ({ at, text, question }) => {
    say(text);
    if (question) setOpen(question);
    focusSoon(at);
  };
  // Answers that stand there are asked for again, with what they rest on.
  const onExplain = ({ target: { checked } }) => {
    setExplain(checked);
    const answers = outcome?.asked === draft ? Object.values(outcome.reply?.answers ?? {}) : [];
    if (checked && answers.some(({ evidence }) => !evidence)) submit({ quiet: true, explained: true });
  };
  const latest = useRef(null);
  latest.current = { submit, draft };

  // Leaving for an example keeps the draft in the history: the browser's back button brings it back.
  const follow = (event) => {
    underway.current?.abort();
    const kept = event.state?.questions && { draft: { ...keyed(event.state), file: event.state.file } };
    const place = kept ?? draftAt(location.hash);
    setPlace(({ visit }) => ({ ...place, visit: visit + 1 }));
    setAsking(false);
    setOutcome(null);
    setRun(null);
    setTried(false);
    setOpen(firstToEdit(place.draft));
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

  // An example comes with its answers. What a link brings is asked only when the reader says so.
  useEffect(() => {
    if (example && draft.state) submit({ quiet: true });
  }, [visit]);

  useEffect(() => {
    const shortcut = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) latest.current.submit();
    };
    addEventListener("popstate", follow);
    addEventListener("keydown", shortcut);
    return () => {
      removeEventListener("popstate", follow);
      removeEventListener("keydown", shortcut);
    };
  }, []);

  const marked = useMarked(explain ? outcome : null, shown, draft);
  const wrongKey = outcome?.wrongKey || run?.trouble?.wrongKey;
  return html`
    <${Head} current=${example} onExample=${leave} />
    <main class=${draft.format === "many" ? "many" : ""}>
      <div class="left">
        ${trouble && html`<p class="note bad" role="alert">${trouble}</p>`}
        <${TextBox} draft=${draft} onChange=${setDraft} example=${example && example !== "new"} marked=${marked}
          wrong=${wrong} say=${say} />
        <${Questions} draft=${draft} onChange=${setDraft} say=${say} open=${open} onOpen=${setOpen} wrong=${wrong} />
        <div class="ask">
          <button type="button" class="button main" id="ask" aria-busy=${asking ? "true" : null}
            onClick=${() => submit()}>
            ${asking ? "Asking…" : "Ask"}
          </button>
          <span class="hint keys"><kbd>Ctrl</kbd> <kbd>Enter</kbd></span>
          ${
            draft.format !== "many" &&
            html`<label class="explain"><input type="checkbox" checked=${explain} onChange=${onExplain} />
              Show what each answer rests on</label>`
          }
          ${
            needsKey &&
            html`<${Field} id="key" class="key" label="API key" type="password" value=${key} onText=${setKey}
              wrong=${wrongKey && "The server does not know this key."} aria-describedby="key-note"
              onKeyDown=${(event) => event.key === "Enter" && !event.ctrlKey && submit()} />
              <p id="key-note" class="unseen">Kept in this page alone, until it is closed.</p>`
          }
        </div>
      </div>
      <section class="block right" aria-labelledby="answers-title" aria-busy=${asking ? "true" : null}>
        <div class="title">
          <h2 id="answers-title">Answers</h2>
          ${outcome?.reply && !(asking && slow) && html`<${Figures} outcome=${outcome} />`}
        </div>
        ${
          run
            ? html`<${Table} run=${run} edited=${run.draft !== draft} onStop=${stop} onRetry=${retry} />`
            : asking && slow
              ? html`<${Waiting} characters=${draft.state.length} explain=${explain} onStop=${stop} />`
              : html`<${Answers} outcome=${outcome} asking=${asking} edited=${outcome && outcome.asked !== draft}
                  explain=${explain} marked=${marked?.key} onMark=${setShown}
                  onOutcome=${model?.outcomes && ((name, right) => tell(outcome.id, name, right, key.trim()))}
                  onRetry=${retry} />`
        }
      </section>
      <${Code} draft=${draft} explain=${explain} problems=${found} withKey=${needsKey} say=${say} />
    </main>
    <${Foot} model=${model} apiKey=${needsKey ? key.trim() : ""} say=${say} />
    <p class="unseen" role="status">${said}</p>
  `;
}

const Head = ({ current, onExample }) => html`
  <header class="head">
    <div class="brand">
      <img src="page/icon.svg" alt="" width="36" height="36" />
      <div>
        <h1>decided</h1>
        <p>Ask about any text. Get a decision, and how sure it is.</p>
      </div>
    </div>
    <nav aria-label="Examples">
      <span class="hint" aria-hidden="true">Examples</span>
      ${Object.entries(EXAMPLES).map(
        ([name, { title }]) => html`
          <a key=${name} class="button" href=${`#${name}`} onClick=${onExample}
            aria-current=${name === current ? "true" : null}>${title}</a>
        `,
      )}
    </nav>
  </header>
`;

function Foot({ model, apiKey, say }) {
  // A server with a key shows its API document to those who have it, which a plain link cannot carry.
  const open = async (event) => {
    if (!apiKey) return;
    event.preventDefault();
    const text = await apiDocument(apiKey);
    if (text) save("openapi.json", text, "application/json");
    say(text ? "openapi.json is saved." : "The server does not know this key.");
  };
  return html`
    <footer class="foot">
      <p>${model && html`Answered by <code>${model.name}</code>. ${model.description}`}</p>
      <nav aria-label="Documents">
        <a href="page/guide.html">Guide</a>
        <a href=${address("openapi.json")} onClick=${open}>API document</a>
      </nav>
    </footer>
  `;
}

// The card that stands open at first: none but one without a question.
const firstToEdit = ({ questions }) => questions.find(({ instructions }) => !instructions)?.key ?? null;

// On a narrow screen the answers stand below the editor.
function showAnswers() {
  const title = document.getElementById("answers-title");
  const { top } = title.getBoundingClientRect();
  if (top < 0 || top > innerHeight / 2) title.scrollIntoView();
}

render(html`<${App} />`, document.getElementById("page"));
