// The filters of a view, one chip each: shown as text, removed by one press.
import { html } from "../html.js";
import { change, current } from "../location.js";

/** Adds a filter to the view that is shown. */
export function addFilter(key, value) {
  const values = current().params.getAll(key);
  if (!values.includes(String(value))) change({ [key]: [...values, String(value)], cursor: null });
}

/** @param {{ params: URLSearchParams, keys: (key: string) => boolean }} props which parameters are filters */
export function Chips({ params, keys }) {
  const filters = [...params].filter(([key]) => keys(key));
  const remove = (key, value) => change({ [key]: params.getAll(key).filter((other) => other !== value), cursor: null });
  if (!filters.length) return null;
  return html`<ul class="chips" aria-label="Filters">
    ${filters.map(([key, value]) => html`<li>
      <code>${key}=${value}</code>
      <button class="quiet" aria-label=${`Remove ${key}=${value}`} onClick=${() => remove(key, value)}>×</button>
    </li>`)}
  </ul>`;
}
