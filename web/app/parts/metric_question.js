// What a chart asks the Mixer, and the series in what is answered.
import { useAnswer } from "../api.js";
import { useEffect } from "../html.js";
import { ageOf } from "../time_range.js";
import { commandOf } from "./question.js";

/** Series that one chart has at most; of more, the first by name. */
export const MOST_SERIES = 50;
/** Rows of a page where a chart is made of rows, and pages that are read. */
export const [ROWS, PAGES] = [10_000, 10];

/** How values may be brought together, by the type of the metric; the first is what is usual. */
const AGGREGATES = {
  gauge: ["avg", "min", "max", "sum", "last", "count", "rate"],
  counter: ["rate", "avg", "min", "max", "sum", "last", "count"],
  histogram: ["p95", "p50", "p90", "p99", "p999", "mean", "observed", "rate", "count"],
};
const SAID = { observed: "observations/s", mean: "mean", rate: "rate", count: "points" };

/** @returns {[string, string][]} values and texts, with the one that the address has, even if it is unusual */
export function aggregates(type, chosen) {
  const known = AGGREGATES[type] || AGGREGATES.gauge;
  return [...new Set([...known, chosen].filter(Boolean))].map((value) => [value, SAID[value] || value]);
}

export const usualAggregate = (type) => (AGGREGATES[type] || AGGREGATES.gauge)[0];

/** The metric's part of the API. */
export const metricPath = (name, rest = "") => `/api/v1/telemetry/metrics/${encodeURIComponent(name)}${rest}`;

/** An answer that is asked for again in each round, unless it is still awaited. */
export function useRoundAnswer(round, path, params, options) {
  const answer = useAnswer(path, params, options);
  useEffect(() => {
    if (round && path && !answer.loading) answer.again();
  }, [round]);
  return answer;
}

/**
 * @param {import("./metric_board.js").ChartSpec} chart
 * @param {string} agg  @param {{ since: string, until: string | null }} bounds  @param {string} interval
 */
export function questionOf(chart, agg, bounds, interval) {
  const filters = Object.fromEntries(chart.filters);
  const shared = { ...bounds, interval, group_by: chart.group, ...filters };
  // How much was observed is a column of rows only; what a histogram's values are on average is what is answered without an aggregate.
  const params = agg === "observed" ? { ...shared, limit: ROWS } : { ...shared, agg: agg === "mean" ? null : agg, shape: "series", fill: true, limit: MOST_SERIES };
  return { path: metricPath(chart.name), params, command: commandOf("platform metrics", { name: chart.name, ...bounds, interval, group_by: chart.group, agg: agg === "mean" || agg === "observed" ? null : agg, ...filters }) };
}

const numeric = (value) => (value === null || value === undefined || !Number.isFinite(Number(value)) ? null : Number(value));
const groupOf = (row, group) => (group in row ? row[group] : row.labels?.[group]) ?? null;

/**
 * @param {any} answer  @param {string} group  @param {string} interval that was asked for
 * @returns {{ times: number[], series: { name: string, group: string | null, values: (number | null)[] }[], more: boolean }} times in milliseconds
 */
export function seriesOf(answer, group, agg, interval) {
  const rows = answer.data;
  const step = ageOf(rows[0]?.interval || interval);
  const starts = rows.map(({ ts }) => Date.parse(ts));
  const first = starts.reduce((least, one) => Math.min(least, one), Infinity);
  const ends = rows.map(({ values }, at) => starts[at] + step * (values?.length ?? 1));
  const length = rows.length ? Math.round((ends.reduce((most, one) => Math.max(most, one), 0) - first) / step) : 0;
  const lines = new Map();
  rows.forEach((row, at) => {
    const of = group ? groupOf(row, group) : null;
    const name = group ? (of === null ? `(no ${group})` : String(of)) : row.name;
    if (!lines.has(name)) lines.set(name, { name, group: of === null ? null : String(of), values: Array(length).fill(null) });
    const { values } = lines.get(name);
    const from = Math.round((starts[at] - first) / step);
    if (row.values) row.values.forEach((value, index) => (values[from + index] = numeric(value)));
    else values[from] = agg === "observed" ? (1_000 * (numeric(row.count) ?? 0)) / step : numeric(row.value);
  });
  const times = Array.from({ length }, (_, at) => first + at * step);
  return { times, series: [...lines.values()], more: Boolean(answer.next_cursor) };
}

/** The last, least, mean and greatest of values; null where there is none. */
export function summary(values) {
  const known = values.filter((value) => value !== null);
  if (!known.length) return { last: null, least: null, mean: null, most: null };
  return {
    last: known.at(-1),
    least: known.reduce((a, b) => Math.min(a, b)),
    mean: known.reduce((a, b) => a + b) / known.length,
    most: known.reduce((a, b) => Math.max(a, b)),
  };
}
