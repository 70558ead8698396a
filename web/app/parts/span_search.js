// The search for spans: what the address asks, as a list, as SQL and as a command, and the rows that answer it.
import { request } from "../api.js";
import { bounds, timeConditions } from "../time_range.js";
import { micros } from "./micros.js";
import { commandOf, condition, literal, quoted } from "./question.js";
import { usePages } from "./repeated.js";
import { CELL } from "./row_stream.js";

/** Rows of one page, and rows that are kept at most. */
export const PAGE = 1_000;
export const MOST = 20_000;

const PATH = "/api/v1/telemetry/traces";
const COLUMNS = ["service", "span_name", "status", "entity", "flux_id", "min_duration_ms"];

/** Whether a parameter of the address is a filter of spans. */
export const isFilter = (key) => COLUMNS.includes(key) || key === "max_duration_ms" || key === "roots" || key.startsWith("attr.") || isLeftOut(key);

/** Whether it leaves out spans. */
const isLeftOut = (key) => /^not\.(entity|service|span_name|attr\..+)$/.test(key);

/** The parameter that leaves out what another one lets through, or the other way round; empty if there is none. */
export const oppositeOf = (key) => (isLeftOut(key) ? key.slice(4) : isLeftOut(`not.${key}`) ? `not.${key}` : "");

/** Whether only SQL can ask it: lists have no greatest duration, no parts of a millisecond, and no roots. */
const needsSql = (params) => params.has("max_duration_ms") || params.has("roots") || !/^\d*$/.test(params.get("min_duration_ms") || "");

/** The filters that lists of spans and services take, with the time. */
export function listFilters(params) {
  const filters = bounds(params);
  for (const [key, value] of params) {
    if (isLeftOut(key)) filters[key] = params.getAll(key);
    else if ((COLUMNS.includes(key) && (key !== "min_duration_ms" || /^\d+$/.test(value))) || key.startsWith("attr.")) filters[key] = value;
  }
  return filters;
}

/** The statement. @param {(value: string | number) => string} bind how a value stands in it @param {string} [before] only spans up to this time */
export function searchSql(params, bind = literal, before = "") {
  const where = timeConditions(params, bind);
  if (before) where.push(`ts <= ${bind(before)}`);
  for (const [key, value] of params) if (isFilter(key)) where.push(condition(key, value, bind));
  return `SELECT * FROM traces WHERE ${where.join(" AND ")} ORDER BY ts DESC`;
}

/** The same as a command. */
export function searchCommand(params) {
  if (needsSql(params)) return `platform sql ${quoted(`${searchSql(params)} LIMIT 100`)}`;
  return commandOf("platform traces", listFilters(params));
}

/** The question as the page asks it. @param {string | null} next a cursor, or the time up to which SQL goes on */
export function question(params, next = null) {
  if (!needsSql(params)) return { path: PATH, params: { ...listFilters(params), limit: PAGE, cursor: next } };
  const parameters = [];
  const bind = (value) => `$${parameters.push(value)}`;
  const query = searchSql(params, bind, next || "");
  return { path: "/api/v1/sql", params: {}, method: "POST", body: { query, parameters, limit: PAGE } };
}

/** Those of `found` that are not among `rows`: SQL goes on at the time of the last row, and so has some of them twice. */
function unseen(rows, found) {
  const last = rows.at(-1)?.ts;
  const seen = new Set(rows.filter(({ ts }) => ts === last).map(({ trace_id, span_id }) => trace_id + span_id));
  return found.filter(({ trace_id, span_id }) => !seen.has(trace_id + span_id));
}

async function ask(params, rows, next, signal) {
  const { path, params: asked, ...options } = question(params, next);
  const answer = await request(path, { ...options, params: options.body ? asked : { ...asked, cells: CELL }, signal });
  if (answer.error) throw Object.assign(new Error(answer.error.detail), answer.error);
  const found = unseen(rows, answer.data);
  for (const row of found) row.at = micros(row.ts);
  const all = rows.concat(found);
  const sql = path.endsWith("/sql") && answer.data.length === PAGE && found.length > 0;
  const more = answer.next_cursor || (sql ? found.at(-1).ts : null);
  return { rows: all, next: all.length < MOST ? more : null, isCut: Boolean(more) && all.length >= MOST, partial: answer.partial || answer.stats?.partial };
}

/** The rows that are found, newest first, each with its time in µs as `at`. */
export function useSpanSearch(params) {
  const key = JSON.stringify([...params].filter(([name]) => isFilter(name) || name === "since" || name === "until"));
  return usePages(key, (rows, next, signal) => ask(params, rows, next, signal));
}
