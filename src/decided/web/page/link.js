// A draft in the fragment of an address. Browsers never send the fragment to a server.

import { keyed } from "./draft.js";
import { EXAMPLES } from "./examples.js";

const MARK = "draft=";
const NOT_CARRIED = ["key", "file"];

export function fragmentOf(draft) {
  const text = JSON.stringify(draft, (name, value) => (NOT_CARRIED.includes(name) ? undefined : value));
  const bytes = Array.from(new TextEncoder().encode(text), (byte) => String.fromCharCode(byte)).join("");
  return MARK + btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

const example = (name) => ({ draft: keyed(EXAMPLES[name].draft), example: name });

// The draft that the address names, or the first example; and what is wrong with the address, if anything.
export function draftAt(hash) {
  const fragment = hash.replace(/^#/, "");
  if (Object.hasOwn(EXAMPLES, fragment)) return example(fragment);
  if (!fragment.startsWith(MARK)) return example("triage");
  try {
    const bytes = atob(fragment.slice(MARK.length).replaceAll("-", "+").replaceAll("_", "/"));
    const text = new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes, (one) => one.charCodeAt(0)));
    return { draft: keyed(JSON.parse(text)) };
  } catch {
    return { ...example("triage"), trouble: "This link is damaged, so the first example is shown instead." };
  }
}
