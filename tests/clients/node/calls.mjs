// Makes the calls given as JSON on standard input, one after another or together, and prints what came of each.
import { APIError, choice, noul, score, TypeSafeClient, TypeSafeError } from "@typesafe-ai/sdk";

const build = { noul, choice, score };

// A question given as [helper, ...arguments] is made with the helper of that name; an object is passed as it is.
const question = (value) => (Array.isArray(value) ? build[value[0]](...value.slice(1)) : value);

const request = ({ questions, ...rest }) => ({
  ...rest,
  questions: Object.fromEntries(Object.entries(questions).map(([name, value]) => [name, question(value)])),
});

const make = async (client, { ask, options, abortAfterMs }) => {
  const started = performance.now();
  const outcome = {};
  try {
    const signal = abortAfterMs === undefined ? undefined : AbortSignal.timeout(abortAfterMs);
    const pending = ask === undefined ? client.models.list() : client.systemOne(request(ask), { ...options, signal });
    const { data, requestId, response } = await pending.withResponse();
    Object.assign(outcome, { data, requestId, status: response.status });
  } catch (error) {
    if (!(error instanceof TypeSafeError)) throw error;
    Object.assign(outcome, { error: error.constructor.name, message: error.message });
    if (error instanceof APIError) {
      const { status, body, requestId, headers } = error;
      Object.assign(outcome, { status, body, requestId, retryAfter: headers.get("retry-after") });
    }
  }
  return { ...outcome, ms: performance.now() - started };
};

let input = "";
for await (const chunk of process.stdin.setEncoding("utf8")) input += chunk;
const { config, calls, together } = JSON.parse(input);
const client = new TypeSafeClient({ logLevel: "off", ...config });
const outcomes = [];
if (together) outcomes.push(...(await Promise.all(calls.map((one) => make(client, one)))));
else for (const one of calls) outcomes.push(await make(client, one));
process.stdout.write(JSON.stringify(outcomes));
