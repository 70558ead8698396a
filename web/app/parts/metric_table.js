// The values of a chart as a table, for who does not see the chart, and as CSV.
import { count, time } from "../format.js";
import { html } from "../html.js";
import { ColumnList } from "./column_list.js";
import { summary } from "./metric_question.js";
import { savePages } from "./paged_file.js";
import { useJob } from "./work.js";

/** The name of a series; a press leaves only that one. */
export function SeriesName({ name, group, only }) {
  return only && group !== null ? html`<button class="quiet" title="Only this one" onClick=${() => only(group)}>${name}</button>` : html`<span>${name}</span>`;
}

/** @param {{ times: number[], series: any[], unit: any, label: string, only?: (group: string) => void }} props */
export function MetricTable({ times, series, unit, label, only }) {
  const value = ({ name, values }) => ({ name, title: html`<span title=${name}>${name}</span>`, width: 112, number: true, cell: (index) => unit.one(values[index]) });
  const columns = [{ name: "time", title: "time", width: 112, cell: (index) => time(times[index]).slice(5, 19) }, ...series.map(value)];
  return html`<div class="metric-table">
    <div class="metric-sums" tabindex="0" role="region" aria-label=${`${label}: each series`}><table>
      <thead><tr><th scope="col">series</th>${["last", "min", "mean", "max"].map((name) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
      <tbody>${series.map(({ name, group, values }) => {
        const { last, least, mean, most } = summary(values);
        return html`<tr><th scope="row"><${SeriesName} name=${name} group=${group} only=${only} /></th>
          ${[last, least, mean, most].map((value) => html`<td class="number">${unit.one(value)}</td>`)}</tr>`;
      })}</tbody>
    </table></div>
    <${ColumnList} label=${`${label}: each bucket of time`} columns=${columns} rows=${[...times.keys()].reverse()} keyOf=${String} />
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
