// Rows of logs as a list, a table with columns, or JSON.
import { cell, time } from "../format.js";
import { html, useRef, useState } from "../html.js";
import { columnsOf, moveColumn, nameOf, setColumns, shown, widthOf } from "./log_columns.js";
import { keyOf } from "./log_query.js";
import { VirtualList } from "./virtual_list.js";

const lines = new WeakMap();

/** Characters of a message that are drawn; the drawer has all. */
const SHOWN = 600;

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
