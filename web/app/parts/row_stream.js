// Rows of a list as JSON lines, parsed in slices while they come: ten thousand rows block nothing. Large cells are cut (`whole_row.js` has all).
import { open, parse } from "../api.js";
import { slices } from "./work.js";

/** Rows that are parsed between two looks at the clock. */
const BATCH = 64;
/** Bytes of a cell in lists. */
export const CELL = 4_096;

/**
 * @param {string} path @param {{ params: Record<string, any>, signal: AbortSignal }} question
 * @param {(rows: any[]) => void} take called with some rows at a time
 * @returns {Promise<{ next: string | null, partial: string | null, stats: any, size: number }>} the cursor of what follows, why rows
 *   are missing, how the others were found, and how many characters they are
 */
export async function readRows(path, { params, signal }, take) {
  const response = await open(path, { params, signal, accept: "application/x-ndjson" });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const pause = slices(signal);
  let size = 0;
  for (let kept = "", done = false; !done;) {
    const read = await reader.read();
    done = read.done;
    size += read.value?.length || 0;
    const lines = (kept + (read.value || "")).split("\n");
    kept = done ? "" : lines.pop();
    for (let at = 0; at < lines.length; at += BATCH) {
      take(lines.slice(at, at + BATCH).filter(Boolean).map(parse));
      await pause();
    }
  }
  const told = (name) => response.headers.get(name);
  return { next: told("x-next-cursor"), partial: told("x-partial"), stats: JSON.parse(told("x-query-stats")), size };
}
