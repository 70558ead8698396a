// The question behind a view, as text, in the ways in which others can ask it: link, curl, command line, SQL.
import { address } from "../api.js";
import { html } from "../html.js";
import { CopyButton } from "./copy_button.js";

/** As a word of a shell. */
export const quoted = (text) => (/^[\w.:=/,@%+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** A filter as a flag of a command. What begins with a dash would be taken for a flag itself. */
function flagOf(key, value) {
  /** @type {any} */
  const [, not, map, name] = /^(not\.)?(?:(attr|label)s?\.)?(.*)$/s.exec(key);
  const flag = map || { gear_id: "gear", rack_id: "entity" }[name] || name.replaceAll("_", "-");
  const text = map ? `${name}=${value}` : value;
  return `--${not ? "not-" : ""}${flag}${text.startsWith("-") ? "=" : " "}${quoted(text)}`;
}

/** A command with filters as its flags; those without a value are left out. */
export function commandOf(command, filters) {
  const flags = Object.entries(filters).flatMap(([key, values]) => [values].flat().filter(Boolean).map((value) => flagOf(key, value)));
  return [command, ...flags].join(" ");
}

/** A text as a literal of SQL, or a list of them. */
export const literal = (value) => (Array.isArray(value) ? `ARRAY[${value.map(literal).join(", ")}]` : typeof value === "number" ? String(value) : `'${String(value).replaceAll("'", "''")}'`);

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

/** A filter, by its name in the API, as a condition of SQL. @param {string} key @param {string} value @param {(value: any) => string} [bind] makes a parameter of a value; literals without it */
export function condition(key, value, bind = literal) {
  if (key.startsWith("not.")) return `(${condition(key.slice(4), value, bind)}) IS NOT TRUE`;
  if (Object.hasOwn(CONDITIONS, key)) return CONDITIONS[key](value, bind);
  return `${key.startsWith("attr.") ? `attributes->>${bind(key.slice(5))}` : key} = ${bind(value)}`;
}

/** @param {{ path: string, params?: Record<string, any>, body?: any, text?: string, command?: string | null, sql?: string }} props `text`: how the question is written, if not as it is asked */
export function Question({ path, params, body, text, command, sql }) {
  const asked = address(path, params);
  const sent = body && JSON.stringify(body);
  const curl = `curl -sS ${quoted(location.origin + asked)}${sent ? ` -H 'content-type: application/json' -d ${quoted(sent)}` : ""}`;
  return html`<div class=${text ? "question short-question" : "question"}>
    <code title="What this view asks">${text || `GET ${asked}`}</code>
    <${CopyButton} text=${() => location.href} title="Copy the address of this view">link</${CopyButton}>
    <${CopyButton} text=${curl} title="Copy as curl">curl</${CopyButton}>
    ${command && html`<${CopyButton} text=${command} title="Copy as a command">command</${CopyButton}>`}
    ${sql && html`<${CopyButton} text=${sql} title="Copy as SQL">SQL</${CopyButton}>`}
  </div>`;
}
