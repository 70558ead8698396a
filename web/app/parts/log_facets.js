// The fields of the records, and their most frequent values, with counts; a press filters by one, or leaves it out.
import { useAnswer } from "../api.js";
import { cell, count } from "../format.js";
import { html, useMemo } from "../html.js";
import { change, toggled } from "../location.js";
import { range } from "../time_range.js";
import { addColumn, nameOf } from "./log_list.js";
import { notParameterOf, parameterOf, PATH, question, withoutValue } from "./log_query.js";
import { ErrorBox, Waiting } from "./messages.js";
import { useKept } from "./work.js";

const FIRST = ["level", "entity_name", "attr.resource.service.name", "attr.gear.id"];
const NAMES = { "attr.resource.service.name": "service", "attr.gear.id": "gear" };
/** Values of a field, fields, and the ms of which fields are counted at most: all records of that time are read. */
const [VALUES, FIELDS, HOUR] = [10, 100, 3_600_000];

/** The fields of the records, of a long time range those of its last hour that has some. @param {any} ready which question may be asked */
export function useFields(params, rows, ready) {
  const asked = useMemo(() => {
    const { from, to } = range(params);
    const since = (Date.parse(rows[0]?.ts) || to) - HOUR;
    return { ...question(params), limit: FIELDS, ...(from < since ? { since: new Date(since).toISOString() } : {}) };
  }, [ready]);
  const answer = useAnswer(ready ? `${PATH}/fields` : null, asked);
  const data = useKept(answer.data);
  const counts = useMemo(() => new Map((data?.data || []).filter((one) => one.count).map((one) => [one.field, one.count])), [data]);
  const known = useMemo(() => [...counts.keys()], [counts]);
  return { ...answer, counts, known, partial: data?.partial, narrowed: asked.since !== question(params).since };
}

function Value({ field, value, times, most, params }) {
  const text = cell(value);
  const [key, not] = [parameterOf(field), notParameterOf(field)];
  const [chosen, left] = [params.get(key) === text, params.getAll(not).includes(text)];
  const rest = { row: null, ...(field === "level" ? { min_level: null } : {}) };
  const back = { [not]: params.getAll(not).filter((other) => other !== text) };
  return html`<li><button class="quiet value" aria-pressed=${chosen} disabled=${!key || value === null} title=${text.slice(0, 300)}
      onClick=${() => change({ ...rest, ...(left ? back : {}), [key]: chosen ? null : text })}>
      <i style=${{ width: `${(100 * times) / most}%` }}></i><span>${text.slice(0, 80) || "(empty)"}</span><b>${count(times, true)}</b></button>
    ${not && value !== null && html`<button class="quiet" aria-pressed=${left} aria-label=${`Leave out ${text.slice(0, 80)}`} title="Leave out"
      onClick=${() => change(left ? back : { ...withoutValue(params, field, text), ...(chosen ? { [key]: null } : {}) })}>⊖</button>`}</li>`;
}

function Values({ field, params, ready }) {
  const asked = { ...question(params), field, limit: VALUES };
  // The filters by the field itself are left out, so that its other values can be chosen.
  for (const key of [parameterOf(field), notParameterOf(field), field === "level" && "min_level"]) delete asked[key];
  const { data: answered, error, loading, again, cancel } = useAnswer(ready ? `${PATH}/top` : null, asked);
  const data = useKept(answered);
  if (error) return html`<${ErrorBox} error=${error} again=${again} />`;
  if (!data) return loading ? html`<${Waiting} what="Counting" cancel=${cancel} />` : ready && html`<button onClick=${again}>Ask</button>`;
  if (!data.data.length) return html`<p class="dim">No record has it.</p>`;
  return html`<ul class="plain values">${data.data.map(({ value, count: times }) => html`<${Value} key=${cell(value)} field=${field} value=${value} times=${times} most=${data.data[0].count} params=${params} />`)}</ul>`;
}

/** @param {{ params: URLSearchParams, fields: ReturnType<typeof useFields>, ready: any }} props */
export function LogFacets({ params, fields, ready }) {
  const { counts, known, partial, narrowed, error, loading, again, cancel } = fields;
  const open = params.has("facet") ? params.getAll("facet") : FIRST.slice(0, 2);
  const shown = [...new Set([...FIRST, ...known, ...open.filter((field) => field.startsWith("attr."))])];
  const toggle = (event, field) => {
    event.preventDefault();
    const chosen = toggled(open, field);
    change({ facet: chosen.length ? chosen : ["none"] }, true);
  };
  return html`<div class="side facets" role="region" aria-label="Fields with counts">
    <${ErrorBox} error=${error} again=${again} />${loading && !known.length && html`<${Waiting} what="Looking for fields" cancel=${cancel} />`}
    ${narrowed && known.length > 0 && html`<p class="dim">Fields are counted in the last hour that has records.</p>`}
    ${shown.map((field) => html`<details key=${field} open=${open.includes(field)}>
      <summary onClick=${(event) => toggle(event, field)}>${NAMES[field] || nameOf(field)} ${counts.has(field) && html`<span class="dim">${count(counts.get(field), true)}</span>`}</summary>
      ${open.includes(field) && html`<div>
        <${Values} field=${field} params=${params} ready=${ready} />
        <button class="quiet" aria-label=${`split chart by ${nameOf(field)}`} onClick=${() => change({ by: field === "level" ? null : field })}>split chart</button>
        <button class="quiet" aria-label=${`${nameOf(field)} as column`} onClick=${() => addColumn(params, field)}>as column</button></div>`}
    </details>`)}
    ${known.length >= FIELDS && html`<p class="dim">Rarer fields are not listed.</p>`}${partial && known.length < FIELDS && html`<p class="bad">Incomplete: ${partial}</p>`}
  </div>`;
}
