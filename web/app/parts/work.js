// Work of a view that takes long: it shows its progress, can be stopped, and ends when nobody looks any more.
import { useEffect, useRef, useState } from "../html.js";

/**
 * Work that is done again when `key` changes; none while that is null.
 * @param {string | null} key @param {(signal: AbortSignal, progress: (number: number) => void) => Promise<any>} work
 */
export function useWork(key, work) {
  const [state, setState] = useState({ value: null, error: null, progress: null });
  const cancel = useRef(null);
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (key === null) return setState({ value: null, error: null, progress: null });
    const asked = (cancel.current = new AbortController());
    setState({ value: null, error: null, progress: 0 });
    work(asked.signal, (progress) => !asked.signal.aborted && setState((before) => ({ ...before, progress }))).then(
      (value) => asked.signal.aborted || setState({ value, error: null, progress: null }),
      (error) => setState((before) => (error.name === "AbortError" ? before : { value: null, error, progress: null })),
    );
    return () => asked.abort();
  }, [key, round]);
  const stop = () => {
    cancel.current?.abort();
    setState({ value: null, error: null, progress: null });
  };
  return { ...state, stop, again: () => setRound(round + 1) };
}
