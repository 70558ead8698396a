// What is known of one thing, name by name: its facts, and the fields of its JSON column. Large values are shortened until somebody wants them.
import { cell } from "../format.js";
import { html, useMemo } from "../html.js";
import { SlicedText } from "./sliced_text.js";

/** Characters of a value that are shown at once. */
const SHOWN = 400;

/** A value of any type. */
export function LongText({ value }) {
  const isObject = value !== null && typeof value === "object";
  const text = useMemo(() => (isObject ? JSON.stringify(value, null, 1) : cell(value)), [value]);
  return html`<${SlicedText} tag=${isObject ? "pre" : "span"} text=${text} shown=${SHOWN} />`;
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
