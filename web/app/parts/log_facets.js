// The most frequent values of fields, with counts; a press filters by one.
import { useAnswer } from "../api.js";
import { cell, count } from "../format.js";
import { html } from "../html.js";
import { change } from "../location.js";
import { addColumn, nameOf } from "./log_columns.js";
import { parameterOf, PATH, question } from "./log_query.js";
import { ErrorBox, Waiting } from "./messages.js";

const FIRST = ["level", "entity_name", "attr.resource.service.name", "attr.gear.id"];
const NAMES = { "attr.resource.service.name": "service", "attr.gear.id": "gear" };
const SHOWN = 10;

function Values({ field, params, ready }) {
  const key = parameterOf(field);
  /** @type {any} */
  const asked = { ...question(params), field, limit: SHOWN };
  // The filter by the field itself is left out, so that its other values can be chosen.
  delete asked[key];
  if (field === "level") delete asked.min_level;
  const { data, error, loading, again, cancel } = useAnswer(ready ? `${PATH}/top` : null, asked);
  if (error) return html`<${ErrorBox} error=${error} again=${again} />`;
  if (!ready && !data) return null;
  if (!data) return loading ? html`<${Waiting} what="Counting" cancel=${cancel} />` : html`<button onClick=${again}>Ask</button>`;
  if (!data.data.length) return html`<p class="dim">No record has it.</p>`;
  const most = data.data[0].count;
  const chosen = params.get(key);
  return html`<ul class="plain values">${data.data.map(({ value, count: times }) => {
    const text = cell(value);
    return html`<li><button class="quiet" aria-pressed=${chosen === text} disabled=${!key || value === null} title=${text.slice(0, 300)}
      onClick=${() => change({ [key]: chosen === text ? null : text, ...(field === "level" ? { min_level: null } : {}), row: null })}>
      <i style=${{ width: `${(100 * times) / most}%` }}></i><span>${text.slice(0, 80) || "(empty)"}</span><b>${count(times, true)}</b></button></li>`;
  })}</ul>`;
}

/** @param {{ params: URLSearchParams, known: string[], ready: any }} props `known` are fields of the loaded rows */
export function LogFacets({ params, known, ready }) {
  const open = params.has("facet") ? params.getAll("facet") : FIRST.slice(0, 2);
  const fields = [...new Set([...FIRST, ...known, ...open.filter((field) => field.startsWith("attr."))])];
  const toggle = (event, field) => {
    event.preventDefault();
    const shown = open.includes(field) ? open.filter((other) => other !== field) : [...open, field];
    change({ facet: shown.length ? shown : ["none"] }, true);
  };
  return html`<div class="side facets" role="region" aria-label="Fields with counts">
    ${fields.map((field) => html`<details key=${field} open=${open.includes(field)}>
      <summary onClick=${(event) => toggle(event, field)}>${NAMES[field] || nameOf(field)}</summary>
      ${open.includes(field) && html`<div>
        <${Values} field=${field} params=${params} ready=${ready} />
        <button class="quiet" aria-label=${`split chart by ${nameOf(field)}`} onClick=${() => change({ by: field === "level" ? null : field })}>split chart</button>
        <button class="quiet" aria-label=${`${nameOf(field)} as column`} onClick=${() => {
          change({ view: "table" }, true);
          addColumn(params, field);
        }}>as column</button></div>`}
    </details>`)}
  </div>`;
}
