// Services: how many spans, errors and how slow; and which calls which, drawn and as a table.
import { useAnswer } from "../api.js";
import { age, count } from "../format.js";
import { html, useMemo } from "../html.js";
import { useTableKeys } from "../keys.js";
import { change, href } from "../location.js";
import { Chips } from "./chips.js";
import { Answering, EmptyState } from "./messages.js";
import { precise } from "./micros.js";
import { commandOf, Question } from "./question.js";
import { drawServiceMap, ServiceMap } from "./service_map.js";
import { isFilter, listFilters, oppositeOf } from "./span_search.js";

/** Rows of a table that are in the document. */
const SHOWN = 500;

const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(part ? 1 : 0)} %` : "");

/**
 * A table whose columns sort it; the order stands in the address.
 * @param {{ label: string, first: string, columns: { key: string, title: string, of?: (row: any) => any, show?: (row: any) => any, text?: boolean }[], rows: any[], params: URLSearchParams }} props
 *   `of`: what is sorted by, if not the field `key`; `show`: how it looks, if it is no count
 */
function SortedTable({ label, first, columns, rows, params }) {
  useTableKeys();
  const [name, way] = (params.get("sort") || first).split(":");
  const column = columns.find(({ key }) => key === name);
  const valueOf = column?.of || ((row) => row[name]);
  const compare = (one, other) => (one < other ? -1 : Number(one > other)) * (way === "up" ? 1 : -1);
  const sorted = column ? rows.toSorted((one, other) => compare(valueOf(one), valueOf(other))) : rows;
  const next = (key) => change({ sort: name === key && way !== "up" ? `${key}:up` : `${key}:down` });
  const sortOf = (key) => (key !== name ? undefined : way === "up" ? "ascending" : "descending");
  return html`<div class="scrolled"><table aria-label=${label}><thead><tr>
      ${columns.map(({ key, title, text }) => html`<th scope="col" class=${text ? "" : "number"} aria-sort=${sortOf(key)}><button class="quiet" onClick=${() => next(key)}>${title}${key === name ? (way === "up" ? " ↑" : " ↓") : ""}</button></th>`)}</tr></thead>
    <tbody>${sorted.slice(0, SHOWN).map((row) => html`<tr>${columns.map(({ key, show, text }) => html`<td class=${text ? "" : "number"}>${show ? show(row) : count(row[key])}</td>`)}</tr>`)}</tbody></table></div>
    ${rows.length > SHOWN && html`<p class="dim">The first ${SHOWN} of ${count(rows.length)}: sort by another column, or filter.</p>`}`;
}

function useServices(path, params) {
  const filters = listFilters(params);
  return { path, filters, answer: useAnswer(path, filters) };
}

function Asked({ asked: { path, filters, answer }, what, command, params }) {
  const ignored = ["roots", "max_duration_ms"].filter((key) => params.has(key));
  return html`<${Chips} params=${params} keys=${(key) => isFilter(key) && !ignored.includes(key)} opposite=${oppositeOf} />
    <${Question} path=${path} params=${filters} command=${commandOf(command, filters)} />
    ${ignored.length > 0 && html`<p class="dim">Without ${ignored.join(" and ")}, which services cannot be asked by.</p>`}
    <${Answering} answer=${answer} what=${what} />
    ${answer.data?.partial && html`<p class="bad" role="status">Rows are missing: ${answer.data.partial}</p>`}`;
}

/** The address of spans of a service in the same time. */
const spansOf = (params, more) => href("traces", { since: params.get("since"), until: params.get("until"), ...more });

export function Services({ params }) {
  const asked = useServices("/api/v1/telemetry/services", params);
  const rows = asked.answer.data?.data || [];
  const columns = [
    { key: "service", title: "Service", show: (row) => html`<a href=${spansOf(params, { service: row.service })}>${row.service}</a>`, text: true },
    { key: "spans", title: "Spans" },
    { key: "errors", title: "Errors", show: (row) => (row.errors ? html`<a href=${spansOf(params, { service: row.service, status: "error" })}>${count(row.errors)}</a>` : "0") },
    { key: "rate", title: "In errors", of: (row) => row.errors / row.spans, show: (row) => percent(row.errors, row.spans) },
    { key: "p50", title: "Median", of: (row) => row.p50_ms, show: (row) => precise(row.p50_ms) },
    { key: "p99", title: "99 %", of: (row) => row.p99_ms, show: (row) => html`<a href=${spansOf(params, { service: row.service, min_duration_ms: String(Math.min(row.p99_ms, Number(row.p99_ms.toPrecision(3)))) })} title="The slowest spans">${precise(row.p99_ms)}</a>` },
    { key: "seen", title: "Last seen", of: (row) => row.last_seen, show: (row) => age(row.last_seen) },
  ];
  return html`<${Asked} asked=${asked} params=${params} what="Counting spans by service" command="platform services" />
    ${rows.length > 0 ? html`<${SortedTable} label="Services" first="p99:down" columns=${columns} rows=${rows} params=${params} />`
      : asked.answer.data && html`<${EmptyState} command="platform services --since 7d">No service has spans in this time.</${EmptyState}>`}`;
}

export function Dependencies({ params }) {
  const asked = useServices("/api/v1/telemetry/dependencies", params);
  const rows = asked.answer.data?.data || [];
  const drawing = useMemo(() => drawServiceMap(rows), [asked.answer.data]);
  const columns = [
    { key: "caller", title: "Caller", show: (row) => html`<a href=${spansOf(params, { service: row.caller })}>${row.caller}</a>`, text: true },
    { key: "callee", title: "Called", show: (row) => html`<a href=${spansOf(params, { service: row.callee })}>${row.callee}</a>`, text: true },
    { key: "calls", title: "Calls" },
    { key: "errors", title: "Errors", show: (row) => (row.errors ? html`<a href=${spansOf(params, { service: row.callee, status: "error" })}>${count(row.errors)}</a>` : "0") },
    { key: "rate", title: "In errors", of: (row) => row.errors / row.calls, show: (row) => percent(row.errors, row.calls) },
  ];
  return html`<${Asked} asked=${asked} params=${params} what="Joining spans with their parents" command="platform dependencies" />
    ${rows.length > 0 ? html`<${ServiceMap} drawing=${drawing} /><${SortedTable} label="Which service calls which" first="calls:down" columns=${columns} rows=${rows} params=${params} />`
      : asked.answer.data && html`<${EmptyState} command="platform dependencies --since 7d">No service called another in this time: a call is a span whose parent is a span of another service.</${EmptyState}>`}`;
}
