// An answer in words: what was decided, how sure that is, and what else it may be.

const UNSURE_BELOW = 0.5;
const SURE_FROM = 0.8;
const CONTENDERS = 3;

export const percent = (share) => `${(100 * share).toFixed(1)}%`;
export const plural = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

// The options in the user's order: their names, their keys on the wire, and their values as an outcome.
export function optionsOf({ type, options, levels }) {
  if (type === "noul")
    return [
      { name: "yes", key: "true", value: true },
      { name: "no", key: "false", value: false },
    ];
  if (type === "score") return levels.map(({ label }, at) => ({ name: label, key: String(at), value: at }));
  return options.map(({ name }) => ({ name, key: name, value: name }));
}

export function chosenOf({ type }, answer) {
  if (type === "noul") return answer.noul >= 0.5;
  return type === "score" ? answer.level : answer.choice;
}

// A bar for each option: options by probability, levels and yes and no in their own order.
export function barsOf(question, answer) {
  const chosen = chosenOf(question, answer);
  const bars = optionsOf(question).map(({ name, key, value }) => ({
    name: question.type === "score" ? `${value} · ${name}` : name,
    share: answer.probabilities[key],
    top: value === chosen,
  }));
  return question.type === "choice" ? bars.sort((one, other) => other.share - one.share) : bars;
}

// A profile knows from labels whether an answer suffices; else the confidence tells.
export const isUnsure = (answer) =>
  answer.decided === undefined ? answer.confidence < UNSURE_BELOW : !answer.decided;

export function surety(answer) {
  if (isUnsure(answer)) return "unsure";
  return answer.confidence >= SURE_FROM ? "sure" : "fairly sure";
}

// The headline. An unsure one names what it may be, in the user's order.
export function headline(question, answer) {
  const options = optionsOf(question);
  const chosen = options.find(({ value }) => value === chosenOf(question, answer));
  if (!isUnsure(answer)) return chosen.name;
  if (question.type === "noul") return `rather ${chosen.name}`;
  const near = contenders(options, answer);
  if (near.length === 1) return `perhaps ${chosen.name}`;
  return `${near.slice(0, -1).join(", ")} or ${near.at(-1)}`;
}

// What a profile does not exclude, or all that come near the likeliest.
function contenders(options, { probabilities, set }) {
  const shares = options.map(({ key }) => probabilities[key]);
  const bound = Math.max(...shares) / 2;
  const near = options.filter(({ key }, at) => (set?.length > 1 ? set.includes(key) : shares[at] >= bound));
  const likeliest = [...near].sort((one, other) => probabilities[other.key] - probabilities[one.key]);
  return near.filter((option) => likeliest.indexOf(option) < CONTENDERS).map(({ name }) => name);
}

// Where the confidence comes from, in the numbers of this answer.
export function reason(question, answer) {
  const options = optionsOf(question);
  if (options.length === 1) return "there is only one to choose from";
  const share = Math.max(...options.map(({ key }) => answer.probabilities[key]));
  if (question.type === "score") return `${percent(share)} on one level, less how far the rest lies from it`;
  return `${percent(share)}, where a guess would have ${Math.round(100 / options.length)}%`;
}
