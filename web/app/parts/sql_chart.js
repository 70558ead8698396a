// An answer as a chart: lines over a column of times, bars of any other; which columns, the address says.
import { number } from "../format.js";
import { html, useMemo } from "../html.js";
import { change } from "../location.js";
import { Chart, colourOf } from "./chart.js";
import { EmptyState } from "./messages.js";
import { counted, isNumber, isTime, textOf } from "./sql_result.js";
import { Table } from "./layout.js";

/** So many series, and so many bars, are drawn. */
const [SERIES, BARS] = [20, 200];

/** What is drawn if nothing was chosen: the first time (or else the first column that is no number), all numbers, and the first text as groups. */
function choices(columns, params) {
  const named = (name) => columns.find((column) => column.name === name);
  const x = named(params.get("x")) || columns.find(isTime) || columns.find((column) => !isNumber(column)) || columns[0];
  const asked = params.getAll("y").map(named).filter(Boolean);
  const y = asked.length ? asked : columns.filter((column) => column !== x && isNumber(column));
  const groups = columns.filter((column) => column !== x && !isNumber(column) && !isTime(column));
  const group = params.get("group") === "-" ? null : named(params.get("group")) || (isTime(x) ? groups.find(({ type }) => type === "text") : null) || null;
  return { x, y, group };
}

/** Whether an answer is a line by itself: a time, numbers, and at most one text. */
export function isLine(columns, rows) {
  const rest = columns.filter((column) => !isTime(column) && !isNumber(column));
  return rows.length > 1 && columns.filter(isTime).length === 1 && columns.some(isNumber) && rest.length <= 1 && rest.every(({ type }) => type === "text");
}

function seriesOf(rows, { x, y, group }) {
  const moments = rows.map((row) => {
    const value = row[x.name];
    return value === null ? NaN : Date.parse(x.type === "timestamp" ? `${value}Z` : value);
  });
  const times = [...new Set(moments.filter((at) => !Number.isNaN(at)))].sort((a, b) => a - b);
  const place = new Map(times.map((at, index) => [at, index]));
  const series = new Map();
  let same = 0;
  rows.forEach((row, index) => {
    if (!place.has(moments[index])) return;
    for (const column of y) {
      const own = group ? textOf(row[group.name], group) : column.name;
      const name = group && y.length > 1 ? `${own} ${column.name}` : own;
      if (!series.has(name)) series.set(name, { name, values: times.map(() => null), sum: 0 });
      const one = series.get(name);
      const value = row[column.name] === null ? null : Number(row[column.name]);
      /** @type {any} */
      const at = place.get(moments[index]);
      if (one.values[at] !== null) same += 1;
      one.values[at] = value;
      one.sum += Math.abs(value || 0);
    }
  });
  return { times, series: [...series.values()].sort((a, b) => b.sum - a.sum), same };
}

function Lines({ rows, chosen, stacked }) {
  const { x, y, group } = chosen;
  const drawn = useMemo(() => {
    const { series, ...others } = seriesOf(rows, chosen);
    return { ...others, series: series.slice(0, SERIES), left: series.length - SERIES };
  }, [rows, x, group, y.map(({ name }) => name).join()]);
  const what = `${y.map(({ name }) => name).join(", ")} over ${x.name}${group ? ` by ${group.name}` : ""}`;
  return html`<div class="sql-chart"><${Chart} times=${drawn.times} series=${drawn.series} stacked=${stacked} height=${320} label=${what} unit=${number} />
    ${drawn.same > 0 && html`<p class="bad" role="status">${counted(drawn.same, "value")} had the time and name of a later row, and ${drawn.same === 1 ? "is" : "are"} not drawn: choose a group, or aggregate.</p>`}
    ${drawn.left > 0 && html`<p class="dim">The ${SERIES} largest of ${SERIES + drawn.left} series are drawn. Leave some out with WHERE, or group by another column.</p>`}</div>`;
}

function Bars({ rows, chosen: { x, y } }) {
  const shown = rows.slice(0, BARS);
  const size = (row, { name }) => Math.abs(Number(row[name])) || 0;
  const most = y.map((column) => Math.max(...shown.map((row) => size(row, column))) || 1);
  const bar = (row, column, index) => html`<span class="bar-line"><i style=${{ width: `${(100 * size(row, column)) / most[index]}%`, background: colourOf(column.name, index) }}></i></span> ${number(row[column.name])}`;
  return html`<div class="sql-chart bars"><${Table} label="Bars" heads=${[x, ...y].map(({ name }) => name)} rows=${shown.map((row) => [textOf(row[x.name], x).slice(0, 120), ...y.map((column, index) => bar(row, column, index))])} />
    ${rows.length > BARS && html`<p class="dim">The first ${BARS} of ${rows.length} rows are drawn.</p>`}</div>`;
}

/** @param {{ columns: { name: string, type: string }[], rows: any[], params: URLSearchParams }} props */
export function SqlChart({ columns, rows, params }) {
  const chosen = choices(columns, params);
  const { x, y, group } = chosen;
  const numbers = columns.filter((column) => column !== x && isNumber(column));
  const options = (of) => of.map(({ name }) => html`<option value=${name}>${name}</option>`);
  const toggle = (name) => {
    const now = y.map((column) => column.name);
    change({ y: now.includes(name) ? now.filter((other) => other !== name) : [...now, name] }, true);
  };
  const time = isTime(x);
  return html`<div class="bar" role="group" aria-label="Chart">
      <label>x <select value=${x.name} onChange=${(event) => change({ x: event.target.value, y: null, group: null }, true)}>${options(columns)}</select></label>
      <fieldset class="bar"><legend class="hidden">y</legend>y ${numbers.map(({ name }) => html`<label><input type="checkbox" checked=${y.some((column) => column.name === name)} onChange=${() => toggle(name)} /> ${name}</label>`)}</fieldset>
      ${time && html`<label>group <select value=${group ? group.name : "-"} onChange=${(event) => change({ group: event.target.value }, true)}><option value="-">none</option>${options(columns.filter((column) => column !== x && !isNumber(column)))}</select></label>
      <label><input type="checkbox" checked=${params.has("stack")} onChange=${() => change({ stack: params.has("stack") ? null : "1" }, true)} /> stacked bars</label>`}
    </div>
    ${y.length ? html`<${time ? Lines : Bars} rows=${rows} chosen=${chosen} stacked=${params.has("stack")} />` : html`<${EmptyState} command="SELECT time_bucket(INTERVAL '5 minutes', ts) AS t, count(*) AS n FROM logs GROUP BY t ORDER BY t">A chart needs a column of numbers. Count or average something, over time or by a name:</${EmptyState}>`}`;
}
