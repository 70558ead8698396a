// Answers that change while somebody looks: asked again every few seconds while the page can be seen, and rows that come by pages.
import { request, useAnswer } from "../api.js";
import { useEffect, useState } from "../html.js";

/** An answer that is asked for again. */
export function useRepeated(path, params = {}, every = 5_000) {
  const answer = useAnswer(path, params);
  const [shown, setShown] = useState(null);
  useEffect(() => {
    if (answer.data) setShown({ path, data: answer.data });
    if (!path) return undefined;
    let timer;
    const later = () => {
      timer = setTimeout(() => (document.hidden ? later() : answer.again()), every);
    };
    later();
    return () => clearTimeout(timer);
  }, [answer.data, answer.error]);
  // What was known stays beside an error.
  return { ...answer, data: answer.data || (shown?.path === path ? shown.data : null) };
}

/** @type {{ rows: any[], next: string | null, loading: boolean, error: any, stopped: boolean, partial?: string }} */
const NOTHING = { rows: [], next: null, loading: true, error: null, stopped: false };

/** Rows of a list, the next ones when `more` is called; asked afresh when the question changes. */
export function usePagedRows(path, params) {
  const [state, setState] = useState(NOTHING);
  const [round, setRound] = useState(0);
  const [wanted, setWanted] = useState(0);
  const key = JSON.stringify([path, params]);
  const ask = (cursor, signal) =>
    request(path, { params: { ...params, cursor }, signal }).then(
      (answer) => setState((before) => ({ ...NOTHING, rows: cursor ? [...before.rows, ...answer.data] : answer.data, next: answer.next_cursor, loading: false, partial: answer.partial })),
      (error) => error.name === "AbortError" || setState((before) => ({ ...before, loading: false, error, rows: cursor ? before.rows : [], next: null })),
    );
  useEffect(() => {
    if (!path) return undefined;
    const cancel = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    ask(undefined, cancel.signal);
    return () => cancel.abort();
  }, [key, round]);
  useEffect(() => {
    if (!wanted || !state.next) return undefined;
    const cancel = new AbortController();
    setState((before) => ({ ...before, loading: true }));
    ask(state.next, cancel.signal);
    return () => cancel.abort();
  }, [wanted]);
  const more = () => state.next && !state.loading && setWanted(wanted + 1);
  return { ...state, more, again: () => setRound(round + 1) };
}
