// Exemplars of a metric: observations with the trace in which they were made, as marks of a chart and as a list.
import { time } from "../format.js";
import { html, useMemo } from "../html.js";
import { href } from "../location.js";
import { ColumnList } from "./column_list.js";
import { Answering } from "./messages.js";
import { metricPath, useRoundAnswer } from "./metric_question.js";

/** The newest are looked at. */
const MOST = 500;
const NONE = [];

/** The view of the trace that an exemplar was in. */
const traceOf = ({ trace_id, span_id }) => (trace_id ? href("traces", { trace_id, span: span_id }) : null);

/**
 * @param {import("./metric_board.js").ChartSpec | null} chart none: nothing is asked
 * @param {number} round asked again when it changes  @param {boolean} sameUnit whether the chart has values as exemplars have
 */
export function useExemplars(chart, bounds, round, sameUnit) {
  const answer = useRoundAnswer(round, chart && metricPath(chart.name, "/exemplars"), chart ? { ...bounds, limit: MOST, ...Object.fromEntries(chart.filters) } : {});
  const rows = (chart && answer.data?.data) || NONE;
  const marks = useMemo(
    () => rows.filter(traceOf).map((row) => ({ at: Date.parse(row.ts), value: sameUnit ? Number(row.value) : null, to: traceOf(row) })),
    [rows, sameUnit],
  );
  return { rows, marks, answer };
}

const labelsOf = ({ labels, attributes }) =>
  Object.entries({ ...labels, ...attributes }).filter(([key]) => !key.startsWith("otel.")).map(([key, value]) => `${key}=${value}`).join(" ");

/** @param {{ exemplars: ReturnType<typeof useExemplars>, unit: any, label: string }} props */
export function ExemplarList({ exemplars: { rows, answer }, unit, label }) {
  if (!answer.data) return html`<${Answering} answer=${answer} what="Asking for exemplars" />`;
  if (!rows.length) return html`<p class="dim">No exemplars in this range: the sender attaches them, in OpenTelemetry when a measurement is made within a sampled span.</p>`;
  const columns = [
    { name: "time", title: "time", width: 112, cell: (one) => time(one.ts).slice(5, 19) },
    { name: "value", title: "value", width: 84, number: true, cell: (one) => unit.one(Number(one.value)) },
    { name: "trace", title: "trace", width: 96, cell: (one) => (traceOf(one) ? html`<a href=${traceOf(one)} title=${one.trace_id}>${one.trace_id.slice(0, 8)}…</a>` : "no trace") },
    { name: "entity", title: "entity", width: 90, cell: (one) => one.entity_name },
    { name: "labels", title: "labels", width: 320, cell: labelsOf },
  ];
  return html`<div class="metric-exemplars"><${ColumnList} label=${label} columns=${columns} rows=${rows} keyOf=${(row) => String(rows.indexOf(row))} /></div>`;
}
