// Filters of logs and spans, by their names in the API, as conditions of SQL.
import { literal } from "./question.js";

/** Levels, the worst first. */
export const LEVELS = ["error", "warn", "info", "debug"];
const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** @type {Record<string, (value: string, bind: (value: any) => string) => string>} */
const CONDITIONS = {
  min_level: (value, bind) => `level = ANY(${bind(LEVELS.slice(0, LEVELS.indexOf(value) + 1))})`,
  entity: (value, bind) => `${UUID.test(value) ? "entity_id" : "entity_name"} = ${bind(value)}`,
  rack_id: (value, bind) => CONDITIONS.entity(value, bind),
  service: (value, bind) => `coalesce(attributes->>'resource.service.name', entity_name) = ${bind(value)}`,
  gear_id: (value, bind) => `attributes->>'gear.id' = ${bind(value)}`,
  trace_id: (value, bind) => `attributes->>'trace_id' = ${bind(value.toLowerCase())}`,
  q: (value, bind) => `contains_fold(message, ${bind(value)})`,
  min_duration_ms: (value, bind) => `duration_ms >= ${bind(Number(value))}`,
  max_duration_ms: (value, bind) => `duration_ms <= ${bind(Number(value))}`,
  roots: () => "parent_span_id IS NULL",
};

/** @param {string} key @param {string} value @param {(value: any) => string} [bind] makes a parameter of a value; literals without it */
export function condition(key, value, bind = literal) {
  if (key.startsWith("not.")) return `(${condition(key.slice(4), value, bind)}) IS NOT TRUE`;
  if (Object.hasOwn(CONDITIONS, key)) return CONDITIONS[key](value, bind);
  return `${key.startsWith("attr.") ? `attributes->>${bind(key.slice(5))}` : key} = ${bind(value)}`;
}
