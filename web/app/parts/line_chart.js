// Lines over a time axis that several charts share: their cursors go in step, a brush zooms, marks lead somewhere. New values are put into
// what is drawn already. Beyond eight series colours come again, with dashes.
import { html, useMemo } from "../html.js";
import { visit } from "../location.js";
import { COLOURS, colour, nearest, placeColour, placeOf, Plot, timeAxis } from "./chart.js";

/** The colour of a series before its name; one that has dashes is dotted. */
export const swatch = (at) => (at < COLOURS ? { background: placeColour(at) } : { border: `2px dotted ${placeColour(at)}` });

/** From 0, unless the values differ little from each other. */
function valueRange(UPlot, least, most) {
  if (least === null || most === null) return [0, 1];
  if (least >= 0 && most - least > most * 0.1) return [0, most * 1.06];
  return least === most ? [Math.min(0, least), Math.max(0, most) || 1] : UPlot.rangeNum(least, most, 0.1, false);
}

/** How far apart filled buckets usually are: a metric that comes every minute has no gaps in buckets of 20 seconds. */
function usualDistance(values) {
  const distances = [];
  let before = -1;
  values.forEach((value, at) => {
    if (value === null) return;
    if (before >= 0) distances.push(at - before);
    before = at;
  });
  return distances.sort((a, b) => a - b)[distances.length >> 1] || 1;
}

/** The gaps that are wider than usual; the others are drawn over. */
function wideGaps(plot, index, first, last, gaps) {
  const bucket = plot.valToPos(plot.data[0][1], "x", true) - plot.valToPos(plot.data[0][0], "x", true);
  const usual = bucket * usualDistance(plot.data[index]) * 2.2;
  return gaps.filter(([from, to]) => to - from > usual);
}

/** Values without neighbours would not be seen as a line. */
function lonePoints(plot, index, shown) {
  if (shown) return null;
  const values = plot.data[index];
  const reach = usualDistance(values) * 2;
  const empty = (from, to) => values.slice(Math.max(0, from), to).every((value) => value === null);
  return values.flatMap((value, at) => (value !== null && empty(at - reach, at) && empty(at + 1, at + 1 + reach) ? [at] : []));
}

function drawMarks(context, plot, marks) {
  context.globalAlpha = 0.6;
  context.fillStyle = colour("--ink");
  for (const mark of marks) {
    if (mark.at < plot.scales.x.min || mark.at > plot.scales.x.max) continue;
    const [x, y] = placeOf(plot, mark);
    context.beginPath();
    for (const [right, down] of [[0, -3], [3, 0], [0, 3], [-3, 0]]) context.lineTo(x + right, y + down);
    context.fill();
  }
}

function optionsOf(UPlot, axis, now) {
  const { unit, series } = now.current;
  return {
    focus: { alpha: 0.35 },
    cursor: {
      focus: { prox: 20 },
      // The others are shown the cursor, but not the brush: each would zoom once more.
      sync: { key: "metrics", setSeries: false, filters: { pub: (type) => type === "mousemove" || type === "mouseleave" } },
      bind: { dblclick: () => () => now.current.zoomOut() },
    },
    scales: { x: { range: () => now.current.range }, y: { range: (_, least, most) => valueRange(UPlot, least, most) } },
    axes: [timeAxis(axis), { ...axis, size: 72, incrs: unit.incrs, values: (_, ticks) => now.current.unit.ticks(ticks) }],
    series: [{}, ...series.map(({ name }, at) => ({
      label: name,
      stroke: placeColour(at),
      width: 1.5,
      dash: at < COLOURS ? undefined : [4 + 2 * Math.floor(at / COLOURS), 3],
      gaps: wideGaps,
      points: { size: 5, filter: lonePoints },
    }))],
  };
}

/**
 * @param {{ times: number[], series: { name: string, values: (number | null)[] }[], range: [number, number], label: string,
 *   unit: ReturnType<typeof import("./metric_units.js").unitOf>, marks: { at: number, value: number | null, to: string }[],
 *   zoom: (from: number, to: number) => void, zoomOut: () => void, point: (index: number | null) => void }} props times and the range in
 *   milliseconds; `point` is told which of the times the cursor is at
 */
export function LineChart(props) {
  const { times, series, range, unit, marks } = props;
  const data = useMemo(() => [times, ...series.map(({ values }) => values)], [times, series, range[0], range[1]]);
  return html`<${Plot} ...${props} shape=${[series.map(({ name }) => name), unit.title]} height=${170} data=${data} drawn=${[marks]} options=${optionsOf}
    find=${(plot, left, top) => nearest(plot, marks, left, top)} press=${(mark) => visit(mark.to)} paint=${(context, plot) => drawMarks(context, plot, marks)} />`;
}
