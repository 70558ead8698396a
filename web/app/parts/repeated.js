// Answers that change while somebody looks: asked again every few seconds while the page can be seen, and rows that come by pages.
import { request, useAnswer, useRound } from "../api.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { Waiting } from "./messages.js";

/** An answer that is asked for again. */
export function useRepeated(path, params = {}, every = 5_000) {
  const answer = useAnswer(path, params);
  const [shown, setShown] = useState(null);
  useEffect(() => {
    if (answer.data) setShown({ path, data: answer.data });
    // Neither while it is awaited, nor after somebody has cancelled it.
    if (!path || answer.loading || !(answer.data || answer.error)) return undefined;
    let timer;
    const later = () => {
      timer = setTimeout(() => (document.hidden ? later() : answer.again()), every);
    };
    later();
    return () => clearTimeout(timer);
  }, [answer.data, answer.error, answer.loading]);
  // What was known stays beside an error.
  return { ...answer, data: answer.data || (shown?.path === path ? shown.data : null) };
}

/** @type {any} */
const NOTHING = { rows: [], next: null, loading: true, error: null, partial: null, stopped: false };

/**
 * Rows that come page by page: asked afresh when `key` changes, the next ones when `more` is called. Of two questions only the later one is
 * answered, and `again` goes on where a page failed. Rows of a question do not stay below another one that is `stopped`.
 * @param {string | null} key none: nothing is asked
 * @param {(rows: any[], next: any, signal: AbortSignal) => Promise<{ rows: any[], next: any, partial?: string | null } & Record<string, any>>} ask `rows`: those before
 */
export function usePages(key, ask) {
  const [state, setState] = useState(NOTHING);
  const [round, again] = useRound();
  const asked = useRef(null);
  const cancel = () => {
    asked.current?.abort();
    setState((before) => ({ ...(before.key === key ? before : { ...NOTHING, key, stopped: true }), loading: false }));
  };
  const start = (rows, next) => {
    asked.current?.abort();
    const own = (asked.current = new AbortController());
    setState((before) => ({ ...before, loading: true, error: null, stopped: false }));
    ask(rows, next, own.signal).then(
      (answer) => own.signal.aborted || setState({ ...NOTHING, ...answer, key, loading: false }),
      (error) => own.signal.aborted || setState({ ...NOTHING, rows, next, error, key, loading: false }),
    );
  };
  useLayoutEffect(() => {
    if (key === null) return undefined;
    start([], null);
    return () => asked.current.abort();
  }, [key, round]);
  const goOn = () => start(state.rows, state.next);
  const more = () => state.next && !state.loading && !state.error && state.key === key && goOn();
  return { ...state, isCurrent: state.key === key, more, cancel, again: () => (state.error && state.next && state.key === key ? goOn() : again()) };
}

/** Rows of a list of the API. */
export function usePagedRows(path, params) {
  return usePages(JSON.stringify([path, params]), async (rows, cursor, signal) => {
    const { data, next_cursor: next, partial } = await request(path, { params: { ...params, cursor }, signal });
    return { rows: rows.concat(data), next, partial };
  });
}

/** What is said in place of rows: that they are awaited, that they are not any more, or why there are none. @param {{ pages: any, what: string, children?: any }} props */
export function NoRows({ pages: { loading, stopped, error, cancel, again }, what, children }) {
  if (loading) return html`<${Waiting} what=${what} cancel=${cancel} />`;
  if (stopped) return html`<p class="dim" role="status">Stopped. <button onClick=${again}>Ask again</button></p>`;
  return error ? null : children;
}

/** How far a list is; of one that is filtered here, that only what is loaded was looked through. @param {{ pages: ReturnType<typeof usePages>, shown: any[], what: string }} props */
export function ListState({ pages: { rows, next, loading, more, error }, shown, what }) {
  const state = shown.length < rows.length ? `${shown.length} of the ${rows.length} ${what} that are loaded${next ? "; the others were not looked through" : ""}` : `${rows.length} ${what}${next ? ", more as you scroll" : ""}`;
  return html`<p class="dim" role="status">${state}${loading ? " …" : ""} ${next && !loading && !error && shown.length < rows.length && html`<button onClick=${more}>Look through more</button>`}</p>`;
}
