// The rows of a question, page by page as the list is read; the Mixer cuts large cells.
import { PATH, question } from "./log_query.js";
import { usePages } from "./repeated.js";
import { CELL, readRows } from "./row_stream.js";

/** Rows of a page, of which the first is small, so that something is seen early. */
const [FIRST, PAGE] = [100, 500];
/** More rows, and characters of them, are not kept: whoever wants them narrows the question, or exports. */
const [MOST, MOST_SIZE] = [50_000, 64 << 20];

/** @param {URLSearchParams} params @param {boolean} active whether to ask at all */
export function useLogRows(params, active) {
  const asked = question(params);
  return usePages(active ? JSON.stringify(asked) : null, async (before, from, signal) => {
    const page = [];
    const wanted = { ...asked, limit: from ? PAGE : FIRST, cursor: from?.cursor, cells: CELL, positions: true };
    const { next: cursor, stats, partial, size } = await readRows(PATH, { params: wanted, signal }, (rows) => page.push(...rows));
    const [rows, sum] = [before.concat(page), size + (from?.size || 0)];
    const isFull = rows.length >= MOST || sum >= MOST_SIZE;
    return { rows, next: cursor && !isFull ? { cursor, size: sum } : null, isCut: Boolean(cursor) && isFull, stats, partial };
  });
}
