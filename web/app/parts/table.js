// A small table: all of its rows are in the document, and it scrolls by itself where there is no room.
import { html } from "../html.js";

/** @param {{ heads: any[], numbers?: number[], rows: any[][], label?: string }} props `numbers`: which columns are numbers; cells may be markup */
export function Table({ heads, numbers = [], rows, label }) {
  const kind = (at) => (numbers.includes(at) ? "number" : undefined);
  return html`<div class="scroll" tabindex="0"><table aria-label=${label}><thead><tr>${heads.map((head, at) => html`<th class=${kind(at)}>${head}</th>`)}</tr></thead>
    <tbody>${rows.map((cells) => html`<tr>${cells.map((cell, at) => (at ? html`<td class=${kind(at)}>${cell}</td>` : html`<th scope="row">${cell}</th>`))}</tr>`)}</tbody></table></div>`;
}
