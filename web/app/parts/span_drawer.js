// Details of a span beside its trace: what it was, its attributes and events, and the logs of the trace, its own ones marked.
import { useAnswer } from "../api.js";
import { count, time } from "../format.js";
import { html, useState } from "../html.js";
import { href } from "../location.js";
import { CopyButton } from "./copy_button.js";
import { Drawer, Facts, Fields, LongText } from "./drawer.js";
import { Answering } from "./messages.js";
import { micros, precise, timeOf } from "./micros.js";
import { headOf, VirtualList } from "./virtual_list.js";
import { useWhole } from "./whole_row.js";

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

/** @param {{ trace: any, id: string, node: any, path: Map<any, [number, number][]> | null, close: () => void }} props without a node: the logs alone */
export function SpanDrawer({ node, ...others }) {
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
