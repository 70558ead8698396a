// All of one log record: its fields, what was logged before and after it, its trace and its signal.
import { request, useAnswer } from "../api.js";
import { age, bytes, cell, time } from "../format.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { change, changeBy, href, hrefHere } from "../location.js";
import { CopyButton } from "./copy_button.js";
import { Drawer, SlicedText } from "./drawer.js";
import { addColumn, Level, nameOf } from "./log_list.js";
import { filters, keyOf, notParameterOf, parameterOf, PATH, placeOf, rowAt, withoutValue } from "./log_query.js";
import { ErrorBox, Waiting } from "./messages.js";
import { CELL } from "./row_stream.js";

/** Records before and after, and with each further press; bytes of their cells. */
const [AROUND, FURTHER, BRIEF] = [20, 50, 512];
const NONE = { rows: [], before: false, after: false, moved: "", loading: true, error: null };

/** Whether a row whose cells are cut is this one, which came live: without a position. */
function isSame(cut, row) {
  if (row.position) return cut.position === row.position;
  return cut.ts === row.ts && cut.level === row.level && cut.entity_id === row.entity_id && row.message.startsWith(cut.message)
    && (cut.cut?.attributes > 0 || JSON.stringify(cut.attributes) === JSON.stringify(row.attributes));
}

/** What is known, with an answer: rows around the first or the last one have that one among them. */
function joined(known, { data, around }, moved) {
  if (moved === "earlier") return { ...known, rows: [...data.slice(0, around.row ?? data.length), ...known.rows], before: around.more_before };
  if (moved === "later") return { ...known, rows: [...known.rows, ...data.slice(around.row === null ? 0 : around.row + 1)], after: around.more_after };
  return { ...NONE, rows: data, before: around.more_before, after: around.more_after };
}

/** @param {any} row @param {Record<string, any>} among filters of the rows beside it */
function useContext(row, among) {
  /** @type {[any, (next: any) => void]} */
  const [state, setState] = useState(NONE);
  const asked = useRef(null);
  const key = JSON.stringify(among);
  const ask = (moved, around, before, after) => {
    asked.current?.abort();
    const { signal } = (asked.current = new AbortController());
    setState((known) => ({ ...(moved ? known : NONE), loading: true, error: null, again: () => ask(moved, around, before, after) }));
    request(PATH, { params: { ...JSON.parse(key), around, before, after, order: "asc", positions: true, cells: BRIEF }, signal }).then(
      (answer) => signal.aborted || setState((known) => ({ ...joined(known, answer, moved), moved, loading: false })),
      (error) => signal.aborted || setState((known) => ({ ...known, error, loading: false })),
    );
  };
  useEffect(() => {
    ask("", row.position || row.ts, AROUND, AROUND);
    return () => asked.current.abort();
  }, [key]);
  const position = (at) => state.rows.at(at)?.position;
  return { ...state, earlier: () => ask("earlier", position(0), FURTHER, 0), later: () => ask("later", position(-1), 0, FURTHER) };
}

/** Whose records are shown beside it. */
function Near({ near, row }) {
  return html`<select aria-label="Which records before and after" value=${near} onChange=${changeBy("near", true)}>
    <option value="">of ${row.entity_name.slice(0, 60)}</option><option value="filters">that the filters let through</option><option value="all">of all entities</option></select>`;
}

/** What was logged before and after a record; more of it, both ways, at a press. @param {{ row: any, params: URLSearchParams }} props */
function LogContext({ row, params }) {
  const near = params.get("near") || "";
  const { rows, before, after, moved, loading, error, again, earlier, later } = useContext(row, near === "all" ? {} : near === "filters" ? filters(params) : { entity: row.entity_name });
  const own = rows.find((one) => isSame(one, row));
  const [box, below] = [useRef(null), useRef(0)];
  useEffect(() => {
    if (!own || row.position) return;
    row.position = own.position;
    change({ row: own.position }, true);
  }, [own]);
  useLayoutEffect(() => {
    const marked = box.current.querySelector("[aria-current]");
    if (moved === "earlier") box.current.scrollTop = box.current.scrollHeight - below.current;
    else if (!moved && marked) box.current.scrollTop = marked.offsetTop - box.current.clientHeight / 2;
  }, [rows]);
  const wide = { since: new Date(Date.parse(row.ts) - 300_000).toISOString(), until: new Date(Date.parse(row.ts) + 300_000).toISOString(), entity: row.entity_name };
  return html`<section aria-label="Before and after"><div class="bar"><h3>Before and after</h3><${Near} near=${near} row=${row} />
      <button disabled=${!before || loading} onClick=${() => {
        below.current = box.current.scrollHeight - box.current.scrollTop;
        earlier();
      }}>Earlier</button><button disabled=${!after || loading} onClick=${later}>Later</button>
      ${loading && html`<${Waiting} what="Asking" />`}</div>
    <${ErrorBox} error=${error} again=${again} />
    <div class="scrolled" ref=${box} tabindex="0" role="region" aria-label="Records before and after"><table class="near">
      <thead><tr><th scope="col">Time</th><th scope="col">Level</th>${near && html`<th scope="col">Entity</th>`}<th scope="col">Message</th></tr></thead>
      <tbody>${rows.map((one) => html`<tr aria-current=${one === own ? "true" : undefined}>
        <td>${one === own ? time(one.ts).slice(11) : html`<a href=${hrefHere({ row: placeOf(one) })} title=${one.ts}>${time(one.ts).slice(11)}</a>`}</td>
        <td><${Level} level=${one.level} /></td>${near && html`<td>${one.entity_name}</td>`}<td>${one.message.slice(0, 300)}</td></tr>`)}</tbody></table></div>
    <p><a href=${href("logs", wide)}>Five minutes before and after it</a>${!loading && !error && rows.length < 2 ? " Nothing else within a day." : ""}</p>
  </section>`;
}

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
  const range = { since: params.get("since"), until: params.get("until") };
  return html`<p class="bar">
      ${typeof trace === "string" && html`<a href=${href("traces", { ...range, trace_id: trace })}>Its trace</a> <a href=${href("logs", { ...range, trace_id: trace })}>Logs of the trace</a>`}
      ${row.flux_id && html`<a href=${href("signal", { ...range, flux_id: row.flux_id })}>Its signal</a>`}
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
