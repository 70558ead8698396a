// Columns of the table of logs: which, in which order and how wide, as `cols=ts:200,attr.order:80` of the address.
import { cell, time } from "../format.js";
import { html } from "../html.js";
import { change } from "../location.js";
import { Menu } from "./menu.js";

const WIDTHS = { ts: 200, level: 70, entity_name: 120, entity_id: 290, flux_id: 290, message: 640 };
const FIELDS = Object.keys(WIDTHS);
const [NARROWEST, WIDEST] = [40, 3_000];

/** Characters of a cell that are drawn; the drawer has all. */
const SHOWN = 600;

/** @typedef {{ field: string, width: number }} Column */

export const widthOf = (width) => Math.min(WIDEST, Math.max(NARROWEST, Math.round(width) || NARROWEST));

const usual = (field) => ({ field, width: Object.hasOwn(WIDTHS, field) ? WIDTHS[field] : 140 });

/** @returns {Column[]} */
export function columnsOf(params) {
  const text = params.get("cols");
  if (!text) return ["ts", "level", "entity_name", "message"].map(usual);
  return text.split(",").map((one) => {
    /** @type {any} */
    const [, name, width] = /^(.*?)(?::(\d+))?$/s.exec(one);
    const field = name.replace(/%(25|2C)/g, decodeURIComponent);
    return width ? { field, width: widthOf(Number(width)) } : usual(field);
  });
}

/** Shows these columns. @param {Column[]} columns */
export function setColumns(columns, replace = false) {
  change({ cols: columns.map(({ field, width }) => `${field.replace(/[%,]/g, encodeURIComponent)}:${width}`).join(",") }, replace);
}

/** Shows the table, with a column for a field. */
export function addColumn(params, field) {
  change({ view: "table" }, true);
  const columns = columnsOf(params);
  if (!columns.some((column) => column.field === field)) setColumns([...columns, usual(field)]);
}

/** Puts a column at another place. */
export function moveColumn(columns, from, to) {
  if (from === to || to < 0 || to >= columns.length) return;
  const moved = columns.toSpliced(from, 1);
  setColumns(moved.toSpliced(to, 0, columns[from]));
}

/** The value of a row's field; attributes are `attr.<key>`. */
function valueOf(row, field) {
  if (!field.startsWith("attr.")) return FIELDS.includes(field) ? row[field] : undefined;
  const attributes = row.attributes || {};
  return Object.hasOwn(attributes, field.slice(5)) ? attributes[field.slice(5)] : undefined;
}

/** A cell as it is drawn: short. */
export function shown(row, field) {
  const value = valueOf(row, field);
  return field === "ts" ? time(value) : cell(value).slice(0, SHOWN);
}

/** The name of a field for people. */
export const nameOf = (field) => (field.startsWith("attr.") ? field.slice(5, 65) : { ts: "time", entity_name: "entity" }[field] || field);

/** @param {{ params: URLSearchParams, known: string[] }} props `known` are fields of the records */
export function ColumnMenu({ params, known }) {
  const columns = columnsOf(params);
  const resize = (at, width) => setColumns(columns.with(at, { ...columns[at], width: widthOf(width) }), true);
  const add = (event) => {
    event.preventDefault();
    const field = String(new FormData(event.currentTarget).get("field")).trim();
    addColumn(params, FIELDS.includes(field) || field.startsWith("attr.") ? field : `attr.${field}`);
    event.currentTarget.reset();
  };
  return html`<${Menu} label="Columns">
    <ul class="plain">${columns.map(({ field, width }, at) => html`<li key=${field}>
      <span class="grow">${nameOf(field)}</span>
      <input type="number" min=${NARROWEST} max=${WIDEST} step="10" value=${width} aria-label=${`Width of ${nameOf(field)}`} onChange=${(event) => resize(at, Number(event.target.value))} />
      <button class="quiet" aria-label=${`Move ${nameOf(field)} to the left`} disabled=${at === 0} onClick=${() => moveColumn(columns, at, at - 1)}>↑</button>
      <button class="quiet" aria-label=${`Move ${nameOf(field)} to the right`} disabled=${at === columns.length - 1} onClick=${() => moveColumn(columns, at, at + 1)}>↓</button>
      <button class="quiet" aria-label=${`Remove ${nameOf(field)}`} disabled=${columns.length === 1} onClick=${() => setColumns(columns.toSpliced(at, 1))}>×</button>
    </li>`)}</ul>
    <form class="bar" onSubmit=${add}>
      <input name="field" list="log-fields" aria-label="Field of a new column" placeholder="a field or attribute" required size="18" spellcheck="false" />
      <datalist id="log-fields">${[...new Set([...FIELDS, ...known])].map((field) => html`<option value=${field} />`)}</datalist>
      <button>Add</button>
    </form>
    ${params.get("cols") && html`<button onClick=${() => change({ cols: null })}>As at first</button>`}
  </${Menu}>`;
}
