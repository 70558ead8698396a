// Saves what was asked for as a file: page by page, so that no answer is too large, with progress and a way to stop.
import { open } from "../api.js";
import { count } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { PATH, question } from "./log_query.js";
import { Menu } from "./menu.js";
import { ErrorBox, Waiting } from "./messages.js";

/** Rows of a page, and of a file. */
const [PAGE, MOST] = [10_000, 500_000];

/** What is asked for, and how an answer becomes a part of the file. */
const FORMATS = {
  csv: { type: "text/csv", part: (text, at) => (at ? text.slice(text.indexOf("\n") + 1) : text), end: "" },
  ndjson: { type: "application/x-ndjson", part: (text) => text, end: "" },
  json: { type: "application/json", asked: "ndjson", part: (text, at) => (at ? ",\n" : "[\n") + text.trimEnd().replaceAll("\n", ",\n"), end: "\n]\n" },
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
  save(parts, format);
  const cut = cursor ? ` These are the newest ${count(MOST)}; for the others set “until” to the last one's time.` : "";
  return `${count(rows)} rows saved.${cut}${partial.size ? ` Incomplete: ${[...partial].join("; ")}` : ""}`;
}

export function LogExport({ params }) {
  const [state, setState] = useState({ rows: -1, said: "", error: null });
  const cancel = useRef(null);
  useEffect(() => () => cancel.current?.abort(), []);
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
