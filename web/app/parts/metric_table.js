// What stands beside a chart: its values as a table, for who does not see the chart, and as CSV; and its exemplars, observations with the trace
// in which they were made, as marks and as a list.
import { count, time } from "../format.js";
import { html, useMemo } from "../html.js";
import { href } from "../location.js";
import { Table } from "./layout.js";
import { ColumnList } from "./column_list.js";
import { Answering } from "./messages.js";
import { metricPath, summary, useRoundAnswer } from "./metric_question.js";
import { savePages } from "./save_file.js";
import { useJob } from "./work.js";

/** Exemplars that are looked at: the newest. */
const MOST = 500;
const NONE = [];

/** The name of a series; a press leaves only that one. */
export function SeriesName({ name, group, only }) {
  return only && group !== null ? html`<button class="quiet" title="Only this one" onClick=${() => only(group)}>${name}</button>` : html`<span>${name}</span>`;
}

/** @param {{ times: number[], series: any[], unit: any, label: string, only?: (group: string) => void }} props */
export function MetricTable({ times, series, unit, label, only }) {
  const value = ({ name, values }) => ({ title: html`<span title=${name}>${name}</span>`, width: 112, number: true, cell: (index) => unit.one(values[index]) });
  const columns = [{ title: "time", width: 112, cell: (index) => time(times[index]).slice(5, 19) }, ...series.map(value)];
  return html`<div class="metric-table">
    <${Table} label=${`${label}: each series`} heads=${["series", "last", "min", "mean", "max"]} numbers=${[1, 2, 3, 4]}
      rows=${series.map(({ name, group, values }) => [html`<${SeriesName} name=${name} group=${group} only=${only} />`, ...Object.values(summary(values)).map(unit.one)])} />
    <${ColumnList} label=${`${label}: each bucket of time`} columns=${columns} rows=${[...times.keys()].reverse()} keyOf=${String} />
  </div>`;
}

/** Has all pages of a question saved as CSV. @returns {Promise<string>} what is missing */
async function saveCsv({ path, params: { shape, fill, ...params } }, name, signal, said) {
  const { partial } = await savePages({ path, params }, { name, format: "csv" }, signal, said);
  return partial && `incomplete: ${partial}`;
}

/** Exports what a chart shows, all of it, as CSV; pressed again, it stops. */
export function CsvButton({ question, name }) {
  const { run, stop, progress, value, error } = useJob();
  const save = () => (progress === null ? run((signal, said) => saveCsv(question, name, signal, said)) : stop());
  return html`<button class="quiet" onClick=${save} title="Export as CSV">CSV<span role="status">${progress !== null ? ` ${count(progress)} rows … stop` : ` ${error?.message || value || ""}`}</span></button>`;
}

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
    { title: "time", width: 112, cell: (one) => time(one.ts).slice(5, 19) },
    { title: "value", width: 84, number: true, cell: (one) => unit.one(Number(one.value)) },
    { title: "trace", width: 96, cell: (one) => (traceOf(one) ? html`<a href=${traceOf(one)} title=${one.trace_id}>${one.trace_id.slice(0, 8)}…</a>` : "no trace") },
    { title: "entity", width: 90, cell: (one) => one.entity_name },
    { title: "labels", width: 320, cell: labelsOf },
  ];
  return html`<div class="metric-exemplars"><${ColumnList} label=${label} columns=${columns} rows=${rows} keyOf=${(row) => String(rows.indexOf(row))} /></div>`;
}
