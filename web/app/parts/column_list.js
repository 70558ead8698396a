// A list with named columns, of which only visible rows are drawn: keys choose a row, Enter opens it, Space marks it.
import { html, useState } from "../html.js";
import { useRowKeys } from "../keys.js";
import { visit } from "../location.js";
import { VirtualList } from "./virtual_list.js";

/**
 * @typedef {{ title: string, width: number, field?: string, cell?: (row: any) => any, hint?: (row: any) => string, number?: boolean }} Column
 *   `field` is shown as it is where no `cell` makes something of the row
 * @param {{ label: string, columns: Column[], rows: any[], keyOf: (row: any) => string, to?: (row: any) => string, opened?: string | null,
 *   marked?: Set<string>, mark?: any, onEnd?: () => void }} props `to` is the address of a row's details, `mark` takes keys, and whether
 *   they are marked
 */
export function ColumnList({ label, columns, rows, keyOf, to, opened, marked, mark, onEnd }) {
  const [at, setAt] = useState(-1);
  // A list without details or marks leaves the keys to the list that has them.
  useRowKeys({
    count: to || mark ? rows.length : 0, selected: at, select: setAt, open: to && ((index) => visit(to(rows[index]))),
    more: mark ? { " ": (index) => rows[index] && mark([keyOf(rows[index])], !marked?.has(keyOf(rows[index]))) } : {},
  });
  const all = marked && rows.length > 0 && rows.every((row) => marked.has(keyOf(row)));
  const styles = columns.map(({ width, number }) => ({ width: `${width}px`, textAlign: number ? "right" : "left" }));
  const width = columns.reduce((sum, column) => sum + column.width, marked ? 30 : 0);
  const head = html`<div class="head" role="rowgroup" style=${{ minWidth: `${width}px` }}><div role="row">
    ${marked && html`<span role="columnheader" style=${{ width: "30px" }}><input type="checkbox" aria-label="Mark all rows" checked=${all} onChange=${() => mark(rows.map(keyOf), !all)} /></span>`}
    ${columns.map(({ title }, number) => html`<span role="columnheader" style=${styles[number]}>${title}</span>`)}
  </div></div>`;
  const draw = (row, index) => {
    const key = keyOf(row);
    const cells = columns.map(({ field = "", cell, hint }, number) => {
      const shown = cell ? cell(row) : row[field];
      const text = hint ? hint(row) : ["string", "number"].includes(typeof shown) ? shown : undefined;
      return html`<span role="cell" title=${text} style=${styles[number]}>${number === 0 && to ? html`<a href=${to(row)} tabindex=${index === at ? 0 : -1}>${shown}</a>` : shown}</span>`;
    });
    // A press on the box chooses no row: drawn anew between the press and its change, the box would be as it was.
    return html`<div role="row" key=${key} aria-rowindex=${index + 2} aria-selected=${index === at || key === opened} style=${{ minWidth: `${width}px` }} onClick=${to || mark ? () => setAt(index) : undefined}>
      ${marked && html`<span role="cell" style=${{ width: "30px" }}><input type="checkbox" aria-label=${`Mark ${key}`} checked=${marked.has(key)} tabindex=${index === at ? 0 : -1} onClick=${(event) => event.stopPropagation()} onChange=${(event) => mark([key], event.currentTarget.checked)} /></span>`}
      ${cells}</div>`;
  };
  return html`<${VirtualList} label=${label} rows=${rows} row=${draw} selected=${at} head=${head} onEnd=${onEnd} />`;
}
