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

/** @param {{ path: string, params: Record<string, any>, command?: string, sql?: string }} props */
export function Question({ path, params, command, sql }) {
  const asked = address(path, params);
  return html`<div class="question">
    <code title="What this view asks">GET ${asked}</code>
    <${CopyButton} text=${() => location.href} title="Copy the address of this view">link</${CopyButton}>
    <${CopyButton} text=${`curl -sS ${quoted(location.origin + asked)}`} title="Copy as curl">curl</${CopyButton}>
    ${command && html`<${CopyButton} text=${command} title="Copy as a command">command</${CopyButton}>`}
    ${sql && html`<${CopyButton} text=${sql} title="Copy as SQL">SQL</${CopyButton}>`}
  </div>`;
}
