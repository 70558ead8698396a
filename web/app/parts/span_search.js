// The search for spans: what the address asks, as a list, as SQL and as a command, and the rows that answer it; its form, the scatter of
// durations, and the list.
import { request, useAnswer } from "../api.js";
import { count, time } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { useRowKeys } from "../keys.js";
import { change, changeBy, href } from "../location.js";
import { bounds, range, timeConditions } from "../time_range.js";
import { addFilter, Chips } from "./chips.js";
import { Typed } from "./field.js";
import { EmptyState, ErrorBox, Waiting } from "./messages.js";
import { micros, precise } from "./micros.js";
import { commandOf, condition, literal, Question, quoted } from "./question.js";
import { NoRows, usePages } from "./repeated.js";
import { CELL } from "./row_stream.js";
import { SpanScatter } from "./span_scatter.js";
import { headOf, VirtualList } from "./virtual_list.js";

/** Rows of one page, and rows that are kept at most. */
const PAGE = 1_000;
const MOST = 20_000;

const PATH = "/api/v1/telemetry/traces";
const COLUMNS = ["service", "span_name", "status", "entity", "flux_id", "min_duration_ms"];

/** Whether a parameter of the address is a filter of spans. */
export const isFilter = (key) => COLUMNS.includes(key) || key === "max_duration_ms" || key === "roots" || key.startsWith("attr.") || isLeftOut(key);

/** Whether it leaves out spans. */
const isLeftOut = (key) => /^not\.(entity|service|span_name|attr\..+)$/.test(key);

/** The parameter that leaves out what another one lets through, or the other way round; empty if there is none. */
export const oppositeOf = (key) => (isLeftOut(key) ? key.slice(4) : isLeftOut(`not.${key}`) ? `not.${key}` : "");

/** Whether only SQL can ask it: lists have no greatest duration, no parts of a millisecond, and no roots. */
const needsSql = (params) => params.has("max_duration_ms") || params.has("roots") || !/^\d*$/.test(params.get("min_duration_ms") || "");

/** The filters that lists of spans and services take, with the time. */
export function listFilters(params) {
  const filters = bounds(params);
  for (const [key, value] of params) {
    if (isLeftOut(key)) filters[key] = params.getAll(key);
    else if ((COLUMNS.includes(key) && (key !== "min_duration_ms" || /^\d+$/.test(value))) || key.startsWith("attr.")) filters[key] = value;
  }
  return filters;
}

/** The statement. @param {(value: string | number) => string} bind how a value stands in it @param {string} [before] only spans up to this time */
function searchSql(params, bind = literal, before = "") {
  const where = timeConditions(params, bind);
  if (before) where.push(`ts <= ${bind(before)}`);
  for (const [key, value] of params) if (isFilter(key)) where.push(condition(key, value, bind));
  return `SELECT * FROM traces WHERE ${where.join(" AND ")} ORDER BY ts DESC`;
}

/** The same as a command. */
function searchCommand(params) {
  if (needsSql(params)) return `platform sql ${quoted(`${searchSql(params)} LIMIT 100`)}`;
  return commandOf("platform traces", listFilters(params));
}

/** The question as the page asks it. @param {string | null} next a cursor, or the time up to which SQL goes on */
function question(params, next = null) {
  if (!needsSql(params)) return { path: PATH, params: { ...listFilters(params), limit: PAGE, cursor: next } };
  const parameters = [];
  const bind = (value) => `$${parameters.push(value)}`;
  const query = searchSql(params, bind, next || "");
  return { path: "/api/v1/sql", params: {}, method: "POST", body: { query, parameters, limit: PAGE } };
}

/** Those of `found` that are not among `rows`: SQL goes on at the time of the last row, and so has some of them twice. */
function unseen(rows, found) {
  const last = rows.at(-1)?.ts;
  const seen = new Set(rows.filter(({ ts }) => ts === last).map(({ trace_id, span_id }) => trace_id + span_id));
  return found.filter(({ trace_id, span_id }) => !seen.has(trace_id + span_id));
}

async function ask(params, rows, next, signal) {
  const { path, params: asked, ...options } = question(params, next);
  const answer = await request(path, { ...options, params: options.body ? asked : { ...asked, cells: CELL }, signal });
  if (answer.error) throw Object.assign(new Error(answer.error.detail), answer.error);
  const found = unseen(rows, answer.data);
  for (const row of found) row.at = micros(row.ts);
  const all = rows.concat(found);
  const sql = path.endsWith("/sql") && answer.data.length === PAGE && found.length > 0;
  const more = answer.next_cursor || (sql ? found.at(-1).ts : null);
  return { rows: all, next: all.length < MOST ? more : null, isCut: Boolean(more) && all.length >= MOST, partial: answer.partial || answer.stats?.partial };
}

/** The rows that are found, newest first, each with its time in µs as `at`. */
function useSpanSearch(params) {
  const key = JSON.stringify([...params].filter(([name]) => isFilter(name) || name === "since" || name === "until"));
  return usePages(key, (rows, next, signal) => ask(params, rows, next, signal));
}

const NUMBER = "[0-9]+(\\.[0-9]+)?";

/** Values that are there, for the fields of the form; asked when somebody goes to it. */
function Offers({ params }) {
  const { since, until, service } = listFilters(params);
  const services = useAnswer("/api/v1/telemetry/services", { since, until, limit: 1_000 });
  const names = useAnswer("/api/v1/telemetry/traces/top", { field: "span_name", since, until, service, limit: 200 });
  return html`<datalist id="span-services">${(services.data?.data || []).map((row) => html`<option value=${row.service} />`)}</datalist>
    <datalist id="span-names">${(names.data?.data || []).map(({ value }) => html`<option value=${value} />`)}</datalist>`;
}

function SearchForm({ params }) {
  const [wanted, setWanted] = useState(false);
  const value = (key) => params.get(key) || "";
  const submit = (event) => {
    event.preventDefault();
    /** @type {Record<string, any>} */
    const fields = Object.fromEntries(new FormData(event.currentTarget));
    const { attribute, trace_id: trace, ...others } = fields;
    if (trace) return change({ trace_id: trace.trim().toLowerCase() });
    const [, key, text] = /^\s*([^=]+?)\s*=\s*(.*?)\s*$/.exec(attribute) || [];
    change(others);
    if (!key) return;
    addFilter(`attr.${key}`, text);
    event.target.elements.attribute.value = "";
  };
  return html`<form class="bar search" onSubmit=${submit} onFocusIn=${() => setWanted(true)} aria-label="Search spans" role="search">
    <label>Service <${Typed} name="service" list="span-services" value=${value("service")} size="12" data-search /></label>
    <label>Span <${Typed} name="span_name" list="span-names" value=${value("span_name")} size="16" /></label>
    <label>Status <select name="status" value=${value("status")} onChange=${changeBy("status")}>
      <option value="">any</option><option value="ok">ok</option><option value="error">error</option></select></label>
    <label>From <${Typed} name="min_duration_ms" inputmode="decimal" pattern=${NUMBER} value=${value("min_duration_ms")} size="6" title="Least duration in milliseconds" /></label>
    <label>to <${Typed} name="max_duration_ms" inputmode="decimal" pattern=${NUMBER} value=${value("max_duration_ms")} size="6" title="Greatest duration in milliseconds" /> ms</label>
    <label>Attribute <input name="attribute" placeholder="key=value" pattern="[^=]+=.*" size="16" title="Adds a filter: key=value" /></label>
    <label><input name="roots" type="checkbox" value="1" checked=${params.has("roots")} onChange=${(event) => change({ roots: event.target.checked ? "1" : null })} /> roots only</label>
    <label>Trace <input name="trace_id" placeholder="its id" pattern="\\s*[0-9a-fA-F]{32}\\s*" size="12" title="Opens the trace: 32 hexadecimal digits" /></label>
    <button>Search</button>
    ${wanted && html`<${Offers} params=${params} />`}
  </form>`;
}

const head = headOf([["Time", "c-time"], ["Duration", "c-length"], ["Status", "c-state"], ["Service", "c-service"], ["Span", "c-name"], ["Trace", "c-trace"]]);

function SpanRow({ row, index, selected, most, open }) {
  const bad = row.status === "error";
  const share = most > 0 ? Math.max(1, (100 * row.duration_ms) / most) : 0;
  return html`<div role="row" key=${row.trace_id + row.span_id} aria-rowindex=${index + 1} aria-selected=${selected} onClick=${open}>
    <span role="cell" class="c-time">${time(row.ts)}</span>
    <span role="cell" class="c-length"><i class=${bad ? "share bad" : "share"} style=${{ width: `${share}%` }}></i>${precise(row.duration_ms)}</span>
    <span role="cell" class=${bad ? "c-state bad" : "c-state"}>${row.status}</span>
    <span role="cell" class="c-service">${row.attributes?.["resource.service.name"] ?? row.entity_name}</span>
    <span role="cell" class="c-name">${row.span_name.slice(0, 200)}</span>
    <span role="cell" class="c-trace"><code>${row.trace_id}</code></span>
  </div>`;
}

function Nothing({ params }) {
  const filtered = [...params.keys()].some(isFilter);
  return html`<${EmptyState} command=${filtered ? null : "platform traces --since 7d"}>
    No span ${filtered ? "meets all of it" : "began"} in this time. ${filtered && html`<a href=${href("traces", { since: params.get("since"), until: params.get("until") })}>Remove all filters</a>, or `}<button onClick=${() => change({ since: "7d", until: null })}>look at 7 days</button>${!filtered && html`. Racks send spans of what their gears do; others send them by OTLP to <code>/v1/traces</code>.`}
  </${EmptyState}>`;
}

function Found({ params, found, selected, setSelected, open }) {
  const { rows, next, isCut } = found;
  const window = useMemo(() => {
    const wide = range(params);
    return { from: next || isCut ? rows.at(-1).at : wide.from * 1_000, to: Math.max(wide.to * 1_000, rows[0].at + 1) };
  }, [rows]);
  const most = useMemo(() => rows.reduce((longest, { duration_ms: ms }) => Math.max(longest, ms), 0), [rows]);
  return html`<${SpanScatter} rows=${rows} window=${window} open=${open} />
    ${found.loading ? html`<${Waiting} what="Searching spans" cancel=${found.cancel} />` : html`<p class="dim">${count(rows.length)} spans, newest first${next ? "; more as you scroll" : isCut ? `; more than ${count(MOST)} are not kept here: choose a shorter time` : ""}.</p>`}
    <div class="tall"><${VirtualList} rows=${rows} selected=${selected} label="Spans" head=${head} onEnd=${found.more}
      row=${(row, index) => html`<${SpanRow} row=${row} index=${index} selected=${index === selected} most=${most} open=${() => { setSelected(index); open(row); }} />`} /></div>`;
}

export function SpanList({ params }) {
  const found = useSpanSearch(params);
  const [selected, setSelected] = useState(-1);
  const open = (row) => change({ trace_id: row.trace_id, span: row.span_id });
  useRowKeys({ count: found.rows.length, selected, select: setSelected, open: (index) => open(found.rows[index]) });
  const asked = question(params);
  const sql = `${searchSql(params)} LIMIT ${PAGE}`;
  return html`<${SearchForm} params=${params} />
    <${Chips} params=${params} keys=${isFilter} opposite=${oppositeOf} />
    <${Question} ...${asked} text=${asked.body && sql} command=${searchCommand(params)} sql=${sql} />
    <${ErrorBox} error=${found.error} again=${found.again} />
    ${found.partial && html`<p class="bad" role="status">Rows are missing: ${found.partial}</p>`}
    ${found.rows.length > 0 ? html`<${Found} params=${params} found=${found} selected=${selected} setSelected=${setSelected} open=${open} />` : html`<${NoRows} pages=${found} what="Searching spans"><${Nothing} params=${params} /></${NoRows}>`}`;
}
