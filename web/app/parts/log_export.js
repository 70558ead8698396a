// Saves what was asked for as a file, with progress and a way to stop.
import { count } from "../format.js";
import { html } from "../html.js";
import { PATH, question } from "./log_query.js";
import { Menu } from "./menu.js";
import { ErrorBox, Waiting } from "./messages.js";
import { FORMATS, savePages } from "./save_file.js";
import { useJob } from "./work.js";

/** Rows of a file. */
const MOST = 500_000;

/** @returns {Promise<string>} what was saved */
async function exported(params, format, signal, tell) {
  const name = `logs-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}`;
  const { rows, isCut, partial } = await savePages({ path: PATH, params: question(params) }, { name, format, most: MOST }, signal, tell);
  const cut = isCut ? ` These are the newest ${count(rows)}; for the others set “until” to the last one's time.` : "";
  return `${count(rows)} rows saved.${cut}${partial ? ` Incomplete: ${partial}` : ""}`;
}

export function LogExport({ params }) {
  const { run, stop, value: said, progress, error } = useJob();
  return html`<${Menu} label="Export">
    ${progress !== null
      ? html`<${Waiting} what=${`${count(progress)} rows so far`} cancel=${stop} />`
      : html`<div class="bar">${Object.keys(FORMATS).map((format) => html`<button onClick=${() => run((signal, tell) => exported(params, format, signal, tell))}>${format.toUpperCase()}</button>`)}</div>`}
    <p class="dim" role="status">${said || "All records of the time range that the filters let through."}</p>
    <${ErrorBox} error=${error} />
  </${Menu}>`;
}
