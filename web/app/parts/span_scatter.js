// Durations of spans over time, one point each, on a logarithmic scale: a press opens the trace, a drag zooms into its times and durations.
import { count, time } from "../format.js";
import { html, useMemo } from "../html.js";
import { change } from "../location.js";
import { colour, nearest, placeOf, Plot, timeAxis } from "./chart.js";
import { marks, precise, timeOf } from "./micros.js";

/** Points that are drawn round; of more, squares are faster. */
const ROUND = 2_000;

/** Marks of durations, from one to another. */
const powers = (_, __, least, most) => marks(Math.log10(least), Math.log10(most), 4).map((power) => 10 ** power);

function drawPoints(context, plot, points) {
  for (const isBad of [false, true]) {
    context.fillStyle = colour(isBad ? "--level-error" : "--c1");
    context.globalAlpha = isBad ? 0.9 : 0.55;
    for (const point of points) {
      if ((point.row.status === "error") !== isBad) continue;
      const [x, y] = placeOf(plot, point);
      if (points.length > ROUND) {
        context.fillRect(x - 2, y - 2, 4, 4);
        continue;
      }
      context.beginPath();
      context.arc(x, y, 3, 0, 7);
      context.fill();
    }
  }
}

/** @param {{ rows: any[], window: { from: number, to: number }, open: (row: any) => void }} props the window in µs */
export function SpanScatter({ rows, window, open }) {
  // The scale of values has no place for 0.
  const points = useMemo(() => rows.map((row) => ({ row, at: row.at / 1_000, value: Math.max(row.duration_ms, 1e-4) })).reverse(), [rows]);
  const data = useMemo(() => [points.map(({ at }) => at), points.map(({ value }) => value)], [points, window.from, window.to]);
  const options = (_, axis, now) => ({
    // A drag draws a box.
    cursor: { drag: { y: true } },
    scales: { x: { range: () => [now.current.window.from / 1_000, now.current.window.to / 1_000] }, y: { distr: 3, range: (__, least, most) => [least / 1.25, most * 1.25] } },
    axes: [{ ...timeAxis(axis), size: 34 }, { ...axis, size: 62, splits: powers, filter: (__, ticks) => ticks, values: (__, ticks) => ticks.map((ms) => precise(Number(ms.toPrecision(2)))) }],
    series: [{}, { paths: () => null, points: { show: false } }],
  });
  const brush = (from, to, low, high) => {
    const rounded = (ms) => String(Number(ms.toPrecision(3)));
    const durations = low === undefined ? {} : { min_duration_ms: rounded(low), max_duration_ms: rounded(high) };
    change({ since: timeOf(Math.max(window.from, from * 1_000)), until: timeOf(Math.ceil(to * 1_000)), ...durations });
  };
  const errors = rows.filter(({ status }) => status === "error").length;
  return html`<figure class="chart"><${Plot} height=${150} data=${data} options=${options} window=${window} zoom=${brush} label=${`Durations of ${count(rows.length)} spans over time; the list has them as rows`}
      find=${(plot, left, top) => nearest(plot, points, left, top)} press=${({ row }) => open(row)} tip=${({ row }) => `${row.entity_name} ${row.span_name}: ${precise(row.duration_ms)}, ${time(row.ts)}`}
      paint=${(context, plot) => drawPoints(context, plot, points)} />
    <figcaption><span><i style=${{ background: "var(--c1)" }}></i>ok ${count(rows.length - errors)}</span><span><i style=${{ background: "var(--level-error)" }}></i>error ${count(errors)}</span>
      <span>press a point: its trace; drag: zoom</span></figcaption></figure>`;
}
