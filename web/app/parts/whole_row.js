// All of a row of which a list has only the beginnings of large cells: asked for where it is looked at.
import { useAnswer } from "../api.js";
import { html } from "../html.js";
import { Answering } from "./messages.js";
import { moment } from "./micros.js";
import { CELL } from "./row_stream.js";

/** Rows of one microsecond that are looked through. */
export const SAME_TIME = 100;

/**
 * @param {any} row @param {number} at its time, µs @param {string} path @param {Record<string, any>} params @param {(other: any) => boolean} isSame
 * @returns {[any, any]} the row as far as it is known, and what is said until all of it is
 */
export function useWhole(row, at, path, params, isSame) {
  const answer = useAnswer(row.cut ? path : null, { ...params, ...moment(at), limit: SAME_TIME });
  const whole = row.cut && answer.data?.data.find(isSame);
  const missing = row.cut && answer.data && !answer.loading && !whole;
  return [whole || row, row.cut && (missing ? html`<p class="bad" role="status">All of it was not found among the first ${SAME_TIME} rows of its microsecond: only the first ${CELL / 1_024} KiB of long values are shown.</p>`
    : html`<${Answering} answer=${answer} what="Asking for all of it" />`)];
}

/** Whether a cell is all of what a list has the beginning of. An object that was cut is there as a text. */
const beginsWith = (whole, cut) => (typeof cut !== "string" ? JSON.stringify(whole) === JSON.stringify(cut) : typeof whole === "string" ? whole.startsWith(cut) : whole !== null && typeof whole === "object");

/** Whether a log record is the one of a list whose cells may be cut; both are of one microsecond. */
export function isSameLog(whole, row) {
  const cut = row.cut || {};
  return ["level", "entity_name"].every((key) => whole[key] === row[key]) && (cut.message ? whole.message.startsWith(row.message) : whole.message === row.message)
    && (cut.attributes ? Object.entries(row.attributes || {}).every(([key, value]) => beginsWith(whole.attributes?.[key], value)) : JSON.stringify(whole.attributes) === JSON.stringify(row.attributes));
}
