// All of a row of which a list has only the beginnings of large cells: asked for where it is looked at.
import { useAnswer } from "../api.js";
import { moment } from "./micros.js";

/** Rows of one microsecond that are looked through. */
const SAME_TIME = 100;

/**
 * @param {any} row @param {number} at its time, µs @param {string} path @param {Record<string, any>} params @param {(other: any) => boolean} isSame
 * @returns {[any, any]} the row as far as it is known, and the answer
 */
export function useWhole(row, at, path, params, isSame) {
  const answer = useAnswer(row.cut ? path : null, { ...params, ...moment(at), limit: SAME_TIME });
  return [answer.data?.data.find(isSame) || row, answer];
}
