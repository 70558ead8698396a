// The values of a chart as a table, for who does not see the chart, and as CSV.
import { count, time } from "../format.js";
import { html } from "../html.js";
import { summary } from "./metric_question.js";
import { savePages } from "./paged_file.js";
import { VirtualList } from "./virtual_list.js";
import { useJob } from "./work.js";

/** @param {{ times: number[], series: any[], unit: any, label: string, only?: (group: string) => void }} props */
export function MetricTable({ times, series, unit, label, only }) {
  const rows = times.map((at, index) => index).reverse();
  const width = { width: "112px" };
  const day = (at) => time(at).slice(5, 19);
  const head = html`<div role="row" class="head"><span role="columnheader" style=${width}>time</span>
    ${series.map(({ name }) => html`<span role="columnheader" class="number" style=${width} title=${name}>${name}</span>`)}</div>`;
  const row = (index) => html`<div role="row" key=${index}><span role="cell" style=${width}>${day(times[index])}</span>
    ${series.map(({ values }) => html`<span role="cell" class="number" style=${width}>${unit.one(values[index])}</span>`)}</div>`;
  return html`<div class="metric-table">
    <div class="metric-sums" tabindex="0" role="region" aria-label=${`${label}: each series`}><table>
      <thead><tr><th scope="col">series</th>${["last", "min", "mean", "max"].map((name) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
      <tbody>${series.map(({ name, group, values }) => {
        const { last, least, mean, most } = summary(values);
        return html`<tr><th scope="row">${only && group !== null ? html`<button class="quiet" title="Only this one" onClick=${() => only(group)}>${name}</button>` : name}</th>
          ${[last, least, mean, most].map((value) => html`<td class="number">${unit.one(value)}</td>`)}</tr>`;
      })}</tbody>
    </table></div>
    <${VirtualList} rows=${rows} height=${24} row=${row} label=${`${label}: each bucket of time`} head=${head} />
  </div>`;
}

/** Has all pages of a question saved as CSV. @returns {Promise<string>} what is missing */
async function saveCsv({ path, params: { shape, fill, ...params } }, name, signal, said) {
  const { partial } = await savePages({ path, params }, { name, format: "csv" }, signal, said);
  return partial && `incomplete: ${partial}`;
}

/** Exports what a chart shows, all of it, as CSV; pressed again, it stops. */
export function CsvButton({ question, name }) {
  const { run, stop, progress, value, error } = useJob();
  const save = () => (progress === null ? run((signal, said) => saveCsv(question, name, signal, said)) : stop());
  return html`<button class="quiet" onClick=${save} title="Export as CSV">CSV<span role="status">${progress !== null ? ` ${count(progress)} rows … stop` : ` ${error?.message || value || ""}`}</span></button>`;
}
