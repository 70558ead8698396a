// The question of the logs, as it stands in the address: for the API, as a command, and as SQL; and the rows that answer it.
import { bounds, timeConditions } from "../time_range.js";
import { commandOf, condition, literal } from "./question.js";
import { usePages } from "./repeated.js";
import { CELL, readRows } from "./row_stream.js";

export const PATH = "/api/v1/telemetry/logs";

/** Parameters that filter, or with `not.` before them leave out; all others of the address say how rows are shown. */
const KEYS = ["level", "min_level", "entity", "service", "gear_id", "rack_id", "flux_id", "trace_id", "q"];
const isFilter = (key) => KEYS.includes(key) || /^(not|attr)\./.test(key);
/** Those shown as chips: text and least level have fields of their own. */
export const isChip = (key) => isFilter(key) && key !== "q" && key !== "min_level";

/** The filters as parameters of the API. A key that is there twice stays so: the Mixer says that it cannot be. */
export function filters(params) {
  const found = {};
  for (const key of params.keys()) if (isFilter(key)) found[key] = params.getAll(key);
  return found;
}

/** Filters and time range. */
export const question = (params) => ({ ...filters(params), ...bounds(params) });

const SHORT = { entity_name: "entity", entity_id: "entity", message: "q", "attr.gear.id": "gear_id", "attr.resource.service.name": "service", "attr.trace_id": "trace_id" };

/** The parameter that filters by a field of a row; empty if there is none. */
export function parameterOf(field) {
  const key = SHORT[field] || field;
  return isFilter(key) ? key : "";
}

/** The parameter that leaves out rows by a field; empty if there is none. */
export function notParameterOf(field) {
  const key = field.startsWith("attr.") && field !== "attr.resource.service.name" ? field : parameterOf(field);
  return /^(level|entity|service|q|attr\..+)$/.test(key) ? `not.${key}` : "";
}

/** The parameter that leaves out what another one lets through, or the other way round; empty if there is none. */
export function oppositeOf(key) {
  if (key.startsWith("not.")) return isFilter(key.slice(4)) ? key.slice(4) : "";
  return notParameterOf({ gear_id: "attr.gear.id", trace_id: "attr.trace_id", rack_id: "entity" }[key] || key);
}

/** What changes in the address so that rows with a value of a field are left out. */
export function withoutValue(params, field, value) {
  const key = notParameterOf(field);
  return { [key]: [...new Set([...params.getAll(key), value])], row: null };
}

/** The question as a command. @param {boolean} [ranged] whether with the time range */
export const logsCommand = (params, ranged = true) => commandOf("platform logs", { ...(ranged ? bounds(params) : {}), ...filters(params) });

/** The `WHERE` of the question. @param {(value: any) => string} [bind] makes a parameter of a value; literals without it */
export function whereOf(params, bind = literal) {
  const parts = timeConditions(params, bind);
  for (const [key, values] of Object.entries(filters(params))) for (const value of values) if (value) parts.push(condition(key, value, bind));
  return parts.join(" AND ");
}

/** The question as SQL. */
export const sqlOf = (params) => `SELECT ts, level, entity_name, message, attributes FROM logs WHERE ${whereOf(params)} ORDER BY ts DESC LIMIT 100`;

const given = new WeakMap();
let last = 0;

/** A name of a row that stays: its position, or of one that came live, and has none yet, its time and a number. */
export function keyOf(row) {
  if (!row.position && !given.has(row)) given.set(row, `${row.ts}~${(last += 1)}`);
  return given.get(row) || row.position;
}

/** Which row is meant, as the address has it. */
export const placeOf = (row) => row.position || keyOf(row);

/** The row at a place, if it is among these. */
export const rowAt = (place, rows) => rows.find((row) => row.position === place || given.get(row) === place);

/** Rows of a page, of which the first is small, so that something is seen early. */
const [FIRST, PAGE] = [100, 500];
/** More rows, and characters of them, are not kept: whoever wants them narrows the question, or exports. */
const [MOST, MOST_SIZE] = [50_000, 64 << 20];

/** The rows, page by page as the list is read; the Mixer cuts large cells. @param {URLSearchParams} params @param {boolean} active whether to ask at all */
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
