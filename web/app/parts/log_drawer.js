// All of one log record: its fields, what its entity logged before and after it, its trace and its signal.
import { useAnswer } from "../api.js";
import { age, bytes, cell, time } from "../format.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { change, href } from "../location.js";
import { CopyButton } from "./copy_button.js";
import { Drawer } from "./drawer.js";
import { addColumn, nameOf } from "./log_columns.js";
import { Level } from "./log_list.js";
import { justAfter, parameterOf, PATH, placeOf, rowAt } from "./log_query.js";
import { ErrorBox, Waiting } from "./messages.js";

/** Records before and after; characters of a value that are shown at first, and with each further press; fields shown at first. */
const [AROUND, SHOWN, MORE, FIELDS] = [20, 4_000, 64_000, 40];

/** A value, of which a large one is shown piece by piece: a whole one would stop the page. */
function Value({ text }) {
  const [shown, setShown] = useState(SHOWN);
  if (text.length <= shown) return html`<code class="value">${text}</code>`;
  return html`<code class="value">${text.slice(0, shown)}…</code>
    <button onClick=${() => setShown(shown + MORE)}>Show more (${bytes(text.length)} in all)</button>`;
}

function Field({ field, value, params }) {
  const text = cell(value);
  const key = parameterOf(field);
  const filters = key && value !== null && value !== undefined && typeof value !== "object" && text.length <= 1_000;
  return html`<tr><th scope="row">${nameOf(field)}</th><td><${Value} text=${text} /></td><td class="actions">
    ${filters && html`<button class="quiet" aria-label=${`Only records with this ${nameOf(field)}`} title="Only records with this" onClick=${() => change({ [key]: text, row: null })}>⊕</button>`}
    <button class="quiet" aria-label=${`Show ${nameOf(field)} as a column`} title="As a column" onClick=${() => {
      change({ view: "table" }, true);
      addColumn(params, field);
    }}>▤</button>
    <${CopyButton} text=${text} title=${`Copy ${nameOf(field)}`}>copy</${CopyButton}></td></tr>`;
}

function Fields({ row, params }) {
  const [shown, setShown] = useState(FIELDS);
  const attributes = Object.entries(row.attributes || {});
  const fields = [...["ts", "level", "entity_name", "entity_id", "flux_id"].filter((field) => row[field] !== null).map((field) => [field, row[field]]), ...attributes.slice(0, shown).map(([key, value]) => [`attr.${key}`, value])];
  return html`<section aria-label="Fields of the record"><h3>Fields</h3>
    <table><thead class="hidden"><tr><th scope="col">Field</th><th scope="col">Value</th><th scope="col">Actions</th></tr></thead>
      <tbody>${fields.map(([field, value]) => html`<${Field} key=${field} field=${field} value=${value} params=${params} />`)}</tbody></table>
    ${attributes.length > shown && html`<button onClick=${() => setShown(shown + FIELDS)}>${attributes.length - shown} more fields</button>`}
  </section>`;
}

/** The address of the view with another row open. */
function openAt(params, row) {
  const to = new URLSearchParams(params);
  to.set("row", placeOf(row));
  return href("logs", to);
}

function Context({ row, params }) {
  const asked = { entity: row.entity_name, limit: AROUND };
  const before = useAnswer(PATH, { ...asked, until: row.ts });
  const after = useAnswer(PATH, { ...asked, since: row.ts, order: "asc", limit: AROUND + 1 });
  const place = placeOf(row);
  const from = after.data?.data.findIndex((other) => placeOf(other) === place) ?? -1;
  const rest = (after.data?.data || []).toSpliced(from < 0 ? AROUND : from, 1);
  const near = [...(before.data?.data || []).toReversed(), row, ...rest];
  const loading = before.loading || after.loading;
  const box = useRef(null);
  useEffect(() => {
    const own = box.current.querySelector("[aria-current]");
    box.current.scrollTop = own.offsetTop - box.current.clientHeight / 2;
  }, [loading]);
  const wide = { since: new Date(Date.parse(row.ts) - 300_000).toISOString(), until: new Date(Date.parse(row.ts) + 300_000).toISOString(), entity: row.entity_name };
  return html`<section aria-label="Before and after"><h3>Before and after, of ${row.entity_name}</h3>
    <${ErrorBox} error=${before.error || after.error} again=${before.error ? before.again : after.again} />
    ${loading && html`<${Waiting} what="Asking" />`}
    <div class="scrolled" ref=${box} tabindex="0" role="region" aria-label="Records before and after"><table class="near">
      <thead><tr><th scope="col">Time</th><th scope="col">Level</th><th scope="col">Message</th></tr></thead>
      <tbody>${near.map((one) => html`<tr aria-current=${one === row ? "true" : undefined}>
        <td>${one === row ? time(one.ts).slice(11) : html`<a href=${openAt(params, one)} title=${one.ts}>${time(one.ts).slice(11)}</a>`}</td>
        <td><${Level} level=${one.level} /></td><td>${one.message.slice(0, 300)}</td></tr>`)}</tbody></table></div>
    <p><a href=${href("logs", wide)}>Five minutes before and after it</a>${!loading && near.length === 1 ? " Nothing else within 24 hours." : ""}</p>
  </section>`;
}

function Record({ row, params }) {
  const trace = row.attributes?.trace_id;
  return html`<p class="bar">
      ${typeof trace === "string" && html`<a href=${href("traces", { trace_id: trace })}>Its trace</a> <a href=${href("logs", { since: params.get("since"), until: params.get("until"), trace_id: trace })}>Logs of the trace</a>`}
      ${row.flux_id && html`<a href=${href("signal", { flux_id: row.flux_id })}>Its signal</a>`}
      <${CopyButton} text=${() => JSON.stringify(row, null, 2)} title="Copy the record as JSON">copy JSON</${CopyButton}>
    </p>
    <section aria-label="Message"><h3>Message</h3><pre><${Value} text=${row.message} /></pre><${CopyButton} text=${row.message} title="Copy the message">copy</${CopyButton}></section>
    <${Fields} row=${row} params=${params} />
    <${Context} row=${row} params=${params} />`;
}

/** @param {{ place: string, rows: any[], params: URLSearchParams }} props a row that is not loaded is asked for */
export function LogDrawer({ place, rows, params }) {
  const ts = place.split("~")[0];
  const loaded = rowAt(place, rows);
  const valid = /^[\d-]+T[\d:.]+Z$/.test(ts) && !Number.isNaN(Date.parse(ts));
  const { data, error, loading, again } = useAnswer(loaded || !valid ? null : PATH, { since: ts, until: valid && justAfter(ts), limit: 1_000 });
  const row = loaded || (data && rowAt(place, data.data));
  const close = () => change({ row: null });
  return html`<${Drawer} title=${row ? `${age(row.ts)}, ${row.entity_name.slice(0, 100)}` : "Record"} close=${close}>
    <div class="record"><${ErrorBox} error=${error} again=${again} />
      ${row ? html`<${Record} key=${place} row=${row} params=${params} />` : loading ? html`<${Waiting} what="Asking for the record" />` : !error && html`<p>There is no such record any more: rotation removes the oldest ones.</p>`}
    </div></${Drawer}>`;
}
