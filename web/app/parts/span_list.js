// The search for spans: its form, the scatter of durations, and the list.
import { useAnswer } from "../api.js";
import { count, time } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { useRowKeys } from "../keys.js";
import { change, changeBy } from "../location.js";
import { range } from "../time_range.js";
import { addFilter, Chips } from "./chips.js";
import { Typed } from "./field.js";
import { EmptyState, ErrorBox, Waiting } from "./messages.js";
import { precise } from "./micros.js";
import { Question } from "./question.js";
import { NoRows } from "./repeated.js";
import { SpanScatter } from "./span_scatter.js";
import { isFilter, listFilters, MOST, oppositeOf, PAGE, question, searchCommand, searchSql, useSpanSearch } from "./span_search.js";
import { headOf, VirtualList } from "./virtual_list.js";

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
    No span ${filtered ? "meets all of it" : "began"} in this time. ${filtered && html`<a href="#/traces">Remove all filters</a>, or `}<button onClick=${() => change({ since: "7d", until: null })}>look at 7 days</button>${!filtered && html`. Racks send spans of what their gears do; others send them by OTLP to <code>/v1/traces</code>.`}
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
