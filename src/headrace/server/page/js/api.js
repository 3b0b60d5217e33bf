// The server's REST interface: one function that asks, and errors that say what was refused.

const BASE = "api/v1";
const OWN = new URL(import.meta.url).pathname.split("/").at(-3); // the digest of this page's files
let outdated = false;
const PATIENCE = 30_000; // milliseconds for an answer; a verb that asks the program may take a while

/** The server answered, and refused: `code`, `fact` and `hint` as it says them. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.fact);
    Object.assign(this, { status, code: error.code ?? "", fact: error.fact, hint: error.hint ?? "" });
  }
}

/** No answer came: the server is gone, or cannot be reached. */
export class Gone extends Error {}

export async function ask(method, path, body, { signal, patience = PATIENCE } = {}) {
  const limit = AbortSignal.timeout(patience);
  const request = {
    method,
    credentials: "same-origin",
    cache: "no-store",
    headers: { accept: "application/json" },
    signal: signal ? AbortSignal.any([signal, limit]) : limit,
  };
  if (body !== undefined) {
    request.headers["content-type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let response;
  let answer;
  try {
    response = await fetch(`${BASE}${path}`, request);
    outdated = (response.headers.get("headrace-page") ?? OWN) !== OWN;
    const text = await response.text();
    answer = text && isJson(response) ? JSON.parse(text) : null;
  } catch (error) {
    if (signal?.aborted) throw error; // the view has gone
    throw new Gone(error.name === "TimeoutError" ? "no answer in time" : "no answer");
  }
  if (response.ok) return answer;
  if (response.status === 502 || response.status === 503 || response.status === 504) {
    if (!answer?.error) throw new Gone(`HTTP ${response.status}`); // a proxy before a server that is gone
  }
  throw new Refused(response.status, answer?.error ?? { fact: `the server answered ${response.status}` });
}

/** Whether the server, upgraded since this page was loaded, has other files of the page. */
export const isOutdated = () => outdated;

const isJson = (response) => (response.headers.get("content-type") ?? "").includes("json");

export const get = (path, options) => ask("GET", path, undefined, options);
export const post = (path, body, options) => ask("POST", path, body ?? {}, options);
export const remove = (path, options) => ask("DELETE", path, undefined, options);

/** A path of names that may hold anything, and its query without what is not set. */
export function path(parts, query = {}) {
  const set = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(set.map(([name, value]) => [name, String(value)])).toString();
  return `/${parts.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const jobPath = (job, ...rest) => path(["jobs", job, ...rest]);
