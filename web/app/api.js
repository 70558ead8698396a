// Requests to the Mixer. A token is kept in memory only; a question that is not waited for any more is cancelled, at the server too.
import { useLayoutEffect, useRef, useState } from "./html.js";
import { withChanges } from "./location.js";

/** Why a request failed: what, and how it is mended, as the Mixer says. */
export class ApiError extends Error {
  /** @param {number} status 0 if the Mixer could not be reached  @param {any} problem the problem document, or whatever came in its place: it stays as `body` */
  constructor(status, problem) {
    super(problem.detail || problem.title || `status ${status}`);
    this.status = status;
    this.body = problem;
    this.code = problem.code || "";
    this.retryAfter = problem.retryAfter;
    this.position = problem.position;
    this.errors = problem.errors || [];
  }
}

let token = "";
const listeners = new Set();

/** @param {string} secret empty to forget it */
export function setToken(secret) {
  token = secret;
}

export const hasToken = () => token !== "";

/** Calls back when the Mixer asks who this is. */
export function onUnauthorized(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The address of a request, with its parameters. @param {string} path @param {RequestOptions["params"]} [params] */
export function address(path, params = {}) {
  const text = String(withChanges(new URLSearchParams(), params));
  return text ? `${path}?${text}` : path;
}

/** @param {string} path @param {RequestOptions} [options] @returns {Promise<any>} */
async function send(path, { params, method = "GET", body, type, accept = "application/json", signal, early } = {}) {
  const headers = { accept };
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = type || "application/json";
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  let response;
  try {
    response = await (early || fetch(address(path, params), { method, headers, body: text, signal, cache: "no-store" }));
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { detail: "the Mixer cannot be reached: is it running? It is tried again when you ask again." });
  }
  if (response.ok) return response;
  const answered = await response.json().catch(() => null);
  const problem = { detail: `${response.status} ${response.statusText}`, ...answered, retryAfter: response.headers.get("retry-after") };
  if (response.status === 401) for (const listener of listeners) listener();
  throw new ApiError(response.status, problem);
}

/** JSON as it was written: whole numbers that a JavaScript number cannot hold keep their digits, as texts. */
export function parse(text) {
  if (!/(^|[[:,])\s*-?\d{16}/.test(text)) return JSON.parse(text);
  const isRounded = (value, { source }) => typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(source);
  return JSON.parse(text, (_, value, context) => (context && isRounded(value, context) ? context.source : value));
}

/** What was answered, and how many characters it has. @param {Response} response @returns {Promise<{ answer: any, size: number }>} */
export async function read(response) {
  try {
    const text = response.status === 204 ? "null" : await response.text();
    return { answer: parse(text), size: text.length };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { detail: `the answer broke off: ${error.message}` });
  }
}

/** Asks, and returns the JSON that is answered. @param {string} path @param {RequestOptions} [options] @returns {Promise<any>} */
export async function request(path, options) {
  return (await read(await send(path, options))).answer;
}

/** Asks for page after page, and returns the first one with the rows of all. @param {number} most so many pages; `next_cursor` says that there are more */
async function requestPages(path, options, most) {
  const all = await request(path, options);
  for (let page = 1; page < most && all.next_cursor; page += 1) {
    const { data, next_cursor, partial } = await request(path, { ...options, params: { ...options.params, cursor: all.next_cursor } });
    for (const row of data) all.data.push(row);
    [all.next_cursor, all.partial] = [next_cursor, all.partial || partial];
  }
  return all;
}

/** Asks, and returns the answer as it comes, for downloads. */
export const open = send;

/** ms without a sign of life: the Mixer gives one every 15 s. */
const SILENT = 45_000;

/**
 * Follows server-sent events until it is cancelled or the stream ends. One that is silent for too long is ended as if it was cancelled: who
 * does not hear that a connection is gone waits for ever.
 * @param {string} path @param {{ params?: any, signal: AbortSignal, opened?: () => void }} options `opened` is called when the stream begins
 * @param {(event: string, data: string, id: string) => void} each `id` is the place behind the event, from which a stream goes on;
 *   the event `place` says nothing else
 */
export async function follow(path, { params, signal, opened }, each) {
  const quiet = new AbortController();
  const heard = (awaited) => {
    const timer = setTimeout(() => quiet.abort(), SILENT);
    return awaited.finally(() => clearTimeout(timer));
  };
  const response = await heard(send(path, { params, signal: AbortSignal.any([signal, quiet.signal]), accept: "text/event-stream" }));
  opened?.();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  /** @type {any} */
  let [kept, event, data, id] = ["", "message", [], ""];
  for (;;) {
    const { value, done } = await heard(reader.read());
    if (done) return;
    const lines = (kept + value).split("\n");
    kept = lines.pop();
    for (const line of lines) {
      if (line === "" || line === "\r") {
        if (data.length || id) each(data.length ? event : "place", data.join("\n"), id);
        [event, data] = ["message", []];
      } else if (line.startsWith("data:")) data.push(line.slice(line[5] === " " ? 6 : 5));
      else if (line.startsWith("event:")) event = line.slice(6).trim();
      else if (line.startsWith("id:")) id = line.slice(3).trim();
    }
  }
}

const shown = new Set();

/** Asks again for all that is shown: somebody may have changed it. */
export const refresh = () => shown.forEach((look) => look());

/** A number that grows with each `refresh`, and by its function. @returns {[number, () => void]} */
export function useRound() {
  const [round, setRound] = useState(0);
  const again = () => setRound((before) => before + 1);
  useLayoutEffect(() => {
    shown.add(again);
    return () => shown.delete(again);
  }, []);
  return [round, again];
}

/**
 * The answer to a question, asked again when `key` changes, and cancelled when nobody looks any more. What was answered before stays
 * until there is another answer.
 * @param {string | null} path none: nothing is asked  @param {{ method?: string, body?: any, pages?: number }} options `pages`: rows of so many
 */
export function useAnswer(path, params = {}, options = {}) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const [round, again] = useRound();
  const running = useRef(null);
  const key = JSON.stringify([path, params, options.method, options.body]);
  // It is asked before what waits for it is painted.
  useLayoutEffect(() => {
    if (!path) return setState({ data: null, error: null, loading: false });
    const cancel = new AbortController();
    running.current = () => {
      cancel.abort();
      setState((before) => ({ ...before, loading: false }));
    };
    setState((before) => ({ ...before, loading: true }));
    requestPages(path, { params, ...options, signal: cancel.signal }, options.pages || 1).then(
      (data) => setState({ data, error: null, loading: false }),
      (error) => error.name === "AbortError" || setState({ data: null, error, loading: false }),
    );
    return () => cancel.abort();
  }, [key, round]);
  return { ...state, again, cancel: () => running.current?.() };
}
