// The question of the logs, as it stands in the address: for the API, as a command, and as SQL.
import { bounds, ageOf } from "../time_range.js";

export const PATH = "/api/v1/telemetry/logs";
export const LEVELS = ["error", "warn", "info", "debug"];

/** Parameters that filter; all others of the address say how rows are shown. */
const KEYS = ["level", "min_level", "entity", "service", "gear_id", "rack_id", "flux_id", "trace_id", "q"];
export const isFilter = (key) => KEYS.includes(key) || key.startsWith("attr.");
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

const COMMAND = { min_level: "--min-level", gear_id: "--gear", flux_id: "--flux-id", trace_id: "--trace-id", rack_id: "--entity" };
const word = (text) => (/^[\w.:@%+/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The question as a command. @param {boolean} [ranged] whether with the time range */
export function commandOf(params, ranged = true) {
  const words = ["platform logs"];
  for (const [key, values] of Object.entries({ ...(ranged ? bounds(params) : {}), ...filters(params) })) {
    for (const value of [values].flat()) {
      if (!value) continue;
      words.push(key.startsWith("attr.") ? `--attr ${word(`${key.slice(5)}=${value}`)}` : `${COMMAND[key] || `--${key}`} ${word(value)}`);
    }
  }
  return words.join(" ");
}

const literal = (value) => (Array.isArray(value) ? `ARRAY[${value.map(literal).join(", ")}]` : `'${String(value).replaceAll("'", "''")}'`);
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const UNITS = { s: "seconds", m: "minutes", h: "hours", d: "days", w: "weeks" };

function condition(key, value, bind) {
  switch (key) {
    case "min_level":
      return `level = ANY(${bind(LEVELS.slice(0, LEVELS.indexOf(value) + 1))})`;
    case "entity":
    case "rack_id":
      return `${UUID.test(value) ? "entity_id" : "entity_name"} = ${bind(value)}`;
    case "service":
      return `coalesce(attributes->>'resource.service.name', entity_name) = ${bind(value)}`;
    case "gear_id":
      return `attributes->>'gear.id' = ${bind(value)}`;
    case "trace_id":
      return `attributes->>'trace_id' = ${bind(value.toLowerCase())}`;
    case "q":
      return `contains_fold(message, ${bind(value)})`;
    default:
      return key.startsWith("attr.") ? `attributes->>${bind(key.slice(5))} = ${bind(value)}` : `${key} = ${bind(value)}`;
  }
}

/** The `WHERE` of the question. @param {(value: any) => string} [bind] makes a parameter of a value; literals without it */
export function whereOf(params, bind = literal) {
  const moment = (text) => (Number.isNaN(ageOf(text)) ? bind(text) : `now() - INTERVAL '${text.slice(0, -1)} ${UNITS[text.at(-1)]}'`);
  const { since, until } = bounds(params);
  const parts = [`ts >= ${moment(since)}`];
  if (until) parts.push(`ts < ${moment(until)}`);
  for (const [key, values] of Object.entries(filters(params))) for (const value of values) if (value) parts.push(condition(key, value, bind));
  return parts.join(" AND ");
}

/** The question as SQL. */
export const sqlOf = (params) => `SELECT ts, level, entity_name, message, attributes FROM logs WHERE ${whereOf(params)} ORDER BY ts DESC LIMIT 100`;

/** Which row is meant, as the address has it: its time and a digest of what it says, since records have no id. */
export function placeOf({ ts, entity_id, entity_name, level, flux_id, message, attributes }) {
  const text = JSON.stringify([entity_id, entity_name, level, flux_id, message.length, message.slice(0, 1_000), Object.keys(attributes || {}), attributes?.span_id]);
  let digest = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) digest = Math.imul(digest ^ text.charCodeAt(at), 0x01000193) >>> 0;
  return `${ts}~${digest.toString(16)}`;
}

/** The row at a place, if it is among these. */
export function rowAt(place, rows) {
  const ts = place.split("~")[0];
  return rows.find((row) => row.ts === ts && placeOf(row) === place);
}

/** The time a microsecond later, for the end of a range that has one moment. */
export function justAfter(ts) {
  /** @type {any} */
  const [, second, digits = ""] = /^([^.Z]+)(?:\.(\d+))?/.exec(ts);
  const micros = Number(digits.padEnd(6, "0").slice(0, 6)) + 1;
  const at = new Date(Date.parse(`${second}Z`) + (micros === 1_000_000 ? 1_000 : 0));
  return `${at.toISOString().slice(0, 19)}.${String(micros % 1_000_000).padStart(6, "0")}Z`;
}
