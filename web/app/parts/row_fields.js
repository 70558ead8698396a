// What is known of one thing, name by name: its facts, and the fields of its JSON column. Large values are shortened until somebody wants them.
import { cell } from "../format.js";
import { html, useState } from "../html.js";

/** Characters of a value that are shown at once. */
const SHOWN = 400;

/** A value of any type; the rest of a large one at a press. */
export function LongText({ value }) {
  const [all, setAll] = useState(false);
  const text = value !== null && typeof value === "object" ? JSON.stringify(value, null, 1) : cell(value);
  const shown = all || text.length <= SHOWN ? text : `${text.slice(0, SHOWN)}…`;
  return html`${typeof value === "object" && value ? html`<pre>${shown}</pre>` : html`<span class="value">${shown}</span>`}
    ${text.length > SHOWN && html`<button class="quiet" onClick=${() => setAll(!all)}>${all ? "less" : `all ${text.length.toLocaleString("en")} characters`}</button>`}`;
}

/** Names and values; those without a value are left out. @param {{ facts: [string, any][] }} props a value may be markup */
export function Facts({ facts }) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return html`<dl class="facts">${known.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** The fields of a JSON column. @param {{ fields: Record<string, any>, find?: (key: string, value: any) => string }} props `find`: the address of rows with the same value */
export function Fields({ fields, find }) {
  const facts = Object.entries(fields || {}).map(([key, value]) => [key, html`<${LongText} value=${value} />
    ${find && (value === null || typeof value !== "object") && html` <a href=${find(key, value)} aria-label=${`Find ${key}=${cell(value).slice(0, 60)}`}>find</a>`}`]);
  return facts.length ? html`<${Facts} facts=${facts} />` : html`<p class="dim">none</p>`;
}
