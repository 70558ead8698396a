// The rows of an answer as a table: types in the heads, columns that can be made wider, ids as links, and a drawer with a value in full.
import { cell, count, time } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { useRowKeys } from "../keys.js";
import { change, href } from "../location.js";
import { CopyButton } from "./copy_button.js";
import { Drawer, SlicedText } from "./drawer.js";
import { VirtualList } from "./virtual_list.js";

const [NARROW, WIDE, LETTER] = [48, 420, 7.8];
/** Letters of a value in a cell, and in the drawer before all of it is asked for. */
const [SHOWN, READ] = [300, 65_536];
const NUMBER = /^(tinyint|smallint|integer|bigint|u\w+int|usmallint|real|double|decimal)/;

/** `1 row`, `2 rows`. */
export const counted = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;

export const isNumber = ({ type }) => NUMBER.test(type);
export const isTime = ({ type }) => type === "timestamptz" || type === "timestamp" || type === "date";

/** A value as a line of text. */
export function textOf(value, { type }) {
  if (value === null || value === undefined) return "null";
  return type === "timestamptz" ? time(value) : cell(value);
}

/** Where an id leads; none for other values. */
function linkOf(value, { name, type }) {
  if (typeof value !== "string" || !value) return null;
  const base = name.replace(/^.*\./, "").replace(/_\d+$/, "");
  if (base === "trace_id") return href("traces", { trace_id: value });
  if (base === "flux_id" && type === "uuid") return href("signal", { flux_id: value });
  if (base === "entity_id" || base === "entity_name") return href("logs", { entity: value });
  return null;
}

function widthsOf(columns, rows, chosen) {
  return columns.map((column) => {
    if (Object.hasOwn(chosen, column.name)) return chosen[column.name];
    let letters = column.name.length + column.type.length + 3;
    for (const row of rows.slice(0, 40)) letters = Math.max(letters, Math.min(60, textOf(row[column.name], column).length + 1));
    return Math.round(Math.max(64, Math.min(WIDE, letters * LETTER + 12)));
  });
}

/** The widths that were chosen, as the address has them: `w=message:420`. */
function chosenWidths(params) {
  const found = {};
  for (const one of params.getAll("w")) {
    const at = one.lastIndexOf(":");
    if (Number(one.slice(at + 1)) > 0) found[one.slice(0, at)] = Number(one.slice(at + 1));
  }
  return found;
}

function Handle({ name, width, set, keep }) {
  const from = useRef(null);
  const within = (wanted) => Math.round(Math.max(NARROW, Math.min(2_000, wanted)));
  const down = (event) => {
    event.preventDefault();
    event.currentTarget.setPointerCapture(event.pointerId);
    from.current = event.clientX - width;
  };
  const move = (event) => from.current !== null && set(within(event.clientX - from.current));
  const up = () => {
    if (from.current === null) return;
    from.current = null;
    keep(width);
  };
  const key = (event) => {
    const step = { ArrowLeft: -16, ArrowRight: 16 }[event.key];
    if (!step) return;
    event.preventDefault();
    event.stopPropagation();
    keep(within(width + step));
  };
  return html`<span class="handle" role="separator" aria-orientation="vertical" tabindex="0" aria-label=${`Width of ${name}`} aria-valuenow=${width} aria-valuemin=${NARROW} aria-valuemax="2000"
    onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onLostPointerCapture=${up} onKeyDown=${key}></span>`;
}

function Cell({ value, column, width, chosen }) {
  const text = textOf(value, column);
  const to = linkOf(value, column);
  const short = text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text;
  const kind = `${isNumber(column) ? "number" : ""}${value === null ? " dim" : ""}${chosen ? " chosen" : ""}`;
  return html`<span role="cell" class=${kind} data-name=${column.name} style=${{ width: `${width}px` }} title=${column.type === "timestamptz" ? value : undefined}>${to ? html`<a href=${to} tabindex="-1">${short}</a>` : short}</span>`;
}

function Whole({ value, column }) {
  const text = useMemo(() => (value && typeof value === "object" ? JSON.stringify(value, null, 2) : textOf(value, { type: "" })), [value]);
  const to = linkOf(value, column);
  return html`<section class="whole"><h3>${column.name} <small class="dim">${column.type}</small> <${CopyButton} text=${text} title=${`Copy ${column.name}`}>copy</${CopyButton}></h3>
    ${to ? html`<pre><a href=${to}>${text}</a></pre>` : html`<${SlicedText} text=${text} tag="pre" shown=${READ} box=${{ class: value === null ? "dim" : "value" }} />`}</section>`;
}

/** The row that the address names (`cell=12:message`), its value first. */
function RowDrawer({ at, columns, rows, close }) {
  const [index, ...name] = at.split(":");
  const row = rows[index];
  if (!row) return null;
  const first = columns.find((column) => column.name === name.join(":"));
  const ordered = first ? [first, ...columns.filter((column) => column !== first)] : columns;
  return html`<${Drawer} title=${`Row ${Number(index) + 1}`} close=${close}>
    <${CopyButton} text=${() => JSON.stringify(row, null, 2)} title="Copy the row as JSON">copy row</${CopyButton}>
    ${ordered.map((column) => html`<${Whole} key=${column.name} value=${row[column.name]} column=${column} />`)}
  </${Drawer}>`;
}

/** The cell that is chosen, by the keys of rows, and h and l or arrows for columns. An open row goes along. */
function useChoice(columns, rows, isOpen, openCell) {
  const [[row, column], setChoice] = useState([-1, 0]);
  useEffect(() => setChoice([-1, 0]), [rows]);
  const left = (index) => setChoice([Math.max(0, index), Math.max(0, column - 1)]);
  const right = (index) => setChoice([Math.max(0, index), Math.min(columns.length - 1, column + 1)]);
  const select = (index) => {
    setChoice([index, column]);
    if (isOpen) openCell(index, columns[column].name, true);
  };
  useRowKeys({
    count: rows.length, selected: row, select, open: (index) => openCell(index, columns[column].name),
    more: { h: left, ArrowLeft: left, l: right, ArrowRight: right },
  });
  return { row, column, setChoice };
}

/** @param {{ columns: { name: string, type: string }[], rows: any[], params: URLSearchParams }} props */
export function SqlTable({ columns, rows, params }) {
  const box = useRef(null);
  const [moving, setMoving] = useState({});
  const kept = chosenWidths(params);
  const widths = useMemo(() => widthsOf(columns, rows, { ...kept, ...moving }), [columns, rows, moving, params.getAll("w").join()]);
  const total = widths.reduce((sum, width) => sum + width, 0);
  const openCell = (row, name, replace = false) => change({ cell: `${row}:${name}` }, replace);
  const choice = useChoice(columns, rows, params.has("cell"), openCell);
  const keep = (name, width) => {
    setMoving({});
    change({ w: Object.entries({ ...kept, [name]: width }).map(([name, width]) => `${name}:${width}`) }, true);
  };
  useEffect(() => box.current?.querySelector(".chosen")?.scrollIntoView({ block: "nearest", inline: "nearest" }), [choice.column]);
  const pressed = (event, index) => {
    const name = event.target.closest("[role=cell]")?.dataset.name;
    if (!name || event.target.closest("a") || String(getSelection())) return;
    choice.setChoice([index, columns.findIndex((column) => column.name === name)]);
    openCell(index, name);
  };
  const head = html`<div class="head" role="row" style=${{ width: `${total}px` }}>${columns.map((column, at) => html`<span role="columnheader" class=${isNumber(column) ? "number" : ""} style=${{ width: `${widths[at]}px` }} title=${`${column.name} ${column.type}`}>
    ${column.name} <small>${column.type}</small><${Handle} name=${column.name} width=${widths[at]} set=${(width) => setMoving({ [column.name]: width })} keep=${(width) => keep(column.name, width)} /></span>`)}</div>`;
  const row = (values, index) => html`<div role="row" key=${index} aria-rowindex=${index + 2} aria-selected=${index === choice.row} style=${{ width: `${total}px` }} onClick=${(event) => pressed(event, index)}>
    ${columns.map((column, at) => html`<${Cell} key=${at} value=${values[column.name]} column=${column} width=${widths[at]} chosen=${index === choice.row && at === choice.column} />`)}</div>`;
  return html`<div class="sql-table" ref=${box}>
    <${VirtualList} rows=${rows} row=${row} selected=${choice.row} label="Result" head=${head} />
    ${params.get("cell") && html`<${RowDrawer} at=${params.get("cell")} columns=${columns} rows=${rows} close=${() => change({ cell: null }, true)} />`}
  </div>`;
}
