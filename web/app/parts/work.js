// Work of a view that takes long: it shows its progress, can be stopped, and ends when nobody looks any more; in slices the page answers between.
import { useEffect, useLayoutEffect, useRef, useState } from "../html.js";

const IDLE = { value: null, error: null, progress: null };

/** Work that a press begins: one at a time. @returns `run(work)`, `stop()`, and `value`, `error`, `progress` (null while nothing runs) */
export function useJob() {
  const [state, setState] = useState(IDLE);
  const running = useRef(null);
  const stop = () => {
    running.current?.abort();
    setState(IDLE);
  };
  /** @param {(signal: AbortSignal, progress: (number: number) => void) => Promise<any>} work */
  const run = (work) => {
    running.current?.abort();
    const { signal } = (running.current = new AbortController());
    const tell = (changes) => signal.aborted || setState((before) => ({ ...before, ...changes }));
    setState({ ...IDLE, progress: 0 });
    work(signal, (progress) => tell({ progress })).then((value) => tell({ ...IDLE, value }), (error) => tell({ ...IDLE, error }));
  };
  useEffect(() => () => running.current?.abort(), []);
  return { ...state, run, stop };
}

/** Work that is done again when `key` changes; none while that is null. @param {string | null} key @param {Parameters<ReturnType<typeof useJob>["run"]>[0]} work */
export function useWork(key, work) {
  const job = useJob();
  const [round, setRound] = useState(0);
  useLayoutEffect(() => {
    if (key === null) job.stop();
    else job.run(work);
  }, [key, round]);
  return { ...job, again: () => setRound((before) => before + 1) };
}

/** The last value, as long as there is no other: kept while it is asked again. @param {any} value @param {any} [failed] nothing is kept beside an error */
export function useKept(value, failed) {
  const last = useRef(null);
  if (value || failed) last.current = value;
  return last.current;
}

/** What one slice may take, ms. */
const SLICE = 10;

const yieldToPage = () => (globalThis.scheduler?.yield ? globalThis.scheduler.yield() : new Promise((go) => setTimeout(go)));

/** A function to be awaited within a long loop: it lets the page go on when a slice is used up. @param {AbortSignal} [signal] ends the work */
export function slices(signal) {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < SLICE) return;
    await yieldToPage();
    signal?.throwIfAborted();
    began = performance.now();
  };
}
