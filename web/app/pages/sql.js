// SQL: a statement, its parameters, and its answer as a table, a chart or a plan.
import { bytes, count, duration, isUtc, setUtc } from "../format.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { change, go, href } from "../location.js";
import { EmptyState, ErrorBox, Waiting } from "../parts/messages.js";
import { ownStyle } from "../parts/own_style.js";
import { useCatalogue } from "../parts/sql_catalogue.js";
import { isLine, SqlChart } from "../parts/sql_chart.js";
import { SqlEditor } from "../parts/sql_editor.js";
import { SqlExport, SqlQuestion } from "../parts/sql_export.js";
import { remember, SqlHistory } from "../parts/sql_history.js";
import { isPlan, SqlPlan } from "../parts/sql_plan.js";
import { counted, SqlTable } from "../parts/sql_result.js";
import { askedBy, useStatement } from "../parts/sql_statement.js";
import { offsetOf, parametersOf } from "../parts/sql_tokens.js";

await ownStyle("sql.css");

const LIMITS = [100, 1_000, 10_000];
/**
 * Statements to begin with; each has an answer, though perhaps no rows, while nothing is stored.
 * @type {[string, string, Record<string, string>?][]}
 */
const EXAMPLES = [
  ["Which tables and columns there are", "SELECT table_name, column_name, data_type\nFROM information_schema.columns\nWHERE table_schema = 'public'"],
  ["Logs of each minute, by level", "SELECT time_bucket(INTERVAL '1 minute', ts) AS minute, level, count(*) AS n\nFROM logs\nWHERE ts > now() - INTERVAL '6 hours'\nGROUP BY minute, level\nORDER BY minute"],
  ["The slowest spans", "SELECT ts, entity_name, span_name, duration_ms, trace_id\nFROM traces\nWHERE ts > now() - INTERVAL '6 hours'\nORDER BY duration_ms DESC\nLIMIT 100"],
  ["How long each kind of span takes", "SELECT span_name, count(*) AS n, avg(duration_ms) AS mean,\n  approx_percentile_cont(0.99) WITHIN GROUP (ORDER BY duration_ms) AS p99\nFROM traces\nWHERE ts > now() - INTERVAL '6 hours'\nGROUP BY span_name\nORDER BY p99 DESC"],
  ["Newest logs of a level that you give, with their traces", "SELECT ts, entity_name, message, attributes->>'trace_id' AS trace_id, flux_id\nFROM logs\nWHERE level = $level\nORDER BY ts DESC\nLIMIT 200", { "p.level": "error" }],
  ["What metrics there are", "SELECT name, type, count(*) AS points, max(ts) AS newest\nFROM metrics\nGROUP BY name, type\nORDER BY points DESC"],
];

/** What was typed last, while other pages are looked at. */
let lastDraft = { q: "", given: {} };

function Parameters({ names, given, set }) {
  if (!names.length) return null;
  return html`<div class="bar" role="group" aria-label="Parameters">${names.map((name) => html`<label key=${name}>$${name} <input class="given" value=${given[name] ?? ""} spellcheck="false" autocomplete="off" placeholder="text, 12, true, null, [1, 2]"
    title="A number, true, false, null or a list is one; all else is a text. Quotes make a text of a number." onInput=${(event) => set(name, event.currentTarget.value)} /></label>`)}</div>`;
}

function Examples() {
  return html`<section aria-label="Examples"><h2>To begin with</h2><ul class="examples">
    ${EXAMPLES.map(([title, q, more]) => html`<li key=${title}><a href=${href("sql", { q, ...more })}>${title}</a><pre>${q}</pre></li>`)}</ul>
    <p class="dim">Statements only read. The dialect is PostgreSQL's; the same from a terminal: <code>platform sql</code>.</p></section>`;
}

/** How long it has been awaited, once a second. */
function Running({ since, cancel }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, []);
  return html`<${Waiting} what=${`Running, ${duration(Math.max(0, now - since))}`} cancel=${cancel} />`;
}

function Stats({ stats, bytes: size, limit }) {
  if (!stats) return null;
  const cut = stats.truncated ? ` (cut: there are more; the limit is ${count(limit)}, an export has all)` : "";
  const parts = [`${counted(stats.rows, "row")}${cut}`, duration(stats.ms), `${bytes(stats.bytes_read)} read from ${counted(stats.files_read, "file")}`, `${count(stats.files_pruned)} of ${count(stats.files_considered)} files pruned`, stats.hot_rows && `${counted(stats.hot_rows, "row")} in memory`, `answer of ${bytes(size)}`];
  return html`<p class="stats dim" role="status">${parts.filter(Boolean).join(" · ")}</p>
    ${stats.partial && html`<p class="bad" role="alert">Rows are missing: ${[stats.partial].flat().map((one) => (typeof one === "string" ? one : JSON.stringify(one))).join("; ")}</p>`}`;
}

function Answer({ answer, asked, params }) {
  const { columns, data, stats } = answer;
  const plan = isPlan(columns);
  const view = params.get("view") || (plan ? "plan" : isLine(columns, data) ? "chart" : "table");
  const press = (name, title) => html`<button aria-pressed=${view === name} onClick=${() => change({ view: name }, true)}>${title}</button>`;
  if (plan && view !== "table") return html`<div class="bar">${press("table", "As text")}</div><${SqlPlan} rows=${data} stats=${stats} />`;
  return html`<div class="bar">
      ${plan ? html`<button onClick=${() => change({ view: "plan" }, true)}>As a tree</button>` : html`<span role="group" aria-label="View">${press("table", "Table")} ${press("chart", "Chart")}</span>`}
      <button class="quiet" aria-pressed=${isUtc()} onClick=${() => setUtc(!isUtc())} title="Times in UTC, or as this machine has them">${isUtc() ? "UTC" : "local"}</button>
      ${!plan && html`<${SqlExport} asked=${asked} />`}
    </div>
    <${Stats} stats=${stats} bytes=${answer.bytes} limit=${asked.limit} />
    ${!data.length ? html`<${EmptyState} command="SELECT min(ts), max(ts), count(*) FROM logs">No row fits. Look when there are any, then move the bounds of ts or leave a condition out:</${EmptyState}>`
      : view === "chart" ? html`<${SqlChart} columns=${columns} rows=${data} params=${params} />`
      : html`<${SqlTable} columns=${columns} rows=${data} params=${params} />`}`;
}

/** What is typed, and asking it: what was asked stands in the address, and is asked anew when that changes. */
function useDraft(params) {
  const asked = useMemo(() => askedBy(params), [params.toString()]);
  const key = JSON.stringify(asked);
  const [draft, setDraft] = useState(asked.q ? { q: asked.q, given: asked.given } : lastDraft);
  const [missing, setMissing] = useState(null);
  const statement = useStatement(remember);
  lastDraft = draft;
  const gap = (q, given) => parametersOf(q).find((name) => !(given[name] ?? "").length);
  useEffect(() => {
    setMissing(null);
    if (!asked.q) return statement.clear();
    const none = gap(asked.q, asked.given);
    if (none) setMissing(none);
    else statement.run(asked);
  }, [key]);
  useEffect(() => {
    if (asked.q) setDraft({ q: asked.q, given: asked.given });
  }, [JSON.stringify([asked.q, asked.given])]);
  const run = (explain) => {
    const none = gap(draft.q, draft.given);
    setMissing(none || null);
    if (none || !draft.q.trim()) return;
    const wanted = { q: draft.q, explain, limit: params.get("limit") };
    for (const name of parametersOf(draft.q)) wanted[`p.${name}`] = draft.given[name];
    const next = new URLSearchParams(href("sql", wanted).split("?")[1]);
    if (JSON.stringify(askedBy(next)) === key) statement.run(asked);
    else change({ ...Object.fromEntries([...params.keys()].map((name) => [name, null])), ...wanted });
  };
  return { asked, draft, setDraft, missing, statement, run };
}

export default function Sql({ params }) {
  const form = useRef(null);
  const catalogue = useCatalogue();
  const { asked, draft, setDraft, missing, statement, run } = useDraft(params);
  const { answer, error, running } = statement;
  const names = useMemo(() => parametersOf(draft.q), [draft.q]);
  const position = error?.position;
  const mark = position && statement.asked?.q === draft.q ? Math.min(offsetOf(draft.q, position), draft.q.trimEnd().length - 1) : null;
  useLayoutEffect(() => {
    if (missing) form.current.querySelectorAll(".given")[names.indexOf(missing)]?.focus();
  }, [missing]);
  const toMark = () => {
    const area = form.current.querySelector("textarea");
    area.focus();
    area.setSelectionRange(mark, mark);
  };
  const submit = (event) => {
    event.preventDefault();
    run(null);
  };
  return html`<form ref=${form} class="sql-form" onSubmit=${submit} aria-label="Statement">
      <${SqlEditor} value=${draft.q} change=${(q) => setDraft((before) => ({ ...before, q }))} run=${() => run(null)} catalogue=${catalogue} mark=${mark} described=${error ? "sql-error" : undefined} />
      <${Parameters} names=${names} given=${draft.given} set=${(name, value) => setDraft((before) => ({ ...before, given: { ...before.given, [name]: value } }))} />
      ${missing && html`<p class="bad" role="alert">Give $${missing} a value: a text, a number, true, false, null, a list such as [1, 2], or "" for an empty text.</p>`}
      <div class="bar">
        <button class="run" title="Ctrl+Enter">Run</button>
        <button type="button" onClick=${() => run("plan")} title="How the statement would run, and which files it would open">Explain</button>
        <button type="button" onClick=${() => run("analyze")} title="Runs the statement, and shows rows and times of each step">Explain analyze</button>
        <label>rows <select value=${String(asked.limit)} onChange=${(event) => change({ limit: event.target.value, cell: null })}>${[...new Set([...LIMITS, asked.limit])].map((limit) => html`<option value=${String(limit)}>${count(limit)}</option>`)}</select></label>
        <button type="button" class="quiet" onClick=${() => change({ side: "history" }, true)}>History</button>
        ${asked.q && html`<button type="button" class="quiet" onClick=${() => go("sql")}>Examples</button>`}
      </div>
    </form>
    ${asked.q && html`<${SqlQuestion} asked=${asked} />`}
    ${running && html`<${Running} since=${running} cancel=${statement.cancel} />`}
    ${statement.cancelled && html`<p role="status">Cancelled; the Mixer has stopped it too. <button onClick=${() => statement.run(asked)}>Run it again</button></p>`}
    ${error && html`<div id="sql-error"><${ErrorBox} error=${error} again=${position ? null : () => statement.run(asked)} />${mark !== null && html`<button class="quiet" onClick=${toMark}>To line ${position.line}, column ${position.column}</button>`}</div>`}
    ${answer && html`<${Answer} answer=${answer} asked=${statement.asked} params=${params} />`}
    ${!asked.q && !running && html`<${Examples} />`}
    ${params.get("side") === "history" && html`<${SqlHistory} close=${() => change({ side: null }, true)} />`}`;
}
