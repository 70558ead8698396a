// The views of one page; which one is shown stands in the address (`view=`).
import { html } from "../html.js";
import { href } from "../location.js";

/** @param {{ page: string, label: string, views: [string, string, any?][], view: string }} props name, title and a number to show with it */
export function Tabs({ page, label, views, view }) {
  return html`<nav class="tabs" aria-label=${label}>
    ${views.map(([name, title, count]) => html`<a href=${href(page, { view: name })} aria-current=${name === view ? "page" : undefined}>${title}${count ? ` (${count})` : ""}</a>`)}
  </nav>`;
}
