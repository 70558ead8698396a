// All of one log record: its fields, what was logged before and after it, its trace and its signal.
import { useAnswer } from "../api.js";
import { age, bytes, cell } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { change, href } from "../location.js";
import { CopyButton } from "./copy_button.js";
import { Drawer, SlicedText } from "./drawer.js";
import { addColumn, nameOf } from "./log_columns.js";
import { LogContext } from "./log_context.js";
import { filters, keyOf, notParameterOf, parameterOf, PATH, rowAt, withoutValue } from "./log_query.js";
import { ErrorBox, Waiting } from "./messages.js";
import { CELL } from "./row_stream.js";

/** Fields that are shown at first; characters of a value that is filtered by. */
const [FIELDS, FILTERED] = [40, 1_000];

/** What can be done with a value. A cut one is neither filtered by nor copied: it is not what the record says. */
function Actions({ field, value, text, params }) {
  const [key, name] = [parameterOf(field), nameOf(field)];
  const filters = key && value !== null && value !== undefined && typeof value !== "object" && text.length <= FILTERED;
  return html`${filters && html`<button class="quiet" aria-label=${`Only records with this ${name}`} title="Only records with this" onClick=${() => change({ [key]: text, row: null })}>⊕</button>`}
    ${filters && notParameterOf(field) && html`<button class="quiet" aria-label=${`Leave out records with this ${name}`} title="Leave out records with this" onClick=${() => change(withoutValue(params, field, text))}>⊖</button>`}
    <button class="quiet" aria-label=${`Show ${name} as a column`} title="As a column" onClick=${() => addColumn(params, field)}>▤</button>
    <${CopyButton} text=${text} title=${`Copy ${name}`}>copy</${CopyButton}>`;
}

function Field({ field, value, params }) {
  const text = useMemo(() => cell(value), [value]);
  return html`<tr><th scope="row">${nameOf(field)}</th><td><${SlicedText} text=${text} /></td>
    <td class="actions"><${Actions} field=${field} value=${value} text=${text} params=${params} /></td></tr>`;
}

function Fields({ row, params, load }) {
  const [shown, setShown] = useState(FIELDS);
  const attributes = Object.entries(row.attributes || {});
  const fields = [...["ts", "level", "entity_name", "entity_id", "flux_id"].filter((field) => row[field] !== null).map((field) => [field, row[field]]), ...(row.cut?.attributes ? [] : attributes.slice(0, shown)).map(([key, value]) => [`attr.${key}`, value])];
  return html`<section aria-label="Fields of the record"><h3>Fields</h3>
    <table><thead class="hidden"><tr><th scope="col">Field</th><th scope="col">Value</th><th scope="col">Actions</th></tr></thead>
      <tbody>${fields.map(([field, value]) => html`<${Field} key=${field} field=${field} value=${value} params=${params} />`)}</tbody></table>
    ${row.cut?.attributes ? html`<p>Its attributes are large: <button onClick=${load}>Show them (${bytes(row.cut.attributes)})</button></p>`
      : attributes.length > shown && html`<button onClick=${() => setShown(shown + FIELDS)}>${attributes.length - shown} more fields</button>`}
  </section>`;
}

/** The record as others take it: without what the list says about it. */
const json = ({ position, cut, ...record }) => JSON.stringify(record, null, 2);

function Record({ row, params, load }) {
  const trace = row.attributes?.trace_id;
  return html`<p class="bar">
      ${typeof trace === "string" && html`<a href=${href("traces", { trace_id: trace })}>Its trace</a> <a href=${href("logs", { since: params.get("since"), until: params.get("until"), trace_id: trace })}>Logs of the trace</a>`}
      ${row.flux_id && html`<a href=${href("signal", { flux_id: row.flux_id })}>Its signal</a>`}
      ${!row.cut && html`<${CopyButton} text=${() => json(row)} title="Copy the record as JSON">copy JSON</${CopyButton}>`}
    </p>
    <section aria-label="Message"><h3>Message</h3><${SlicedText} text=${row.message} size=${row.cut?.message} load=${load} />
      ${!row.cut?.message && html`<${Actions} field="message" value=${row.message} text=${row.message} params=${params} />`}</section>
    <${Fields} row=${row} params=${params} load=${load} />
    <${LogContext} row=${row} params=${params} />`;
}

/** @param {{ place: string, rows: any[], params: URLSearchParams }} props a row that is not loaded, or not all of it, is asked for */
export function LogDrawer({ place, rows, params }) {
  const [whole, setWhole] = useState("");
  const loaded = rowAt(place, rows);
  const [at] = place.split("~");
  // One that came live, and was not looked up then, is the first of its moment that the filters let through.
  const asked = { around: at, before: 0, positions: true, order: "asc", cells: whole === place ? null : CELL, ...(at.includes(":") ? { ...filters(params), after: 1 } : { after: 0 }) };
  const { data, error, loading, again, cancel } = useAnswer(loaded && whole !== place ? null : PATH, asked);
  const row = data?.data.find((one) => one.position === at || one.ts === at) || loaded;
  const close = () => change({ row: null });
  return html`<${Drawer} title=${row ? `${age(row.ts)}, ${row.entity_name.slice(0, 100)}` : "Record"} close=${close}>
    <div class="record"><${ErrorBox} error=${error} again=${again} />
      ${loading && html`<${Waiting} what="Asking for the record" cancel=${cancel} />`}
      ${row ? html`<${Record} key=${loaded ? keyOf(loaded) : place} row=${row} params=${params} load=${() => setWhole(place)} />` : !loading && !error && html`<p>There is no such record any more: rotation removes the oldest ones.</p>`}
    </div></${Drawer}>`;
}
