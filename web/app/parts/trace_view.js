// One trace: what it is, its tools (filter, hide short spans, critical path, fold), the waterfall, and a span's details.
import { useAnswer } from "../api.js";
import { count, time } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { useRowKeys } from "../keys.js";
import { change, changeBy, href } from "../location.js";
import { CopyButton } from "./copy_button.js";
import { Drawer, Facts, Fields, LongText } from "./drawer.js";
import { Answering, EmptyState, ErrorBox, Reading, Waiting } from "./messages.js";
import { micros, precise, timeOf, zoomOf, zoomText } from "./micros.js";
import { literal, Question } from "./question.js";
import { criticalPath, MOST_SPANS, readTrace, shownSpans } from "./trace_model.js";
import { TraceMap, Waterfall } from "./trace_waterfall.js";
import { headOf, VirtualList } from "./virtual_list.js";
import { useWhole } from "./whole_row.js";
import { useWork } from "./work.js";

/** How far the clocks of who logs and who traces may be apart, µs. */
const SKEW = 3_600e6;
const MOST_LOGS = 1_000;

/** Around the spans of a trace, for other views: its time, with what clocks may differ by. */
const around = ({ start, end }) => ({ since: timeOf(start - SKEW), until: timeOf(end + SKEW) });

function Events({ events }) {
  if (!Array.isArray(events) || !events.length) return null;
  return html`<h3>Events</h3><${Facts} facts=${events.slice(0, 100).map((event) => [event.name || event.ts || "event", html`<${LongText} value=${event} />`])} />`;
}

function Links({ links }) {
  const known = Array.isArray(links) ? links.filter((link) => /^[0-9a-f]{32}$/i.test(link?.trace_id)) : [];
  if (!known.length) return null;
  return html`<h3>Links</h3><ul>${known.slice(0, 50).map((link) => html`<li><a href=${href("traces", { trace_id: link.trace_id, span: link.span_id })}>trace ${link.trace_id}</a></li>`)}</ul>`;
}

function LogRow({ row, index, origin, own }) {
  return html`<div role="row" key=${index} aria-rowindex=${index + 1} aria-selected=${own}>
    <span role="cell" class="l-at" title=${time(row.ts)}>${micros(row.ts) < origin ? "−" : "+"}${precise(Math.abs(micros(row.ts) - origin) / 1_000)}</span>
    <span role="cell" class=${row.level === "error" ? "l-level bad" : "l-level"}>${row.level}</span>
    <span role="cell" class="l-text" title=${row.message.slice(0, 1_000)}><span class="dim">${row.attributes?.["resource.service.name"] ?? row.entity_name}</span> ${row.message.slice(0, 500)}</span>
  </div>`;
}

const logHead = headOf([["After", "l-at"], ["Level", "l-level"], ["Message", "l-text"]]);

/** The logs of a trace; with a span, its own ones are marked and can be had alone. */
function TraceLogs({ trace, id, span }) {
  const [own, setOwn] = useState(false);
  const params = { trace_id: id, ...around(trace) };
  const answer = useAnswer("/api/v1/telemetry/logs", { ...params, order: "asc", limit: MOST_LOGS, cells: 1_024 });
  const logs = answer.data?.data || [];
  const ofSpan = (row) => span && row.attributes?.span_id === span;
  const shown = own ? logs.filter(ofSpan) : logs;
  return html`<section aria-label="Logs of the trace"><h3>Logs of the trace</h3>
    <${Answering} answer=${answer} what="Reading logs" />
    ${answer.data && html`<div class="bar"><span class="dim">${answer.data.next_cursor ? `the first ${count(logs.length)}` : count(logs.length)}, ${count(logs.filter(ofSpan).length)} of this span (marked)</span>
      ${span && html`<label><input type="checkbox" checked=${own} onChange=${() => setOwn(!own)} /> only this span</label>`}
      <a href=${href("logs", params)}>open in Logs</a></div>`}
    ${shown.length > 0 ? html`<div class="short"><${VirtualList} rows=${shown} label="Logs of the trace" head=${logHead} row=${(row, index) => html`<${LogRow} row=${row} index=${index} origin=${trace.start} own=${!own && ofSpan(row)} />`} /></div>`
      : answer.data && html`<p class="dim">No log record carries ${own ? "this span's id" : "the id of this trace"}: log records have it as the attribute <code>trace_id</code>.</p>`}
  </section>`;
}

/** Details of a span beside its trace, with the logs of the trace. @param {{ trace: any, id: string, node: any, path: Map<any, [number, number][]> | null, close: () => void }} props without a node: the logs alone */
function SpanDrawer({ node, ...others }) {
  if (node) return html`<${OneSpan} node=${node} ...${others} />`;
  return html`<${Drawer} title="Logs of the trace" close=${others.close}><${TraceLogs} trace=${others.trace} id=${others.id} /></${Drawer}>`;
}

function OneSpan({ trace, id, node, path, close }) {
  const [row, unread] = useWhole(node.row, node.start, "/api/v1/telemetry/traces", { trace_id: id }, (other) => other.span_id === node.id);
  const { "otel.events": events, "otel.links": links, ...fields } = row.attributes || {};
  const critical = path && (path.get(node) || []).reduce((sum, [from, to]) => sum + to - from, 0);
  const day = { since: timeOf(node.start - 12 * SKEW), until: timeOf(node.end + 12 * SKEW) };
  const facts = [
    ["Service", html`<a href=${href("traces", { service: node.service, ...day })}>${node.service}</a>`],
    ["Status", html`<span class=${row.status === "error" ? "bad" : ""}>${row.status}</span>`],
    ["Began", `${time(row.ts)}, ${precise((node.start - trace.start) / 1_000)} after the trace`],
    ["Duration", precise(row.duration_ms)],
    ["Critical path", path && (critical ? `${precise(critical / 1_000)} of it` : "not on it")],
    ["Entity", row.entity_name],
    ["Signal", row.flux_id && html`<a href=${href("signal", { flux_id: row.flux_id })}>${row.flux_id}</a>`],
    ["Span", html`<code>${row.span_id}</code>`],
    ["Parent", row.parent_span_id && html`<code>${row.parent_span_id}</code>${!node.parent && " (not stored)"}`],
    ["Spans below", count(node.last - node.index)],
  ];
  return html`<${Drawer} title=${row.span_name.slice(0, 200)} close=${close}>
    <div class="bar"><a href=${href("traces", { service: node.service, span_name: row.span_name, ...day })}>spans of this name</a>
      <${CopyButton} text=${() => JSON.stringify(row, null, 2)}>JSON</${CopyButton}></div>
    <${Facts} facts=${facts} />
    ${unread}
    <h3>Attributes</h3><${Fields} fields=${fields} find=${(key, value) => href("traces", { [`attr.${key}`]: String(value), ...day })} />
    <${Events} events=${events} /><${Links} links=${links} />
    <${TraceLogs} trace=${trace} id=${id} span=${row.span_id} />
  </${Drawer}>`;
}

/** What of the address belongs to one trace. */
const OWN = ["trace_id", "span", "details", "find", "hide", "critical", "depth", "closed", "zoom"];
const DEPTHS = [1, 2, 3, 5, 10];
/** Spans folded one by one that an address holds. */
const MOST_CLOSED = 60;

function Summary({ id, trace, more }) {
  const first = trace.roots[0].row;
  return html`<div class="bar"><h2>${trace.roots[0].service} ${first.span_name.slice(0, 120)}</h2>
      <span>${precise((trace.end - trace.start) / 1_000)}</span><span>${time(first.ts)}</span><span>${count(trace.nodes.length)} spans</span><span>${count(trace.services.length)} services</span>
      ${trace.errors > 0 && html`<span class="bad">${count(trace.errors)} errors</span>`}
      ${trace.roots.length > 1 && html`<span class="dim" title="Spans whose parent is not stored begin trees of their own">${count(trace.roots.length)} roots</span>`}
      ${trace.fluxes.slice(0, 3).map((flux) => html`<a href=${href("signal", { flux_id: flux })}>signal ${flux.slice(-6)}</a>`)}
      ${trace.fluxes.length > 3 && html`<span class="dim">and ${count(trace.fluxes.length - 3)} more signals</span>`}
      <button onClick=${() => change({ details: "logs", span: null })}>Logs of the trace</button>
      <${CopyButton} text=${id} title="Copy the trace's id">id</${CopyButton}></div>
    ${trace.more && html`<p role="status">These are the first ${count(trace.nodes.length)} spans; there are more. <button onClick=${more}>Read ${count(MOST_SPANS)} more</button></p>`}
    ${trace.partial && html`<p class="bad" role="status">Spans are missing: ${trace.partial}</p>`}`;
}

function Tools({ params, shown, all, path }) {
  return html`<div class="bar" role="group" aria-label="Which spans are shown">
    <label>Filter <input type="search" data-search value=${params.get("find") || ""} onInput=${changeBy("find", true)} size="18" placeholder="text of name, service, attributes" /></label>
    <label>Hide below <input type="number" min="0" max="100" step="any" value=${params.get("hide") || ""} onInput=${changeBy("hide", true)} class="narrow" placeholder="0" /> % of the trace</label>
    <label>Levels <select value=${params.get("depth") || ""} onChange=${(event) => change({ depth: event.target.value, closed: null })}><option value="">all</option>${DEPTHS.map((depth) => html`<option value=${depth}>${depth}</option>`)}</select></label>
    <label><input type="checkbox" checked=${params.has("critical")} onChange=${(event) => change({ critical: event.target.checked ? "1" : null })} /> critical path</label>
    ${params.has("critical") && path.value && html`<label><input type="checkbox" checked=${params.get("critical") === "only"} onChange=${(event) => change({ critical: event.target.checked ? "only" : "1" })} /> only its ${count(path.value.size)} spans</label>`}
    ${params.has("closed") && html`<button onClick=${() => change({ closed: null })}>Unfold all</button>`}
    ${params.has("zoom") && html`<button onClick=${() => change({ zoom: null })}>Whole time</button>`}
    <span class="dim" role="status">${shown < all ? `${count(shown)} of ${count(all)} shown` : ""}</span>
    ${params.has("critical") && path.progress !== null && html`<${Waiting} what="Critical path" cancel=${() => change({ critical: null })} />`}
    <${ErrorBox} error=${path.error} /></div>`;
}

/** Folds and unfolds one span, which the address keeps. */
function fold(params, node, closed) {
  const others = params.getAll("closed").filter((id) => id !== node.id);
  change({ closed: closed ? [...others, node.id].slice(-MOST_CLOSED) : others }, true);
}

function Shown({ params, id, trace, more }) {
  const wantsPath = params.has("critical");
  const path = useWork(wantsPath ? "path" : null, (signal) => criticalPath(trace, signal));
  const closedKey = params.getAll("closed").join();
  const closed = useMemo(() => new Set(params.getAll("closed")), [closedKey]);
  const depth = Number(params.get("depth")) || Infinity;
  const wish = { closed, depth, text: params.get("find") || "", share: Number(params.get("hide")) || 0, path: params.get("critical") === "only" ? path.value : null };
  const rows = useMemo(() => shownSpans(trace, wish), [trace, closed, depth, wish.text, wish.share, wish.path]);
  const node = trace.byId.get(params.get("span"));
  const selected = useMemo(() => (node ? rows.indexOf(node) : -1), [rows, node]);
  const details = params.get("details");
  const close = () => change({ details: null });
  const open = (one) => change({ span: one.id, details: "span" });
  const toggle = (one, isClosed = !closed.has(one.id)) => one && one.children.length && fold(params, one, isClosed);
  useRowKeys({
    count: rows.length, selected, select: (index) => change({ span: rows[index].id }, true), open: (index) => open(rows[index]),
    more: { ArrowLeft: (index) => toggle(rows[index], true), ArrowRight: (index) => toggle(rows[index], false) },
  });
  const zoom = (from, to) => change({ zoom: zoomText(trace.start, from, to) });
  const view = zoomOf(params, trace);
  return html`<${Summary} id=${id} trace=${trace} more=${more} />
    <${TraceMap} trace=${trace} view=${view} zoom=${zoom} />
    <${Tools} params=${params} shown=${rows.length} all=${trace.nodes.length} path=${path} />
    ${rows.length > 0 ? html`<${Waterfall} trace=${trace} rows=${rows} view=${view} selected=${selected} isClosed=${(one) => closed.has(one.id) || one.depth + 1 >= depth} path=${wantsPath ? path.value : null} toggle=${toggle} open=${open} />`
      : html`<${EmptyState}>No span is left of ${count(trace.nodes.length)}. <button onClick=${() => change({ find: null, hide: null, critical: null })}>Show all</button></${EmptyState}>`}
    ${(details === "logs" || (details === "span" && node)) && html`<${SpanDrawer} key=${details} trace=${trace} id=${id} node=${details === "span" ? node : null} path=${wantsPath ? path.value : null} close=${close} />`}`;
}

export function TraceView({ params, trace: named }) {
  const id = named.trim().toLowerCase();
  const [most, setMost] = useState(MOST_SPANS);
  const read = useWork(`${id} ${most}`, (signal, progress) => readTrace(id, most, signal, progress));
  const trace = read.value;
  const search = new URLSearchParams([...params].filter(([key]) => !OWN.includes(key)));
  const asked = { trace_id: id, since: "1970-01-01T00:00:00Z", order: "asc", limit: 10_000 };
  return html`<div class="bar"><a href=${href("traces", search)}>← to the search</a>
      <${Question} path="/api/v1/telemetry/traces" params=${asked} command=${`platform trace ${id}`} sql=${`SELECT * FROM traces WHERE trace_id = ${literal(id)} ORDER BY ts`} /></div>
    <${Reading} read=${read} what="the trace" rows="spans" />
    ${trace?.nodes.length > 0 && html`<${Shown} key=${`${id} ${most}`} params=${params} id=${id} trace=${trace} more=${() => setMost(most + MOST_SPANS)} />`}
    ${trace?.nodes.length === 0 && html`<${EmptyState} command=${`platform logs --trace-id ${id} --since 7d`}>No span of trace ${id} is stored: its spans have not arrived, were not sampled, or are past their retention. Its logs may be there:</${EmptyState}>`}`;
}
