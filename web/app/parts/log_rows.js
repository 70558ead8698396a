// The rows of a question, page by page as the list is read; the Mixer cuts large cells.
import { useLayoutEffect, useRef, useState } from "../html.js";
import { PATH, question } from "./log_query.js";
import { readRows } from "./row_stream.js";

/** Rows of a page, of which the first is small, so that something is seen early; bytes of a cell. */
const [FIRST, PAGE, CELL] = [100, 500, 4_096];
/** More rows, and characters of them, are not kept: whoever wants them narrows the question, or exports. */
const [MOST, MOST_SIZE] = [50_000, 64 << 20];

const NONE = { rows: [], cursor: null, error: null, loading: false, stats: null, partial: null, size: 0, question: "", stopped: false };

/** @param {URLSearchParams} params @param {boolean} active whether to ask at all */
export function useLogRows(params, active) {
  const [state, setState] = useState({ ...NONE, loading: true });
  const [round, setRound] = useState(0);
  const asked = useRef(null);
  const key = JSON.stringify(question(params));
  const ask = (cursor) => {
    asked.current?.abort();
    const { signal } = (asked.current = new AbortController());
    const page = [];
    // An answer that was on its way when its question was left is not shown.
    const show = (next) => signal.aborted || setState(next);
    setState((before) => ({ ...before, loading: true, error: null }));
    readRows(PATH, { params: { ...JSON.parse(key), limit: cursor ? PAGE : FIRST, cursor, cells: CELL, positions: true }, signal }, (rows) => page.push(...rows)).then(
      ({ next, stats, partial, size }) =>
        show((before) => ({ ...NONE, stats, partial, rows: cursor ? before.rows.concat(page) : page, cursor: next, size: size + (cursor ? before.size : 0), question: key })),
      (error) => show((before) => ({ ...(cursor ? before : NONE), error, loading: false, question: key })),
    );
  };
  useLayoutEffect(() => {
    if (!active) return;
    ask(null);
    return () => asked.current.abort();
  }, [key, round, active]);
  const full = state.rows.length >= MOST || state.size >= MOST_SIZE;
  const more = () => {
    if (active && state.cursor && !state.loading && !state.error && state.question === key && !full) ask(state.cursor);
  };
  // Rows of another question do not stay, nor does the place where they go on.
  const cancel = () => {
    asked.current?.abort();
    setState((before) => (before.question === key ? { ...before, loading: false } : { ...NONE, stopped: true, question: key }));
  };
  // Asking for the page that failed goes on where the list ends.
  const again = () => (state.error && state.cursor ? ask(state.cursor) : setRound(round + 1));
  return { ...state, full, answered: !state.loading && state.question === key, more, cancel, again, refresh: () => setRound(round + 1) };
}
