// A signal on one time axis: a lane for each Rack or service, bars for spans, marks for messages and log lines, and lines from who sent a message to who took it.
import { count } from "../format.js";
import { html, useMemo } from "../html.js";
import { Canvas } from "./canvas.js";
import { marks, precise } from "./micros.js";

const [AXIS, LINE, MARKS, PAD] = [20, 11, 16, 5];
/** How near a mark has to be to be picked, px. */
const NEAR = 6;
const EDGE = 8;

/** The heights of lanes: their bars, and a line for marks. */
function placesOf(lanes) {
  let top = AXIS;
  return lanes.map(({ ends, hasMarks }) => {
    const place = { top, marks: top + PAD + ends.length * LINE + MARKS / 2, height: Math.max(26, 2 * PAD + ends.length * LINE + (hasMarks ? MARKS : 0)) };
    top += place.height;
    return place;
  });
}

/** How `log` and `message` look; spans have the colour of their lane. */
const colourOf = ({ kind, row, lane }) => (kind === "log" ? `--level-${row.level}` : row.status === "error" ? "--level-error" : kind === "message" ? "--ink" : `--c${(lane.index % 8) + 1}`);

function drawAxis(context, { width, height, colour }, lanes, places, view, x) {
  context.textBaseline = "middle";
  lanes.forEach((_, at) => {
    context.fillStyle = at % 2 ? colour("--paper") : colour("--paper-2");
    context.fillRect(0, places[at].top, width, places[at].height);
  });
  for (const at of marks(view.from - view.start, view.to - view.start, Math.max(2, Math.floor(width / 110)))) {
    const left = x(at + view.start);
    context.fillStyle = colour("--line");
    context.fillRect(left, 0, 1, height);
    context.fillStyle = colour("--ink-2");
    context.fillText(at === 0 ? "0" : precise(at / 1_000), left + 3, AXIS / 2);
  }
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
  const places = useMemo(() => placesOf(lanes), [lanes]);
  const height = AXIS + places.reduce((sum, place) => sum + place.height, 0) + 2;
  const scale = (width) => (at) => EDGE + ((at - view.from) / (view.to - view.from)) * (width - 2 * EDGE);
  const seen = ({ at, end }) => end >= view.from && at <= view.to;
  const draw = (context, area) => {
    const x = scale(area.width);
    drawAxis(context, area, lanes, places, view, x);
    const colours = new Map();
    const colour = (name) => colours.get(name) ?? colours.set(name, area.colour(name)).get(name);
    for (const kind of ["span", "log", "way", "message"]) {
      for (const item of items) {
        if (kind === "way") item.to.forEach((span) => (seen(item) || seen(span)) && drawWay(context, item, span, places, x, colour));
        else if (item.kind === kind && seen(item)) drawItem(context, item, places, x, colour, item === selected);
      }
    }
  };
  const find = (left, top, width) => {
    const x = scale(width);
    let [found, best] = [null, Infinity];
    for (const item of items) {
      const place = places[item.lane.index];
      if (top < place.top || top > place.top + place.height || !seen(item)) continue;
      const line = item.kind === "span" ? place.top + PAD + item.line * LINE + LINE / 2 : place.marks;
      const [from, to] = [x(item.at), x(item.end)];
      const away = Math.max(from - left, left - to, 0) + Math.max(0, Math.abs(line - top) - LINE / 2) * 2;
      if (away <= best && away <= NEAR) [found, best] = [item, away];
    }
    return found;
  };
  const brush = ({ left, right, width }) => {
    const at = (x) => view.from + ((x - EDGE) / (width - 2 * EDGE)) * (view.to - view.from);
    zoom(at(left), at(right));
  };
  return html`<figure class="chart signal"><div class="lanes" tabindex="0" role="group" aria-label="The signal over time">
      <ol class="lane-names" aria-label="Lanes" style=${{ paddingTop: `${AXIS}px` }}>${lanes.map(({ name, items: number }, at) => html`<li style=${{ height: `${places[at].height}px` }} title=${`${name}: ${count(number)} rows`}>${name}</li>`)}</ol>
      <${Canvas} draw=${draw} height=${height} drawn=${[items, lanes, view.from, view.to, selected]} label=${`${items.length} rows of the signal on ${lanes.length} lanes over time; the list below has the same in order`}
        pick=${(x, y, width) => { const item = find(x, y, width); if (item) open(item); }} brush=${brush} tip=${(x, y, width) => { const item = find(x, y, width); return item ? tell(item) : ""; }} /></div>
    <figcaption><span>▬ span</span><span>◆ message, with a line to who took it</span><span>❙ log record</span><span><i style=${{ background: "var(--level-error)" }}></i>error</span><span>press: details; drag: zoom</span></figcaption></figure>`;
}
