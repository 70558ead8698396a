// Long work in short slices, so that the page answers between them.

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
