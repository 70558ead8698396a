// The filters of one chart: by entity, service and labels, each a chip; a key has one value, as the API takes it.
import { useAnswer } from "../api.js";
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { useEscape } from "../keys.js";
import { metricPath } from "./metric_question.js";

/** Values that are offered for a key. */
const MOST_VALUES = 500;

/** The filter of the API for a key by which series can be grouped. */
export function filterKey(key) {
  if (key === "entity_name" || key === "entity_id") return "entity";
  return key === "name" || key === "type" ? null : `labels.${key}`;
}

/** The chart with one more filter; another value of the same key goes. */
export const withFilter = (chart, key, value) => ({ ...chart, filters: [...chart.filters.filter(([other]) => other !== key), [key, value]] });

export function FilterChips({ chart, set }) {
  if (!chart.filters.length) return null;
  return html`<ul class="chips" aria-label=${`Filters of ${chart.name}`}>${chart.filters.map(([key, value]) => html`<li key=${key}>
    <code>${key}=${value}</code>
    <button class="quiet" aria-label=${`Remove ${key}=${value}`} onClick=${() => set({ ...chart, filters: chart.filters.filter(([other]) => other !== key) })}>×</button>
  </li>`)}</ul>`;
}

/** What there is to choose from: the values of a label, or the entities that sent the metric. */
function useValues(name, key, bounds) {
  const isLabel = key.startsWith("labels.");
  const rest = isLabel ? `/labels/${encodeURIComponent(key.slice(7))}` : "";
  const by = { group_by: key === "service" ? "resource.service.name" : "entity_name", agg: "count" };
  const { data } = useAnswer(metricPath(name, rest), { ...bounds, limit: MOST_VALUES, ...(isLabel ? {} : by) });
  if (!data) return [];
  return data.data.map((row) => (isLabel ? row.value : row.entity_name ?? row.labels?.["resource.service.name"])).filter((value) => value !== null && value !== undefined);
}

/** A key, and one of its values. */
export function FilterForm({ chart, keys, bounds, set, close }) {
  const [key, setKey] = useState("entity");
  const values = useValues(chart.name, key, bounds);
  const box = useRef(null);
  useEscape(close);
  useLayoutEffect(() => box.current.focus(), []);
  const list = `values-${chart.name}-${key}`.replace(/[^\w-]/g, "_");
  const submit = (event) => {
    event.preventDefault();
    const value = String(new FormData(event.currentTarget).get("value")).trim();
    if (value) set(withFilter(chart, key, value));
    close();
  };
  return html`<form class="bar" onSubmit=${submit} aria-label=${`Filter ${chart.name}`}>
    <select aria-label="Filter by" value=${key} onChange=${(event) => setKey(event.target.value)}>
      ${["entity", "service", ...keys.map((label) => `labels.${label}`)].map((one) => html`<option value=${one}>${one}</option>`)}
    </select>
    <input name="value" key=${key} aria-label=${`Value of ${key}`} list=${list} placeholder="value" autocomplete="off" spellcheck="false" ref=${box} />
    <datalist id=${list}>${values.map((value) => html`<option value=${String(value)}></option>`)}</datalist>
    <button>Filter</button><button type="button" class="quiet" onClick=${close}>Cancel</button>
  </form>`;
}
