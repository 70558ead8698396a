// The filters of a view, one chip each: shown as text, removed or turned round by one press.
import { html } from "../html.js";
import { change, current } from "../location.js";

/** Adds a filter to the view that is shown. */
export function addFilter(key, value) {
  const values = current().params.getAll(key);
  if (!values.includes(String(value))) change({ [key]: [...values, String(value)] });
}

/**
 * @param {{ params: URLSearchParams, keys: (key: string) => boolean, opposite: (key: string) => string }} props which parameters are filters;
 *   `opposite` of one lets through what it leaves out
 */
export function Chips({ params, keys, opposite }) {
  const filters = [...params].filter(([key]) => keys(key));
  const without = (key, value) => ({ [key]: params.getAll(key).filter((other) => other !== value) });
  const turn = (key, value) => {
    const to = opposite(key);
    change({ ...without(key, value), [to]: to.startsWith("not.") ? [...params.getAll(to), value] : value });
  };
  if (!filters.length) return null;
  return html`<ul class="chips" aria-label="Filters">
    ${filters.map(([key, value]) => {
      const [not, text] = [key.startsWith("not."), `${key}=${value}`];
      const turned = not ? "Only these, rather than all others" : "All others, rather than these";
      return html`<li><code>${text}</code>
        ${opposite(key) && html`<button class="quiet" title=${turned} aria-label=${`${turned}: ${text}`} onClick=${() => turn(key, value)}>${not ? "⊕" : "⊖"}</button>`}
        <button class="quiet" aria-label=${`Remove ${text}`} onClick=${() => change(without(key, value))}>×</button></li>`;
    })}
  </ul>`;
}
