// Exemplars of a metric: observations with the trace in which they were made, as marks of a chart and as a list.
import { useAnswer } from "../api.js";
import { time } from "../format.js";
import { html, useEffect, useMemo } from "../html.js";
import { href } from "../location.js";
import { ErrorBox } from "./messages.js";
import { metricPath } from "./metric_question.js";
import { VirtualList } from "./virtual_list.js";

/** The newest are looked at. */
const MOST = 500;

/** The view of the trace that an exemplar was in. */
const traceOf = ({ trace_id, span_id }) => (trace_id ? href("traces", { trace_id, span: span_id }) : null);

/**
 * @param {import("./metric_board.js").ChartSpec | null} chart none: nothing is asked
 * @param {number} round asked again when it changes  @param {boolean} sameUnit whether the chart has values as exemplars have
 */
export function useExemplars(chart, bounds, round, sameUnit) {
  const answer = useAnswer(chart && metricPath(chart.name, "/exemplars"), chart ? { ...bounds, limit: MOST, ...Object.fromEntries(chart.filters) } : {});
  useEffect(() => {
    if (round && chart && !answer.loading) answer.again();
  }, [round]);
  const rows = (chart && answer.data?.data) || null;
  const marks = useMemo(
    () => (rows || []).filter(traceOf).map((row) => ({ at: Date.parse(row.ts), value: sameUnit ? Number(row.value) : null, to: traceOf(row) })),
    [rows, sameUnit],
  );
  return { rows, marks, error: answer.error, again: answer.again };
}

const labelsOf = ({ labels, attributes }) =>
  Object.entries({ ...labels, ...attributes }).filter(([key]) => !key.startsWith("otel.")).map(([key, value]) => `${key}=${value}`).join(" ");

/** @param {{ exemplars: ReturnType<typeof useExemplars>, unit: any, label: string }} props */
export function ExemplarList({ exemplars: { rows, error, again }, unit, label }) {
  if (error) return html`<${ErrorBox} error=${error} again=${again} />`;
  if (!rows) return html`<p class="dim" role="status">Asking for exemplars</p>`;
  if (!rows.length) return html`<p class="dim">No exemplars in this range: the sender attaches them, in OpenTelemetry when a measurement is made within a sampled span.</p>`;
  const cell = (width, text, number) => html`<span role="cell" class=${number ? "number" : ""} title=${text} style=${{ width: `${width}px` }}>${text}</span>`;
  const row = (one, index) => html`<div role="row" key=${index}>
    ${cell(112, time(one.ts).slice(5, 19))}${cell(84, unit.one(Number(one.value)), true)}
    <span role="cell" style=${{ width: "96px" }}>${traceOf(one) ? html`<a href=${traceOf(one)} title=${one.trace_id}>${one.trace_id.slice(0, 8)}…</a>` : "no trace"}</span>
    ${cell(90, one.entity_name)}${cell(320, labelsOf(one))}</div>`;
  const head = html`<div role="row" class="head">${[["time", 112], ["value", 84], ["trace", 96], ["entity", 90], ["labels", 320]].map(([name, width]) => html`<span role="columnheader" style=${{ width: `${width}px` }}>${name}</span>`)}</div>`;
  return html`<div class="metric-exemplars"><${VirtualList} rows=${rows} height=${24} row=${row} head=${head} label=${label} /></div>`;
}
