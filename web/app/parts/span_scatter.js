// Durations of spans over time, one point each, on a logarithmic scale: a press opens the trace, a drag zooms into its times and durations.
import { count, isUtc, time } from "../format.js";
import { html } from "../html.js";
import { change } from "../location.js";
import { interval } from "../time_range.js";
import { Canvas } from "./canvas.js";
import { marks, precise, timeOf } from "./micros.js";

const [HEIGHT, LEFT, BOTTOM, TOP, RIGHT] = [150, 62, 18, 8, 10];
/** How near a point has to be to be picked, px. */
const NEAR = 10;
/** Points that are drawn round; of more, squares are faster. */
const ROUND = 2_000;

/** From times and durations to places, and back. */
function scales(rows, { from, to }) {
  let [least, most] = [Infinity, -Infinity];
  for (const { duration_ms: ms } of rows) [least, most] = [Math.min(least, Math.max(ms, 1e-4)), Math.max(most, ms)];
  const [low, high] = [Math.log10(least) - 0.1, Math.log10(Math.max(most, least)) + 0.1];
  const size = HEIGHT - TOP - BOTTOM;
  return {
    low,
    high,
    x: (at, width) => LEFT + ((at - from) / (to - from)) * (width - LEFT - RIGHT),
    y: (ms) => TOP + size * (1 - (Math.log10(Math.max(ms, 1e-4)) - low) / (high - low)),
    at: (x, width) => from + ((x - LEFT) / (width - LEFT - RIGHT)) * (to - from),
    ms: (y) => 10 ** (low + (1 - (y - TOP) / size) * (high - low)),
  };
}

/** A round number of µs between about so many marks of time; labels have milliseconds. */
function stepOf(from, to, about) {
  if ((to - from) / about >= 1e6) return 1_000 * interval({ from: from / 1_000, to: to / 1_000 }, about).ms;
  return Math.max(1_000, marks(0, to - from, Math.max(3, about))[1]);
}

function drawAxes(context, { width, colour }, scale, { from, to }) {
  context.strokeStyle = colour("--line");
  context.fillStyle = colour("--ink-2");
  context.textBaseline = "middle";
  const line = (...points) => {
    context.beginPath();
    context.moveTo(points[0], points[1]);
    context.lineTo(points[2], points[3]);
    context.stroke();
  };
  const powers = marks(scale.low, scale.high, 4).map((power) => 10 ** power);
  for (const ms of powers) {
    line(LEFT, scale.y(ms), width - RIGHT, scale.y(ms));
    context.fillText(precise(Number(ms.toPrecision(2))), 4, scale.y(ms));
  }
  const days = to - from > 86_400e6;
  const step = stepOf(from, to, Math.max(2, width / 120));
  // Round ones of the zone in which they are written.
  const zone = isUtc() ? 0 : 60e6 * new Date(from / 1_000).getTimezoneOffset();
  for (let at = Math.ceil((from - zone) / step) * step + zone; at < to; at += step) {
    const text = time(timeOf(Math.round(at)));
    line(scale.x(at, width), HEIGHT - BOTTOM, scale.x(at, width), HEIGHT - BOTTOM + 4);
    context.textAlign = "center";
    const label = days ? text.slice(5, 16) : text.slice(11, to - from < 60e6 ? 23 : step < 60e6 ? 19 : 16);
    context.fillText(label, Math.min(scale.x(at, width), width - context.measureText(label).width / 2 - 2), HEIGHT - 6);
  }
  context.textAlign = "left";
}

/** @param {{ rows: any[], window: { from: number, to: number }, open: (row: any) => void }} props the window in µs */
export function SpanScatter({ rows, window, open }) {
  const scale = scales(rows, window);
  const draw = (context, area) => {
    drawAxes(context, area, scale, window);
    for (const status of ["ok", "error"]) {
      context.fillStyle = area.colour(status === "error" ? "--level-error" : "--c1");
      context.globalAlpha = status === "error" ? 0.9 : 0.55;
      for (const row of rows) {
        if ((row.status === "error") !== (status === "error")) continue;
        const [x, y] = [scale.x(row.at, area.width), scale.y(row.duration_ms)];
        if (rows.length > ROUND) {
          context.fillRect(x - 2, y - 2, 4, 4);
          continue;
        }
        context.beginPath();
        context.arc(x, y, 3, 0, 7);
        context.fill();
      }
    }
  };
  const nearest = (x, y, width) => {
    /** @type {any} */
    let [found, best] = [null, NEAR * NEAR];
    for (const row of rows) {
      const away = (scale.x(row.at, width) - x) ** 2 + (scale.y(row.duration_ms) - y) ** 2;
      if (away < best) [found, best] = [row, away];
    }
    return found;
  };
  const brush = ({ left, right, top, bottom, width }) => {
    const times = { since: timeOf(Math.max(window.from, scale.at(left, width))), until: timeOf(scale.at(right, width)) };
    const tall = bottom - top > 24;
    const rounded = (ms) => String(Number(ms.toPrecision(3)));
    change({ ...times, ...(tall ? { min_duration_ms: rounded(scale.ms(bottom)), max_duration_ms: rounded(scale.ms(top)) } : {}) });
  };
  const tip = (x, y, width) => {
    const row = nearest(x, y, width);
    return row ? `${row.entity_name} ${row.span_name}: ${precise(row.duration_ms)}, ${time(row.ts)}` : "";
  };
  const errors = rows.filter(({ status }) => status === "error").length;
  return html`<figure class="chart"><${Canvas} draw=${draw} height=${HEIGHT} drawn=${[rows, window.from, window.to, isUtc()]}
      label=${`Durations of ${count(rows.length)} spans over time; the list has them as rows`}
      pick=${(x, y, width) => { const row = nearest(x, y, width); if (row) open(row); }} brush=${brush} tip=${tip} />
    <figcaption><span><i style=${{ background: "var(--c1)" }}></i>ok ${count(rows.length - errors)}</span><span><i style=${{ background: "var(--level-error)" }}></i>error ${count(errors)}</span>
      <span>press a point: its trace; drag: zoom</span></figcaption></figure>`;
}
