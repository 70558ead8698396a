// How many records there were over time, split by level, entity or any attribute. A brush zooms.
import { request } from "../api.js";
import { count, duration } from "../format.js";
import { html, useEffect } from "../html.js";
import { change } from "../location.js";
import { interval, range } from "../time_range.js";
import { Chart } from "./chart.js";
import { nameOf } from "./log_list.js";
import { PATH, question, whereOf } from "./log_query.js";
import { ErrorBox, Waiting } from "./messages.js";
import { LEVELS } from "./question.js";
import { useKept, useWork } from "./work.js";

/** Values that are told apart; the others are counted together. */
const MOST = 7;
const OTHER = "(other)";
/** Bars that are drawn at most: the last ones. */
const BARS = 999;
/** Rounds of live tail, ms. */
const EVERY = 10_000;
/** Columns as texts. */
const COLUMNS = { level: "CAST(level AS TEXT)", message: "message", flux_id: "uuid_text(flux_id)", entity_id: "uuid_text(entity_id)" };
const BUILT_IN = ["none", "level", "entity_name"];

/** The width of buckets; below a minute in milliseconds. */
function step(params) {
  const { from, to } = range(params);
  if (!(to - from < 60_000)) return interval({ from, to });
  const ms = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000].find((width) => (to - from) / 60 <= width);
  return { text: `${ms}ms`, ms };
}

/** Counts by an attribute, which the API does not split by, are asked as SQL: of the most frequent values, and of all others together. */
async function counted(params, by, width, signal) {
  if (BUILT_IN.includes(by)) {
    const { data, partial } = await request(`${PATH}/histogram`, { params: { ...question(params), by, interval: width.text, fill: false }, signal });
    return { partial, points: data.map((point) => ({ ts: point.ts, count: point.count, value: by === "none" ? "records" : point[by] })) };
  }
  const top = await request(`${PATH}/top`, { params: { ...question(params), field: by, limit: MOST }, signal });
  const parameters = [];
  const bind = (value) => `$${parameters.push(value)}`;
  const value = by.startsWith("attr.") ? `attributes->>${bind(by.slice(5))}` : COLUMNS[by] || COLUMNS.level;
  const known = bind(top.data.map((one) => String(one.value)));
  const query = `SELECT time_bucket(INTERVAL '${width.ms} milliseconds', ts) AS ts, CASE WHEN v = ANY(${known}) THEN v WHEN v IS NULL THEN '(none)' ELSE '${OTHER}' END AS value, count(*) AS count
    FROM (SELECT ts, ${value} AS v FROM logs WHERE ${whereOf(params, bind)}) GROUP BY 1, 2`;
  const { data, stats } = await request("/api/v1/sql", { method: "POST", body: { query, parameters }, signal });
  return { points: data, partial: stats.partial };
}

/** Series of a chart: the largest by themselves, those of levels in their order. */
function seriesOf(points, params, width) {
  const { from, to } = range(params);
  const first = Math.floor(Math.max(from, to - BARS * width.ms) / width.ms);
  const times = [];
  for (let at = first; at * width.ms < to; at += 1) times.push((at + 0.5) * width.ms);
  const totals = new Map();
  for (const { value, count } of points) totals.set(value, (totals.get(value) || 0) + count);
  const rank = (name) => (LEVELS.includes(name) ? LEVELS.indexOf(name) - 10 : name.startsWith("(") ? 10 : 0);
  const names = [...totals.keys()].sort((a, b) => rank(a) - rank(b) || totals.get(b) - totals.get(a));
  const apart = names.slice(0, MOST + 2);
  const values = new Map(apart.map((name) => [name, times.map(() => 0)]));
  if (names.length > apart.length) values.set(OTHER, values.get(OTHER) || times.map(() => 0));
  for (const { ts, value, count } of points) {
    const at = Math.floor(Date.parse(ts) / width.ms) - first;
    const row = values.get(value) || values.get(OTHER);
    if (row && at >= 0 && at < row.length) row[at] += count;
  }
  const total = [...totals.values()].reduce((sum, one) => sum + one, 0);
  return { times, series: [...values].map(([name, counts]) => ({ name, values: counts })), total };
}

/** The counts, asked again every so often while it is live; the last ones stay until there are others. */
function useHistogram(params, by, ready, live) {
  const key = ready ? JSON.stringify([question(params), by, ready]) : null;
  const { value, error, progress, stop, again } = useWork(key, async (signal) => {
    const width = step(params);
    const { points, partial } = await counted(params, by, width, signal);
    return { ...seriesOf(points, params, width), partial, width };
  });
  const counts = useKept(value, error);
  const loading = progress !== null;
  useEffect(() => {
    if (!live || loading) return;
    const timer = setInterval(() => document.hidden || again(), EVERY);
    return () => clearInterval(timer);
  }, [live, loading]);
  return { counts, error, loading, again, stop };
}

/** @param {{ params: URLSearchParams, ready: any, live: boolean, known: string[] }} props asked when `ready`, and again when it changes */
export function LogHistogram({ params, ready, live, known }) {
  const by = params.get("by") || "level";
  const { counts, error, loading, again, stop } = useHistogram(params, by, ready, live);
  const chosen = [...new Set([...BUILT_IN, by, ...known])];
  const zoom = (from, to) => change({ since: new Date(from).toISOString(), until: new Date(Math.ceil(to)).toISOString(), live: null });
  return html`<section class="histogram" aria-label="Records over time">
    <div class="bar">
      <label>Split by <select value=${by} onChange=${(event) => change({ by: event.target.value === "level" ? null : event.target.value })}>
        ${chosen.map((field) => html`<option value=${field}>${field === "none" ? "nothing" : nameOf(field)}</option>`)}
      </select></label>
      ${counts && html`<span class="dim"><b>${count(counts.total)}</b> records, bars of ${duration(counts.width.ms)}${counts.partial ? `; incomplete: ${counts.partial}` : ""}</span>`}
      ${loading && !live && html`<${Waiting} what="Counting" cancel=${stop} />`}
    </div>
    <${ErrorBox} error=${error} again=${again} />
    ${counts?.total > 0 && html`<${Chart} times=${counts.times} series=${counts.series} stacked height=${120} unit=${(tick) => count(tick, true)} label="Records over time; drag to zoom" zoom=${zoom} />`}
  </section>`;
}
