// Rows of logs as a list, a table with columns, or JSON. Columns of the table: which, in which order and how wide, as `cols=ts:200,attr.order:80`
// of the address.
import { cell, time } from "../format.js";
import { html, useRef, useState } from "../html.js";
import { change } from "../location.js";
import { keyOf } from "./log_query.js";
import { Menu } from "./menu.js";
import { VirtualList } from "./virtual_list.js";

const WIDTHS = { ts: 200, level: 70, entity_name: 120, entity_id: 290, flux_id: 290, message: 640 };
const FIELDS = Object.keys(WIDTHS);
const [NARROWEST, WIDEST] = [40, 3_000];

/** Characters of a cell, or of a message, that are drawn; the drawer has all. */
const SHOWN = 600;

/** @typedef {{ field: string, width: number }} Column */

const widthOf = (width) => Math.min(WIDEST, Math.max(NARROWEST, Math.round(width) || NARROWEST));

const usual = (field) => ({ field, width: Object.hasOwn(WIDTHS, field) ? WIDTHS[field] : 140 });

/** @returns {Column[]} */
function columnsOf(params) {
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
function setColumns(columns, replace = false) {
  change({ cols: columns.map(({ field, width }) => `${field.replace(/[%,]/g, encodeURIComponent)}:${width}`).join(",") }, replace);
}

/** Shows the table, with a column for a field. */
export function addColumn(params, field) {
  change({ view: "table" }, true);
  const columns = columnsOf(params);
  if (!columns.some((column) => column.field === field)) setColumns([...columns, usual(field)]);
}

/** Puts a column at another place. */
function moveColumn(columns, from, to) {
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
function shown(row, field) {
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

const lines = new WeakMap();

/** A text of a row that is made once, however often the row is drawn. */
function lineOf(row, of, make) {
  const known = lines.get(row) || {};
  if (!(of in known)) lines.set(row, Object.assign(known, { [of]: make(row) }));
  return known[of];
}

const short = (value) => {
  const text = cell(value);
  return text.length > 80 ? `${text.slice(0, 80)}…` : text;
};
const attributes = (row) => Object.entries(row.attributes || {}).slice(0, 20).map(([key, value]) => `${key}=${short(value)}`).join("  ");
const json = (row) => JSON.stringify({ ts: row.ts, level: row.level, entity_name: row.entity_name, message: row.message.slice(0, 2_000), attributes: row.attributes, flux_id: row.flux_id, entity_id: row.entity_id }).slice(0, 2_000);

export function Level({ level }) {
  return html`<span class=${`level is-${level}`}>${level}</span>`;
}

const listed = (row) => html`<span role="cell" class="dim"><span class="date">${time(row.ts).slice(0, 11)}</span>${time(row.ts).slice(11)}</span>
  <span role="cell" class="narrow"><${Level} level=${row.level} /></span>
  <span role="cell" class="entity">${row.entity_name}</span>
  <span role="cell" class="rest">${row.message.slice(0, SHOWN)} <span class="dim">${lineOf(row, "attributes", attributes)}</span></span>`;

const asJson = (row) => html`<span role="cell" class="rest"><code>${lineOf(row, "json", json)}</code></span>`;

const tabled = (columns) => (row) =>
  columns.map(({ field, width }) => html`<span role="cell" style=${{ width: `${width}px` }}>${field === "level" ? html`<${Level} level=${row.level} />` : lineOf(row, field, (of) => shown(of, field))}</span>`);

/** The heads of columns: dragged to another place, or at their edge to another width. The menu does both by keyboard. */
function Head({ columns, resized, setResized }) {
  const dragged = useRef(-1);
  const resize = (event, at) => {
    event.preventDefault();
    event.stopPropagation();
    const [from, { width }] = [event.clientX, columns[at]];
    const edge = event.currentTarget;
    edge.setPointerCapture(event.pointerId);
    const widthAt = (moved) => widthOf(width + moved.clientX - from);
    edge.onpointermove = (moved) => setResized({ at, width: widthAt(moved) });
    edge.onlostpointercapture = (moved) => {
      edge.onpointermove = edge.onlostpointercapture = null;
      setResized(null);
      setColumns(columns.with(at, { ...columns[at], width: widthAt(moved) }), true);
    };
  };
  return html`<div class="head" role="row">${columns.map(({ field, width }, at) => html`<span key=${field} role="columnheader" draggable=${!resized}
      style=${{ width: `${resized?.at === at ? resized.width : width}px` }} title=${`${field}: drag to move`}
      onDragStart=${() => (dragged.current = at)} onDragOver=${(event) => event.preventDefault()}
      onDrop=${(event) => {
        event.preventDefault();
        if (dragged.current >= 0) moveColumn(columns, dragged.current, at);
        dragged.current = -1;
      }}>${nameOf(field)}<i class="edge" draggable="true" onDragStart=${(event) => {
        event.preventDefault();
        event.stopPropagation();
      }} onPointerDown=${(event) => resize(event, at)}></i></span>`)}</div>`;
}

/** @param {{ rows: any[], view: string, params: URLSearchParams, selected: number, choose: (index: number) => void, onEnd?: () => void }} props */
export function LogList({ rows, view, params, selected, choose, onEnd }) {
  const [resized, setResized] = useState(null);
  const columns = columnsOf(params);
  const drawn = resized ? columns.with(resized.at, { ...columns[resized.at], width: resized.width }) : columns;
  const wide = view === "table" ? { minWidth: `${drawn.reduce((sum, { width }) => sum + width, 0)}px` } : undefined;
  const cells = view === "table" ? tabled(drawn) : view === "json" ? asJson : listed;
  const row = (one, index) => html`<div key=${keyOf(one)} role="row" aria-rowindex=${index + 1} aria-selected=${index === selected} style=${wide} onClick=${() => choose(index)}>${cells(one)}</div>`;
  const head = view === "table" && html`<${Head} columns=${columns} resized=${resized} setResized=${setResized} />`;
  return html`<${VirtualList} rows=${rows} row=${row} selected=${selected} label="Log records" onEnd=${onEnd} head=${head} />`;
}
