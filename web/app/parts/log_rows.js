// The rows of a question, page by page as the list is read.
import { request } from "../api.js";
import { useEffect, useRef, useState } from "../html.js";
import { PATH, question } from "./log_query.js";

/** Rows of a page; the first is small, so that something is seen early. */
const [FIRST, PAGE] = [100, 500];
/** More rows are not kept: whoever wants them narrows the question, or exports. */
export const MOST = 50_000;

const NONE = { rows: [], cursor: null, error: null, loading: true, stats: null, partial: "", question: "" };

/** @param {URLSearchParams} params @param {boolean} active whether to ask at all */
export function useLogRows(params, active) {
  const [state, setState] = useState(NONE);
  const [round, setRound] = useState(0);
  const asked = useRef(null);
  const key = JSON.stringify(question(params));
  const ask = (cursor) => {
    asked.current?.abort();
    const cancel = new AbortController();
    asked.current = cancel;
    setState((before) => ({ ...before, loading: true, error: null }));
    request(PATH, { params: { ...JSON.parse(key), limit: cursor ? PAGE : FIRST, cursor }, signal: cancel.signal }).then(
      ({ data, next_cursor, stats, partial = "" }) =>
        setState((before) => ({ rows: cursor ? [...before.rows, ...data] : data, cursor: next_cursor, error: null, loading: false, stats, partial, question: key })),
      (error) => error.name === "AbortError" || setState((before) => ({ ...(cursor ? before : NONE), error, loading: false, question: key })),
    );
  };
  useEffect(() => {
    if (!active) return;
    ask(null);
    return () => asked.current?.abort();
  }, [key, round, active]);
  const more = () => {
    if (active && state.cursor && !state.loading && !state.error && state.question === key && state.rows.length < MOST) ask(state.cursor);
  };
  const cancel = () => {
    asked.current?.abort();
    setState((before) => ({ ...before, loading: false, question: key }));
  };
  // Asking for the page that failed goes on where the list ends.
  const again = () => (state.error && state.cursor ? ask(state.cursor) : setRound(round + 1));
  return { ...state, answered: !state.loading && state.question === key, more, cancel, again, refresh: () => setRound(round + 1) };
}
