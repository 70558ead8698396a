// Saves what was asked for as a file: page by page, so that no answer is too large, with progress and a way to stop.
import { open } from "../api.js";
import { count } from "../format.js";
import { html } from "../html.js";
import { PATH, question } from "./log_query.js";
import { Menu } from "./menu.js";
import { ErrorBox, Waiting } from "./messages.js";
import { saveFile } from "./save_file.js";
import { useJob } from "./work.js";

/** Rows of a page, and of a file. */
const [PAGE, MOST] = [10_000, 500_000];

/** What is asked for, and how an answer becomes a part of the file. */
const FORMATS = {
  csv: { type: "text/csv", part: (text, at) => (at ? text.slice(text.indexOf("\n") + 1) : text), end: "" },
  ndjson: { type: "application/x-ndjson", part: (text) => text, end: "" },
  json: { type: "application/json", asked: "ndjson", part: (text, at) => (at ? ",\n" : "[\n") + text.trimEnd().replaceAll("\n", ",\n"), end: "\n]\n" },
};

/** @param {URLSearchParams} params @param {string} format @param {AbortSignal} signal @param {(rows: number) => void} tell @returns {Promise<string>} what was saved */
async function exported(params, format, signal, tell) {
  /** @type {[any[], Set<any>]} */
  const [parts, partial] = [[], new Set()];
  let [cursor, rows] = [null, 0];
  const { asked = format, part, end } = FORMATS[format];
  do {
    const response = await open(PATH, { params: { ...question(params), limit: PAGE, cursor, format: asked }, accept: "*/*", signal });
    const told = (name) => response.headers.get(name);
    // The browser may put a blob aside; texts stay in memory.
    parts.push(new Blob([part(await response.text(), parts.length)]));
    if (told("x-partial")) partial.add(told("x-partial"));
    cursor = told("x-next-cursor");
    rows += JSON.parse(told("x-query-stats")).rows;
    tell(rows);
  } while (cursor && rows < MOST);
  parts.push(end);
  saveFile(parts, `logs-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.${format}`, FORMATS[format].type);
  const cut = cursor ? ` These are the newest ${count(MOST)}; for the others set “until” to the last one's time.` : "";
  return `${count(rows)} rows saved.${cut}${partial.size ? ` Incomplete: ${[...partial].join("; ")}` : ""}`;
}

export function LogExport({ params }) {
  const { run, stop, value: said, progress, error } = useJob();
  return html`<${Menu} label="Export">
    ${progress !== null
      ? html`<${Waiting} what=${`${count(progress)} rows so far`} cancel=${stop} />`
      : html`<div class="bar">${Object.keys(FORMATS).map((format) => html`<button onClick=${() => run((signal, tell) => exported(params, format, signal, tell))}>${format === "ndjson" ? "NDJSON" : format.toUpperCase()}</button>`)}</div>`}
    <p class="dim" role="status">${said || "All records of the time range that the filters let through."}</p>
    <${ErrorBox} error=${error} />
  </${Menu}>`;
}
