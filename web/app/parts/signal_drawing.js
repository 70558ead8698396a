// A signal on one time axis: a lane for each Rack or service, bars for spans, marks for messages and log lines, and lines from who sent a message to who took it.
import { count } from "../format.js";
import { html, useMemo } from "../html.js";
import { bare, colour as colourNamed, placeName, Plot } from "./chart.js";
import { precise } from "./micros.js";

const [AXIS, LINE, MARKS, PAD] = [20, 11, 16, 5];
/** How near a mark has to be to be picked, px. */
const NEAR = 6;
const EDGE = 8;

/** The heights of lanes: their bars, and a line for marks. */
function placesOf(lanes) {
  let top = 0;
  return lanes.map(({ ends, hasMarks }) => {
    const place = { top, marks: top + PAD + ends.length * LINE + MARKS / 2, height: Math.max(26, 2 * PAD + ends.length * LINE + (hasMarks ? MARKS : 0)) };
    top += place.height;
    return place;
  });
}

/** How `log` and `message` look; spans have the colour of their lane. */
const colourOf = ({ kind, row, lane }) => (kind === "log" ? `--level-${row.level}` : row.status === "error" ? "--level-error" : kind === "message" ? "--ink" : placeName(lane.index));

function drawLanes(context, { bbox }, places) {
  places.forEach(({ top, height }, at) => {
    context.fillStyle = colourNamed(at % 2 ? "--paper" : "--paper-2");
    context.fillRect(-EDGE, top, bbox.width / devicePixelRatio + 2 * EDGE, height);
  });
}

function drawItem(context, item, places, x, colour, selected) {
  const place = places[item.lane.index];
  context.fillStyle = colour(colourOf(item));
  const left = x(item.at);
  if (item.kind === "span") {
    const [top, wide] = [place.top + PAD + item.line * LINE, Math.max(2, x(item.end) - left)];
    context.fillRect(left, top, wide, LINE - 2);
    if (selected) outline(context, colour, left - 2, top - 2, wide + 4, LINE + 2);
  } else if (item.kind === "log") {
    context.fillRect(left - 1, place.marks - 6, 2, 12);
    if (selected) outline(context, colour, left - 4, place.marks - 8, 8, 16);
  } else {
    context.beginPath();
    for (const [right, down] of [[0, -6], [6, 0], [0, 6], [-6, 0]]) context.lineTo(left + right, place.marks + down);
    context.fill();
    if (selected) outline(context, colour, left - 8, place.marks - 8, 16, 16);
  }
}

function outline(context, colour, left, top, width, height) {
  context.strokeStyle = colour("--ink");
  context.lineWidth = 1.5;
  context.strokeRect(left, top, width, height);
}

/** A line from a message to a span of who took it, with an arrowhead. */
function drawWay(context, message, span, places, x, colour) {
  const [fromX, fromY] = [x(message.at), places[message.lane.index].marks];
  const [toX, toY] = [x(span.at), places[span.lane.index].top + PAD + span.line * LINE + LINE / 2 - 1];
  const angle = Math.atan2(toY - fromY, toX - fromX);
  context.strokeStyle = context.fillStyle = colour("--ink-2");
  context.lineWidth = 1.2;
  context.beginPath();
  context.moveTo(fromX, fromY);
  context.lineTo(toX, toY);
  context.stroke();
  context.beginPath();
  for (const [turn, size] of [[0, 0], [2.7, 8], [-2.7, 8]]) context.lineTo(toX + Math.cos(angle + turn) * size, toY + Math.sin(angle + turn) * size);
  context.fill();
}

/**
 * @param {{ items: any[], lanes: any[], view: { from: number, to: number, start: number }, selected: any, open: (item: any) => void, zoom: (from: number, to: number) => void,
 *   tell: (item: any) => string }} props times in µs
 */
export function SignalDrawing({ items, lanes, view, selected, open, zoom, tell }) {
  const { start, from, to } = view;
  const places = useMemo(() => placesOf(lanes), [lanes]);
  const data = useMemo(() => [[from - start, to - start]], [start, from, to]);
  const height = AXIS + places.reduce((sum, place) => sum + place.height, 0) + 2;
  const xOf = (plot) => (at) => plot.valToPos(at - start, "x");
  const seen = ({ at, end }) => end >= from && at <= to;
  const paint = (context, plot) => {
    const x = xOf(plot);
    const colours = new Map();
    const colour = (name) => colours.get(name) ?? colours.set(name, colourNamed(name)).get(name);
    for (const kind of ["span", "log", "way", "message"]) {
      for (const item of items) {
        if (kind === "way") item.to.forEach((span) => (seen(item) || seen(span)) && drawWay(context, item, span, places, x, colour));
        else if (item.kind === kind && seen(item)) drawItem(context, item, places, x, colour, item === selected);
      }
    }
  };
  const find = (plot, left, top) => {
    const x = xOf(plot);
    let [found, best] = [null, Infinity];
    for (const item of items) {
      const place = places[item.lane.index];
      if (top < place.top || top > place.top + place.height || !seen(item)) continue;
      const line = item.kind === "span" ? place.top + PAD + item.line * LINE + LINE / 2 : place.marks;
      const [begin, end] = [x(item.at), x(item.end)];
      const away = Math.max(begin - left, left - end, 0) + Math.max(0, Math.abs(line - top) - LINE / 2) * 2;
      if (away <= best && away <= NEAR) [found, best] = [item, away];
    }
    return found;
  };
  const ticks = (_, all) => all.map((at) => (at === 0 ? "0" : precise(at / 1_000)));
  const options = (_, axis) => ({ ...bare, axes: [{ ...axis, side: 0, size: AXIS, gap: 2, space: 90, values: ticks }, { show: false }], padding: [0, EDGE, 0, EDGE] });
  return html`<figure class="chart signal"><div class="lanes" tabindex="0" role="group" aria-label="The signal over time">
      <ol class="lane-names" aria-label="Lanes" style=${{ paddingTop: `${AXIS}px` }}>${lanes.map(({ name, items: number }, at) => html`<li style=${{ height: `${places[at].height}px` }} title=${`${name}: ${count(number)} rows`}>${name}</li>`)}</ol>
      <${Plot} height=${height} data=${data} drawn=${[items, lanes, selected]} options=${options} label=${`${items.length} rows of the signal on ${lanes.length} lanes over time; the list below has the same in order`}
        find=${find} press=${open} tip=${tell} zoom=${(first, last) => zoom(start + first, start + last)} under=${(context, plot) => drawLanes(context, plot, places)} paint=${paint} /></div>
    <figcaption><span>▬ span</span><span>◆ message, with a line to who took it</span><span>❙ log record</span><span><i style=${{ background: "var(--level-error)" }}></i>error</span><span>press: details; drag: zoom</span></figcaption></figure>`;
}
