// One statement at the Mixer: asked, awaited, cancelled.
import { ApiError, open, parse, read } from "../api.js";
import { useEffect, useRef, useState } from "../html.js";
import { parametersOf } from "./sql_tokens.js";

/** @typedef {{ q: string, explain: string, limit: number, given: Record<string, string> }} Asked */

/** What is asked, as the address has it. @returns {Asked} */
export function askedBy(params) {
  const q = params.get("q") || "";
  const given = {};
  for (const name of parametersOf(q)) if (params.has(`p.${name}`)) given[name] = params.get(`p.${name}`);
  return { q, explain: params.get("explain") || "", limit: Number(params.get("limit")) || 1_000, given };
}

/** The value of a parameter as it is typed: a number, true, false, null, a list or a text in quotes of JSON; all else is a text. */
export function valueOf(typed) {
  try {
    const value = parse(typed);
    return value && typeof value === "object" && !Array.isArray(value) ? typed : value;
  } catch {
    return typed;
  }
}

/** The EXPLAIN that stands before a statement: a line of its own, so that columns of mistakes stay as they are. */
const explainOf = ({ q, explain }) => (!explain || /^\s*explain\b/i.test(q) ? "" : `EXPLAIN${explain === "analyze" ? " ANALYZE" : ""}\n`);

/** The body of a request. */
export function bodyOf(asked, limit) {
  const given = Object.entries(asked.given).map(([name, typed]) => [name, valueOf(typed)]);
  return { query: explainOf(asked) + asked.q, parameters: given.length ? Object.fromEntries(given) : undefined, limit: asked.explain ? undefined : limit };
}

/** The mistake as it is in the statement without the line of EXPLAIN. */
function withoutLine(error, asked) {
  if (!error.position || !explainOf(asked)) return error;
  error.position.line -= 1;
  error.message = error.message.replace(/^line \d+/, `line ${error.position.line}`);
  return error;
}

async function ask(asked, signal) {
  const { answer, size } = await read(await open("/api/v1/sql", { method: "POST", body: bodyOf(asked, asked.limit), signal }));
  return { ...answer, bytes: size, failed: answer.error ? new ApiError(answer.error.status || 500, answer.error) : null };
}

const NOTHING = { asked: null, answer: null, error: null, running: null, cancelled: false };

/**
 * The answer to the statement that was last asked; another one cancels it.
 * @param {(asked: Asked, outcome: { rows?: number, ms: number, error?: string }) => void} ended
 */
export function useStatement(ended) {
  const [state, setState] = useState(NOTHING);
  const running = useRef(null);
  const cancel = () => running.current?.abort();
  const run = (asked) => {
    cancel();
    const own = new AbortController();
    running.current = own;
    const began = Date.now();
    setState((before) => ({ ...before, error: null, running: began, cancelled: false }));
    const outcome = (changes) => {
      if (running.current !== own) return;
      running.current = null;
      setState((before) => ({ ...before, running: null, ...changes }));
    };
    ask(asked, own.signal).then(
      (answer) => {
        outcome({ asked, answer, error: answer.failed });
        ended(asked, { rows: answer.data.length, ms: Date.now() - began, error: answer.failed?.message });
      },
      (error) => {
        const cancelled = error.name === "AbortError";
        outcome(cancelled ? { cancelled } : { asked, error: withoutLine(error, asked), answer: null });
        ended(asked, { ms: Date.now() - began, error: cancelled ? "cancelled" : error.message });
      },
    );
  };
  const clear = () => {
    cancel();
    setState(NOTHING);
  };
  useEffect(() => cancel, []);
  return { ...state, run, cancel, clear };
}
