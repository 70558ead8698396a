// What was logged before and after a record; more of it, both ways, at a press.
import { request } from "../api.js";
import { time } from "../format.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { change, changeBy, href, hrefHere } from "../location.js";
import { Level } from "./log_list.js";
import { filters, PATH, placeOf } from "./log_query.js";
import { ErrorBox, Waiting } from "./messages.js";

/** Records before and after, and with each further press; bytes of their cells. */
const [AROUND, FURTHER, CELL] = [20, 50, 512];
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
    request(PATH, { params: { ...JSON.parse(key), around, before, after, order: "asc", positions: true, cells: CELL }, signal }).then(
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

/** @param {{ row: any, params: URLSearchParams }} props */
export function LogContext({ row, params }) {
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
