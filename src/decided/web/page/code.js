// The code that asks what the page asks, and a link that opens the page with it.

import { spoilsCode, textsToAsk } from "./checks.js";
import { fragmentOf } from "./link.js";
import { Copy, Pick } from "./parts.js";
import { html, useMemo, useState } from "./preact.js";
import { curl, json, MAX_STATES, python } from "./request.js";

const FORMS = {
  curl: { title: "curl", write: curl },
  python: { title: "Python", write: python },
  json: { title: "JSON", write: json },
};
const SHOWN_CHARACTERS = 20_000;

export function Code({ draft, explain, problems, withKey, say }) {
  const [form, setForm] = useState("curl");
  const spoilt = problems.find(spoilsCode);
  const write = () => (spoilt ? "" : FORMS[form].write({ ...draft, explain }, withKey));
  const text = useMemo(write, [form, draft, explain, withKey, spoilt]);
  const more = form !== "python" && draft.format === "many" && textsToAsk(draft).length > MAX_STATES;
  return html`
    <section class="block code-block" aria-labelledby="request-title">
      <div class="title">
        <h2 id="request-title">Use it in your code</h2>
        <${Pick} legend="Form of the code" name="form" value=${form}
          choices=${Object.entries(FORMS).map(([name, { title }]) => [name, title])} onPick=${setForm} />
      </div>
      ${
        spoilt
          ? html`<p class="empty">The code comes when the questions are complete. ${spoilt.text}</p>`
          : html`
              <pre class="request" tabindex="0" role="region" aria-label=${`The request as ${FORMS[form].title}`}>
                <code>${text.slice(0, SHOWN_CHARACTERS)}</code>
              </pre>
              ${text.length > SHOWN_CHARACTERS && html`<p class="hint">Shown in part. The copy is whole.</p>`}
              ${
                more &&
                html`<p class="hint">The first ${MAX_STATES} texts, all that one request takes. Python asks about all.</p>`
              }
              ${
                withKey &&
                form !== "json" &&
                html`<p class="hint">Reads the key from the environment variable <code>DECIDED_KEY</code>.</p>`
              }
            `
      }
      <div class="actions">
        ${
          !spoilt &&
          html`<${Copy} label=${`Copy ${FORMS[form].title}`} done="Copied" of=${text} text=${String} say=${say} />`
        }
        <${Copy} label="Copy link" done="Link copied" of=${draft} text=${linkTo} say=${say} />
        <span class="hint">
          The link carries ${draft.file ? "the questions, but not the file," : "text and questions"} after its #, which
          no server sees.
        </span>
      </div>
    </section>
  `;
}

function linkTo(draft) {
  history.replaceState(null, "", `#${fragmentOf(draft)}`);
  return location.href;
}
