// Dead letters: what gears could not handle, what arrived broken; found by filters, looked at, given back or dropped, one or many.
import { age, bytes, time } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { change, changeBy, href, hrefHere } from "../location.js";
import { Said } from "../parts/act.js";
import { ColumnList } from "../parts/column_list.js";
import { Typed } from "../parts/field.js";
import { EmptyState, ErrorBox } from "../parts/messages.js";
import { micros, timeOf } from "../parts/micros.js";
import { commandOf, Question } from "../parts/question.js";
import { ListState, NoRows, usePagedRows } from "../parts/repeated.js";
import { TimePicker } from "../parts/time_picker.js";
import { mayForAll } from "../session.js";
import { ageOf } from "../time_range.js";
import { LetterDrawer } from "./dead_letters/letter_drawer.js";
import { LettersAction } from "./dead_letters/letters_action.js";

const PAGE = 500;
/** What is looked at unless somebody says another time. */
const AGE = "30d";
const STATES = [["", "open or waiting"], ["open", "open"], ["waiting", "waiting for their gear"], ["replayed", "replayed"], ["dropped", "dropped"], ["all", "all"]];
const KINDS = ["gear", "message", "telemetry", "export", "unknown"];
const TEXTS = [["reason", "Reason", "a part of it"], ["rack", "Rack", "press-1"], ["gear", "Gear", "filter"], ["subject", "Subject", "flux.msg.…"]];

const COLUMNS = [
  { title: "Time", width: 206, cell: ({ ts }) => time(ts) },
  { title: "State", width: 80, cell: ({ state }) => html`<span class=${state === "open" ? "bad" : state === "replayed" ? "good" : "dim"}>${state}</span>` },
  { field: "kind", title: "Kind", width: 80 },
  { title: "Rack, gear and port", width: 190, cell: ({ rack, gear, port }) => [rack, gear, port].filter(Boolean).join(".") },
  { field: "reason", title: "Reason", width: 420 },
  { title: "Can go back", width: 200, cell: ({ replayable, why_not }) => (replayable ? "yes" : html`<span class="dim">no: ${why_not}</span>`), hint: ({ why_not }) => why_not || "" },
  { field: "note", title: "Note", width: 240 },
  { title: "Bytes", width: 80, number: true, cell: (letter) => bytes(letter.bytes) },
  { field: "subject", title: "Subject", width: 260 },
  { field: "attempts", title: "Tries", width: 60, number: true },
];

/** What the API filters by. */
function filterOf(params) {
  const filter = { since: AGE };
  for (const key of ["state", "rack", "gear", "subject", "reason", "since", "until"]) if (params.get(key)) filter[key] = params.get(key);
  return filter;
}

function Filters({ params }) {
  return html`<div class="bar" role="search" aria-label="Filter letters">
    <label>State <select value=${params.get("state") || ""} onChange=${changeBy("state")}>${STATES.map(([value, title]) => html`<option value=${value}>${title}</option>`)}</select></label>
    <label>Kind <select value=${params.get("kind") || ""} onChange=${changeBy("kind")}><option value="">all</option>${KINDS.map((kind) => html`<option>${kind}</option>`)}</select></label>
    ${TEXTS.map(([key, title, example], index) => html`<label>${title} <${Typed} key=${key} type="search" size="12" data-search=${index === 0 ? "" : undefined} placeholder=${example} value=${params.get(key) || ""} onChange=${changeBy(key)} /></label>`)}
    <${TimePicker} params=${params} fallback=${AGE} />
  </div>`;
}

/** A filter that means the same letters however much later it is asked: none that is newer than the newest one here. */
function fixed(filter, newest) {
  const age = ageOf(filter.since);
  return { ...filter, since: Number.isNaN(age) ? filter.since : new Date(Math.max(0, Date.now() - age)).toISOString(), until: timeOf(micros(newest.ts) + 1) };
}

function Selection({ marked, filter, newest, act, clear }) {
  const ids = [...marked];
  const all = (verb) => act({ verb, ids: null, filter: fixed(filter, newest) });
  return html`<div class="bar" role="group" aria-label="Actions"><span>${ids.length ? `${ids.length} marked` : "Mark letters, or take all that the filters mean:"}</span>
    ${ids.length > 0 ? html`<button onClick=${() => act({ verb: "replay", ids })}>Replay ${ids.length}…</button><button class="danger" onClick=${() => act({ verb: "drop", ids })}>Drop ${ids.length}…</button><button onClick=${clear}>Unmark</button>`
      : newest && html`<button onClick=${() => all("replay")}>Replay all…</button><button class="danger" onClick=${() => all("drop")}>Drop all…</button>`}</div>`;
}

export default function DeadLetters({ params, caller }) {
  const filter = filterOf(params);
  const kind = params.get("kind");
  const letters = usePagedRows("/api/v1/dlq", { ...filter, limit: PAGE });
  const [kept, setMarked] = useState(new Set());
  const [action, setAction] = useState(null);
  const [said, setSaid] = useState(null);
  const [acted, setActed] = useState(0);
  const acts = mayForAll(caller, "operate");
  const rows = useMemo(() => (kind ? letters.rows.filter((letter) => letter.kind === kind) : letters.rows), [letters.rows, kind]);
  // What the list does not have is not acted on unseen, and has to be marked again.
  const marked = useMemo(() => new Set(rows.map(({ id }) => id).filter((id) => kept.has(id))), [rows, kept]);
  useEffect(() => setMarked(marked), [rows]);
  const mark = (keys, on) => {
    const now = new Set(marked);
    keys.forEach((key) => (on ? now.add(key) : now.delete(key)));
    setMarked(now);
  };
  const wanted = params.get("letter");
  return html`<${Filters} params=${params} />
    <${Question} path="/api/v1/dlq" params=${{ ...filter, limit: PAGE }} command=${commandOf("platform dlq list", filter)} />
    <${Said} said=${said} clear=${() => setSaid(null)} />
    <${ErrorBox} error=${letters.error} again=${letters.again} />
    ${letters.partial && html`<p class="bad" role="alert">This list is partial: ${letters.partial}</p>`}
    ${acts && rows.length > 0 && html`<${Selection} marked=${marked} filter=${filter} newest=${!kind && letters.isCurrent && rows[0]} act=${setAction} clear=${() => setMarked(new Set())} />`}
    ${rows.length > 0 ? html`<div class="list"><${ColumnList} label="Dead letters" columns=${COLUMNS} rows=${rows} keyOf=${({ id }) => id} to=${({ id }) => hrefHere({ letter: id })} opened=${wanted} marked=${acts ? marked : undefined} mark=${acts ? mark : undefined} onEnd=${kind ? undefined : letters.more} /></div>
        <p class="dim">The newest is from ${age(rows[0].ts)}.</p>`
      : html`<${NoRows} pages=${letters} what="Asking for dead letters"><${EmptyState} command="platform dlq list --state all">No letter${kind && letters.rows.length ? " that is loaded" : ""} meets the filters${params.get("state") || kind ? "" : ": nothing waits to be mended"}. <a href=${href("dead-letters", { state: "all" })}>Letters of every state</a></${EmptyState}></${NoRows}>`}
    ${letters.rows.length > 0 && html`<${ListState} pages=${letters} shown=${rows} what=${kind ? "letters (the Mixer does not filter by kind)" : "letters"} />`}
    ${wanted && html`<${LetterDrawer} key=${`${wanted} ${acted}`} id=${wanted} offers=${acts} act=${setAction} close=${() => change({ letter: null })} />`}
    ${action && html`<${LettersAction} ...${action} by=${caller.caller} close=${() => setAction(null)} done=${(text) => {
      setMarked(new Set());
      setSaid(text);
      setActed(acted + 1);
      letters.again();
    }} />`}`;
}
