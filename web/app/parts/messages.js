// What is said in place of rows: that something failed and how it is mended, that there is nothing and what to do next, that it is awaited.
// Within a form its buttons send nothing.
import { count } from "../format.js";
import { html } from "../html.js";

/** An error of the API, with a way to ask again. */
export function ErrorBox({ error, again }) {
  if (!error) return null;
  const wait = error.retryAfter ? ` (in ${error.retryAfter} s)` : "";
  return html`<div class="error" role="alert">
    <strong>${error.status || (error.status === 0 ? "No answer" : "Failed")}${error.code ? ` ${error.code}` : ""}</strong> ${error.message}
    ${again && html`<button type="button" onClick=${again}>Ask again${wait}</button>`}
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
    <progress aria-label=${what}></progress> ${what} ${cancel && html`<button type="button" onClick=${cancel}>Cancel</button>`}
  </div>`;
}

/** What is said until a question is answered. @param {{ answer: ReturnType<typeof import("../api.js").useAnswer>, what: string }} props `what` is being done */
export function Answering({ answer: { data, error, loading, again, cancel }, what }) {
  if (data) return null;
  if (loading) return html`<${Waiting} what=${what} cancel=${cancel} />`;
  return error ? html`<${ErrorBox} error=${error} again=${again} />` : html`<p class="dim">Not asked any more. <button type="button" onClick=${again}>Ask again</button></p>`;
}

/** How far the reading of many rows is. @param {{ read: ReturnType<typeof import("./work.js").useWork>, what: string, rows: string }} props what is read, and what its rows are */
export function Reading({ read: { value, error, progress, stop, again }, what, rows }) {
  if (error) return html`<${ErrorBox} error=${error} again=${again} />`;
  if (progress !== null) return html`<${Waiting} what=${`Reading ${what}: ${count(progress)} ${rows}`} cancel=${stop} />`;
  return value ? null : html`<p>Stopped. <button type="button" onClick=${again}>Read it</button></p>`;
}
