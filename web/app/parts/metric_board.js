// A board of charts as text, so that an address is a board.
//
// Each chart is one parameter `chart` of the address, in the order of the board:
//
//   chart=NAME*AGGREGATE*GROUP*PANELS*KEY*VALUE*KEY*VALUE…
//
//   http.server.requests*rate*http.route**entity*shop      the rate by route of the entity shop
//   http.server.request.duration*p95**e                    the quantile of all, exemplars shown
//   system.memory.usage                                    as is usual for its type
//
// AGGREGATE empty: what is usual for the type. GROUP: `entity_name` or the key of a label. PANELS: letters, `t` the table, `e` the
// exemplars. KEY and VALUE are filters by the names of the API (`entity`, `service`, `labels.<key>`). Fields at the end may be missing.
// `*` separates, since an address keeps it as it is; within a field `*` is `%2A` and `%` is `%25`.
//
// Other parameters: `since`, `until` (time_range.js), `interval` (empty: by the range), `refresh` (`10s`), `q` (filter of the
// names), `metric` and `label` (what the browser has open), `names=off` (the browser is hidden).
import { useRef } from "../html.js";
import { change, current } from "../location.js";

/** @typedef {{ name: string, agg: string, group: string, panels: string, filters: [string, string][] }} ChartSpec */

const escaped = (text) => text.replace(/[%*]/g, (sign) => (sign === "%" ? "%25" : "%2A"));
const plain = (text) => text.replace(/%2A/gi, "*").replaceAll("%25", "%");

/** @param {Partial<ChartSpec>} chart */
function encode({ name, agg = "", group = "", panels = "", filters = [] }) {
  const fields = [name, agg, group, panels, ...filters.flat()];
  while (filters.length === 0 && fields.at(-1) === "") fields.pop();
  return fields.map(escaped).join("*");
}

/** @returns {ChartSpec} */
export function decode(text) {
  const [name, agg = "", group = "", panels = "", ...rest] = text.split("*").map(plain);
  const filters = [];
  for (let at = 0; at + 1 < rest.length; at += 2) filters.push([rest[at], rest[at + 1]]);
  return { name, agg, group, panels, filters };
}

/** Charts of a board; each asks by itself. */
const MOST = 30;

/** The charts of a board, as text. */
export const chartsOf = (params) => params.getAll("chart").filter(Boolean).slice(-MOST);
const texts = () => chartsOf(current().params);

/** Puts a chart at the end of the board; one that is there already is not put there twice. */
export function addChart(chart) {
  const text = encode(chart);
  if (!texts().includes(text)) change({ chart: [...texts(), text] });
}

/** Changes a chart of the board; null removes it. */
export function setChart(at, chart) {
  const charts = texts();
  charts.splice(at, 1, ...(chart ? [encode(chart)] : []));
  change({ chart: charts });
}

/** Moves a chart up or down by one. */
export function moveChart(at, by) {
  const charts = texts();
  const [moved] = charts.splice(at, 1);
  charts.splice(at + by, 0, moved);
  change({ chart: charts });
}

/** The charts of the address with keys that stay when one of them is changed or moved, so that each keeps what it has drawn. */
export function useChartKeys(charts) {
  const known = useRef({ next: 0, list: [] });
  const { list } = known.current;
  const left = new Set(list);
  const found = charts.map((text) => {
    const same = [...left].find((one) => one.text === text);
    left.delete(same);
    return same;
  });
  known.current.list = charts.map((text, at) => {
    if (found[at]) return found[at];
    const changed = list.length === charts.length && left.has(list[at]) ? list[at] : null;
    left.delete(changed);
    return { text, key: changed?.key ?? (known.current.next += 1) };
  });
  return known.current.list;
}
