// What is said in place of rows: that something failed and how it is mended, that there is nothing and what to do next, that it is awaited.
import { html } from "../html.js";

/** An error of the API, with a way to ask again. */
export function ErrorBox({ error, again }) {
  if (!error) return null;
  const wait = error.retryAfter ? ` (in ${error.retryAfter} s)` : "";
  return html`<div class="error" role="alert">
    <strong>${error.status || "Not reached"}${error.code ? ` ${error.code}` : ""}</strong> ${error.message}
    ${again && html`<button onClick=${again}>Ask again${wait}</button>`}
  </div>`;
}

/** Nothing was found: why that may be, and the command or link that helps. */
export function EmptyState({ children, command }) {
  return html`<div class="empty">
    <p>${children}</p>
    ${command && html`<pre><code>${command}</code></pre>`}
  </div>`;
}

/** What is awaited, and a way to stop it. */
export function Waiting({ what, cancel }) {
  return html`<div class="waiting" role="status">
    <progress aria-label=${what}></progress> ${what} ${cancel && html`<button onClick=${cancel}>Cancel</button>`}
  </div>`;
}
