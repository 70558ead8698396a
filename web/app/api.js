// Requests to the Mixer. A token is kept in memory only; a question that is not waited for any more is cancelled, at the server too.
import { useEffect, useRef, useState } from "./html.js";

/** Why a request failed: what, and how it is mended, as the Mixer says. */
export class ApiError extends Error {
  /** @param {number} status 0 if the Mixer could not be reached  @param {any} problem the problem document */
  constructor(status, problem) {
    super(problem.detail || problem.title || `status ${status}`);
    this.status = status;
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

/** Calls back when the Mixer asks who this is. @param {() => void} listener */
export function onUnauthorized(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The address of a request, with its parameters. @param {string} path @param {RequestOptions["params"]} [params] */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") query.append(key, String(one));
  }
  const text = query.toString();
  return text ? `${path}?${text}` : path;
}

/** @param {string} path @param {RequestOptions} [options] @returns {Promise<any>} */
async function send(path, { params, method = "GET", body, type, accept = "application/json", signal } = {}) {
  const headers = { accept };
  if (token) headers.authorization = `Bearer ${token}`;
  if (body !== undefined) headers["content-type"] = type || "application/json";
  const text = body === undefined || typeof body === "string" ? body : JSON.stringify(body);
  let response;
  try {
    response = await fetch(address(path, params), { method, headers, body: text, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { detail: "the Mixer cannot be reached: is it running? It is tried again when you ask again." });
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({ detail: `${response.status} ${response.statusText}` }));
  problem.retryAfter = response.headers.get("retry-after");
  if (response.status === 401) for (const listener of listeners) listener();
  throw new ApiError(response.status, problem);
}

/** Asks, and returns the JSON that is answered. @param {string} path @param {RequestOptions} [options] @returns {Promise<any>} */
export async function request(path, options) {
  const response = await send(path, options);
  return response.status === 204 ? null : response.json();
}

/** Asks, and returns the answer as it comes, for downloads. */
export const open = send;

/**
 * Follows server-sent events until it is cancelled or the stream ends.
 * @param {string} path @param {{ params?: any, signal?: AbortSignal, opened?: () => void }} options `opened` is called when the stream begins
 * @param {(event: string, data: string, id: string) => void} each `id` is the place behind the event, from which a stream goes on;
 *   the event `place` says nothing else
 */
export async function follow(path, { params, signal, opened }, each) {
  const response = await send(path, { params, signal, accept: "text/event-stream" });
  opened?.();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  /** @type {any} */
  let [kept, event, data, id] = ["", "message", [], ""];
  for (;;) {
    const { value, done } = await reader.read();
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

/**
 * The answer to a question, asked again when `key` changes, and cancelled when nobody looks any more. What was answered before stays
 * until there is another answer.
 * @param {string | null} path none: nothing is asked  @param {RequestOptions["params"]} [params] @param {RequestOptions} [options]
 */
export function useAnswer(path, params = {}, options = {}) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const [round, setRound] = useState(0);
  const running = useRef(null);
  const key = JSON.stringify([path, params, options.method, options.body]);
  useEffect(() => {
    if (!path) return setState({ data: null, error: null, loading: false });
    const cancel = new AbortController();
    running.current = () => {
      cancel.abort();
      setState((before) => ({ ...before, loading: false }));
    };
    setState((before) => ({ ...before, loading: true }));
    request(path, { params, ...options, signal: cancel.signal }).then(
      (data) => setState({ data, error: null, loading: false }),
      (error) => error.name === "AbortError" || setState({ data: null, error, loading: false }),
    );
    return () => cancel.abort();
  }, [key, round]);
  return { ...state, again: () => setRound(round + 1), cancel: () => running.current?.() };
}
