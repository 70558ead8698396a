// What pages are made of: the tabs of their views, sections, tiles, small tables.
import { html } from "../html.js";
import { href } from "../location.js";

/**
 * The views of one page; which one is shown stands in the address (`view=`).
 * @param {{ page: string, label: string, views: [string, string, any?][], view: string }} props name, title and a number to show with it
 */
export function Tabs({ page, label, views, view }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${views.map(([name, title, count]) => html`<a href=${href(page, { view: name })} aria-current=${name === view ? "page" : undefined}>${title}${count ? ` (${count})` : ""}</a>`)}
  </nav>`;
}

/** A part of a view, with its title. */
export const Section = ({ title, children }) => html`<section aria-label=${title}><h2>${title}</h2>${children}</section>`;

/** A number to be seen at once. */
export function Tile({ label, value, note, bad, to }) {
  return html`<div class=${bad ? "tile bad" : "tile"}><span class="dim">${to ? html`<a href=${to}>${label}</a>` : label}</span><strong>${value}</strong><span class="dim">${note}</span></div>`;
}

/**
 * A small table: all of its rows are in the document, and it scrolls by itself where there is no room.
 * @param {{ heads: any[], numbers?: number[], rows: any[][], label?: string }} props `numbers`: which columns are numbers; cells may be markup
 */
export function Table({ heads, numbers = [], rows, label }) {
  const kind = (at) => (numbers.includes(at) ? "number" : undefined);
  return html`<div class="scroll" tabindex="0" role=${label && "region"} aria-label=${label}><table aria-label=${label}><thead><tr>${heads.map((head, at) => html`<th class=${kind(at)}>${head}</th>`)}</tr></thead>
    <tbody>${rows.map((cells) => html`<tr>${cells.map((cell, at) => (at ? html`<td class=${kind(at)}>${cell}</td>` : html`<th scope="row">${cell}</th>`))}</tr>`)}</tbody></table></div>`;
}
