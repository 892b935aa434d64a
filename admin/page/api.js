// Requests to the admin that served this page.

// The questions on which the stream of figures depends are given up after this time: a request that is never answered would end it for ever.
const patience_ms = 10_000;

let token = null;  // It allows changes; in memory only, so that closing the page forgets it.
let login = null;  // Shown when reading needs the token; set by main.js.
let waiting = null;  // The login that is under way.

export const hasToken = () => token !== null;
export const keepToken = (text) => { token = text; };
export const forgetToken = () => { token = null; };
export const onLogin = (show) => { login = show; };

// A request that the broker, or the way to it, refused; the message is a sentence.
export class Refusal extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export function sentence(text) {
  const trimmed = String(text).trim();
  if (!trimmed) return "The broker gave no reason.";
  // The first word stays as it is if it is a name, such as x-expire-at or a path.
  const begun = /^[a-z]+[ ,']/.test(trimmed) ? trimmed[0].toUpperCase() + trimmed.slice(1) : trimmed;
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

async function send(path, options) {
  try {
    return await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal("The broker does not answer. It may have stopped, or the connection is lost.", 0);
  }
}

async function refusal(answer) {
  let text = "";
  try {
    text = (await answer.json()).error ?? "";
  } catch {
    text = `the broker answered with status ${answer.status}`;
  }
  return new Refusal(sentence(text), answer.status);
}

// Asks for the token first if reading needs it.
async function read(path, { signal } = {}) {
  for (;;) {
    const answer = await send(path, { signal });
    if (answer.ok) return answer;
    if (answer.status !== 401 || !login) throw await refusal(answer);
    await logIn();
  }
}

// The JSON at a path.
export const get = async (path, options) => (await read(path, options)).json();

function logIn() {
  waiting ??= login().finally(() => { waiting = null; });
  return waiting;
}

// Returns when this page may read, as far as the broker can be asked.
export async function loggedIn() {
  try {
    const answer = await send("/session", { signal: AbortSignal.timeout(patience_ms) });
    if (answer.ok && (await answer.json()).reading === false) await logIn();
  } catch {
    // The broker does not answer: there is nothing to log in to.
  }
}

// Exchanges the token for a cookie that reads.
export async function postLogin(text) {
  const answer = await send("/login", {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ token: text }),
  });
  if (!answer.ok) throw await refusal(answer);
}

// Why a path is refused, as a sentence; null if it is not, or nobody answers.
export async function refusalOf(path) {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), patience_ms);
  try {
    const answer = await send(path, { signal: abort.signal });
    return answer.ok ? null : (await refusal(answer)).message;
  } catch {
    return null;
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

async function sendChange(method, path, body, signal) {
  const headers = { Authorization: `Bearer ${token ?? ""}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await send(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  if (answer.ok) return answer;
  if (answer.status === 401) {
    forgetToken();
    const { message } = await refusal(answer);
    throw new Refusal(message.startsWith("This token may only read")
      ? "This token may only read, so nothing was changed. Changes need the text of the file admin.token in the broker's data directory."
      : "The token is wrong, so nothing was changed. It is the text of the file admin.token in the broker's data directory.", 401);
  }
  const refused = await refusal(answer);
  // Another token may be allowed to.
  if (answer.status === 403 && /^(The role of the token|User:)/.test(refused.message)) forgetToken();
  throw refused;
}

export const change = async (method, path, body) => (await sendChange(method, path, body)).json();

// An answer of several lines of JSON: each is given to onLine as it comes; the last is returned.
async function lines(answer, onLine) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let last = null;
  const take = (text) => {
    if (!text.trim()) return;
    last = JSON.parse(text);
    onLine(last);
  };
  for (;;) {
    const { value, done } = await reader.read().catch((error) => {
      if (error.name === "AbortError") throw error;
      throw new Refusal("The connection to the broker was lost before it had answered.", 0);
    });
    if (done) break;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    whole.forEach(take);
  }
  take(rest);
  if (last === null) throw new Refusal("The broker closed the connection before it answered.", 0);
  return last;
}

export const changeInLines = async (method, path, body, { signal, onLine = () => {} } = {}) => lines(await sendChange(method, path, body, signal), onLine);
export const getInLines = async (path, { signal, onLine = () => {} } = {}) => lines(await read(path, { signal }), onLine);

export const recordPath = (record) =>
  `/delayed/${encodeURIComponent(record.topic)}/${encodeURIComponent(record.handle ?? record.id)}`;

export const query = (parameters) => {
  const text = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== ""));
  return text.size ? `?${text}` : "";
};
