// Saves what was asked for as a file: page by page, so that no answer is too large, with progress and a way to stop.
import { open } from "../api.js";
import { count } from "../format.js";
import { html, useRef, useState } from "../html.js";
import { PATH, question } from "./log_query.js";
import { Menu } from "./menu.js";
import { ErrorBox, Waiting } from "./messages.js";

/** Rows of a page, and of a file. */
const [PAGE, MOST] = [10_000, 500_000];

const lines = (text) => text.split("\n").length - 1;
/** How pages become one file. `rows` counts those of a page. */
const FORMATS = {
  csv: { type: "text/csv", part: (text, at) => (at ? text.slice(text.indexOf("\n") + 1) : text) },
  ndjson: { type: "application/x-ndjson", part: (text) => text },
  json: { type: "application/json", part: (text, at) => (at ? "," : "[") + JSON.parse(text).data.map((row) => JSON.stringify(row)).join(",\n") },
};

function save(parts, format) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type: FORMATS[format].type }));
  link.download = `logs-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** @param {URLSearchParams} params @param {string} format @param {AbortSignal} signal @param {(rows: number) => void} tell */
async function exported(params, format, signal, tell) {
  /** @type {[string[], Set<any>]} */
  const [parts, partial] = [[], new Set()];
  let [cursor, rows] = [null, 0];
  do {
    const response = await open(PATH, { params: { ...question(params), limit: PAGE, cursor, format }, accept: "*/*", signal });
    const text = await response.text();
    parts.push(FORMATS[format].part(text, parts.length));
    if (response.headers.get("x-partial")) partial.add(response.headers.get("x-partial"));
    const stats = JSON.parse(response.headers.get("x-query-stats") || "null");
    const answer = format === "json" ? JSON.parse(text) : null;
    cursor = answer ? answer.next_cursor : response.headers.get("x-next-cursor");
    rows += answer ? answer.data.length : stats?.rows ?? lines(text);
    tell(rows);
  } while (cursor && rows < MOST);
  if (format === "json") parts.push("]\n");
  save(parts, format);
  const cut = cursor ? ` These are the newest ${count(MOST)}; for the others set “until” to the last one's time.` : "";
  return `${count(rows)} rows saved.${cut}${partial.size ? ` Incomplete: ${[...partial].join("; ")}` : ""}`;
}

export function LogExport({ params }) {
  const [state, setState] = useState({ rows: -1, said: "", error: null });
  const cancel = useRef(null);
  const run = (format) => {
    cancel.current = new AbortController();
    setState({ rows: 0, said: "", error: null });
    exported(params, format, cancel.current.signal, (rows) => setState((before) => ({ ...before, rows }))).then(
      (said) => setState({ rows: -1, said, error: null }),
      (error) => setState({ rows: -1, said: error.name === "AbortError" ? "Stopped, nothing was saved." : "", error: error.name === "AbortError" ? null : error }),
    );
  };
  return html`<${Menu} label="Export">
    ${state.rows >= 0
      ? html`<${Waiting} what=${`${count(state.rows)} rows so far`} cancel=${() => cancel.current.abort()} />`
      : html`<div class="bar">${Object.keys(FORMATS).map((format) => html`<button onClick=${() => run(format)}>${format === "ndjson" ? "NDJSON" : format.toUpperCase()}</button>`)}</div>`}
    <p class="dim" role="status">${state.said || "All records of the time range that the filters let through."}</p>
    <${ErrorBox} error=${state.error} />
  </${Menu}>`;
}
