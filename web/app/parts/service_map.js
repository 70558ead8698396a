// The service map as a drawing: services in columns, each right of those that call it; the wider a line, the more calls; red ones failed. The table beside it says the same.
import { count } from "../format.js";
import { html } from "../html.js";

/** Calls that are drawn, the most frequent ones. */
const MOST = 150;
const MOST_COLUMNS = 8;
/** Lines that have their number beside them; of more, it shows when the pointer is on one. */
const COUNTED = 40;
const [COLUMN, ROW, BOX, TALL] = [210, 52, 150, 34];

/** Those that are called by nobody, or, where all are, the first caller. */
function firstCallers(calls) {
  const called = new Set(calls.map(({ callee }) => callee));
  const first = new Set(calls.map(({ caller }) => caller).filter((caller) => !called.has(caller)));
  return first.size || !calls.length ? [...first] : [calls[0].caller];
}

/** The services in the order in which a walk from the first callers leaves them, the callers first, and the calls that close no circle. */
function withoutCircles(calls) {
  const callees = Map.groupBy(calls, ({ caller }) => caller);
  /** @type {[Set<string>, Set<string>, string[], any[]]} */
  const [active, done, left, kept] = [new Set(), new Set(), [], []];
  const walk = (service) => {
    active.add(service);
    for (const call of callees.get(service) || []) {
      if (!active.has(call.callee)) kept.push(call);
      if (!active.has(call.callee) && !done.has(call.callee)) walk(call.callee);
    }
    active.delete(service);
    done.add(service);
    left.unshift(service);
  };
  for (const service of [...firstCallers(calls), ...callees.keys()]) if (!done.has(service)) walk(service);
  return { order: left, kept: Map.groupBy(kept, ({ caller }) => caller) };
}

/** The column of each service: one more than that of its furthest caller; of its nearest one where that would take too many columns. */
function columnsOf(calls) {
  const { order, kept } = withoutCircles(calls);
  const place = (better) => {
    const column = new Map();
    for (const service of order) {
      if (!column.has(service)) column.set(service, 0);
      for (const { callee } of kept.get(service) || []) column.set(callee, better(column.get(callee) ?? column.get(service) + 1, column.get(service) + 1));
    }
    return column;
  };
  const far = place(Math.max);
  return Math.max(0, ...far.values()) < MOST_COLUMNS ? far : place(Math.min);
}

/** Where everything is drawn. @param {{ caller: string, callee: string, calls: number, errors: number }[]} rows the most frequent first */
export function drawServiceMap(rows) {
  const calls = rows.slice(0, MOST);
  const places = new Map();
  const heights = [];
  for (const [service, column] of columnsOf(calls)) {
    heights[column] = (heights[column] || 0) + 1;
    places.set(service, { service, column, row: heights[column] - 1 });
  }
  const tallest = Math.max(1, ...heights.filter(Boolean));
  for (const place of places.values()) {
    place.x = 10 + place.column * COLUMN;
    place.y = 10 + (place.row + (tallest - heights[place.column]) / 2) * ROW;
  }
  const most = Math.max(...calls.map((call) => call.calls), 1);
  const lines = calls.map((call) => ({ ...call, from: places.get(call.caller), to: places.get(call.callee), wide: 1 + 5 * (Math.log1p(call.calls) / Math.log1p(most)) }));
  return { services: [...places.values()], lines, width: 20 + (heights.length - 1) * COLUMN + BOX, height: 20 + (tallest - 1) * ROW + TALL, left: rows.length - calls.length };
}

function curve({ from, to }) {
  const [x1, y1, x2, y2] = [from.x + BOX, from.y + TALL / 2, to.x, to.y + TALL / 2];
  const bend = Math.max(30, Math.abs(x2 - x1) / 2);
  return `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`;
}

export function ServiceMap({ drawing: { services, lines, width, height, left } }) {
  return html`<figure class="chart"><div class="scrolled map" tabindex="0" role="group" aria-label="Service map"><svg role="img" width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} aria-label=${`${services.length} services and ${lines.length} calls between them; the table has the same`}>
      ${lines.map((line) => html`<g><path d=${curve(line)} fill="none" stroke=${line.errors ? "var(--level-error)" : "var(--c1)"} stroke-width=${line.wide} stroke-opacity="0.7"><title>${`${line.caller} → ${line.callee}: ${count(line.calls)} calls, ${count(line.errors)} errors`}</title></path>
        ${lines.length <= COUNTED && html`<text x=${(line.from.x + BOX + line.to.x) / 2} y=${(line.from.y + line.to.y + TALL) / 2 - 6} text-anchor="middle" class="map-count">${count(line.calls, true)}</text>`}</g>`)}
      ${services.map(({ service, x, y }) => html`<g><title>${service}</title><rect x=${x} y=${y} width=${BOX} height=${TALL} rx="4" class="map-box" /><text x=${x + BOX / 2} y=${y + TALL / 2 + 4} text-anchor="middle" class="map-name">${service.length > 20 ? `${service.slice(0, 19)}…` : service}</text></g>`)}
    </svg></div>
    <figcaption><span><i style=${{ background: "var(--c1)" }}></i>calls</span><span><i style=${{ background: "var(--level-error)" }}></i>some failed</span>${left > 0 && html`<span>${count(left)} rarer calls are in the table only</span>`}</figcaption></figure>`;
}
