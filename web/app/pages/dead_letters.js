// Dead letters: what gears could not handle, what arrived broken; found by filters, looked at, given back or dropped, one or many.
import { ApiError, request, useAnswer } from "../api.js";
import { age, bytes, cell, count, time } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { change, changeBy, href, hrefHere } from "../location.js";
import { act, at, Confirm, Said } from "../parts/changes.js";
import { ColumnList } from "../parts/column_list.js";
import { CopyButton } from "../parts/copy_button.js";
import { Drawer, Facts, SlicedText } from "../parts/drawer.js";
import { Typed } from "../parts/field.js";
import { Answering, EmptyState, ErrorBox, Waiting } from "../parts/messages.js";
import { micros, timeOf } from "../parts/micros.js";
import { commandOf, Question } from "../parts/question.js";
import { ListState, NoRows, usePagedRows } from "../parts/repeated.js";
import { saveFile } from "../parts/save_file.js";
import { TimePicker } from "../parts/time_picker.js";
import { mayForAll } from "../session.js";
import { ageOf } from "../time_range.js";

/** Bytes in hexadecimal; more of them would hold up the page. */
const MOST = 16_384;

const bytesOf = (hex) => Uint8Array.from({ length: hex.length / 2 }, (_, at) => parseInt(hex.slice(2 * at, 2 * at + 2), 16));

/** `00000010  6f 72 64 65 72 …  order…` */
function hexDump(octets) {
  const lines = [];
  for (let at = 0; at < octets.length; at += 16) {
    const of = [...octets.subarray(at, at + 16)];
    const hex = of.map((octet) => octet.toString(16).padStart(2, "0")).join(" ");
    const text = of.map((octet) => (octet >= 32 && octet < 127 ? String.fromCharCode(octet) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/** A number with its digits, where the browser can. */
const asWritten = (_, value, context) => (typeof value === "number" && JSON.rawJSON && String(value) !== context.source ? JSON.rawJSON(context.source) : value);

/** The forms that these bytes have. */
function forms(octets, message) {
  const found = {};
  if (message) found.message = JSON.stringify(message, null, 2);
  try {
    found.text = new TextDecoder("utf-8", { fatal: true }).decode(octets);
    // Without raw numbers, those of so many digits would be other ones.
    if (JSON.rawJSON || !/\d{16}/.test(found.text)) found.JSON = JSON.stringify(JSON.parse(found.text, asWritten), null, 2);
  } catch {
    // Bytes that are no text, or text that is no JSON, have fewer forms.
  }
  found.hex = hexDump(octets.subarray(0, MOST));
  return found;
}

/** @param {{ hex: string, message: any, type: string | null }} props */
function Payload({ hex, message, type }) {
  const octets = useMemo(() => bytesOf(hex), [hex]);
  const shown = useMemo(() => forms(octets, message), [octets, message]);
  const [chosen, setChosen] = useState(null);
  const form = shown[chosen] === undefined ? ["message", "JSON", "text", "hex"].find((name) => shown[name] !== undefined) : chosen;
  const text = shown[form];
  return html`<section aria-label="Payload"><h3>Payload, ${bytes(octets.length)}${type ? `, ${type}` : ""}</h3>
    <p class="bar">${Object.keys(shown).map((name) => html`<button aria-pressed=${name === form} onClick=${() => setChosen(name)}>${name}</button>`)}
      <${CopyButton} text=${form === "hex" ? hex : text} title="Copy">copy</${CopyButton}><button class="quiet" onClick=${() => saveFile([octets], "letter.bin")}>save bytes</button></p>
    <${SlicedText} key=${form} text=${text} tag="pre" box=${{ role: "group", "aria-label": "Payload", ...(form === "hex" && { class: "diff" }) }} />
    ${form === "hex" && octets.length > MOST && html`<p class="dim">The first ${bytes(MOST)}; save the bytes to see all.</p>`}</section>`;
}

const STATE = { open: "nobody has acted on it", waiting: "on its way back to its gear", replayed: "its gear has taken it", dropped: "discarded by an operator" };
const KIND = { gear: "a message that a gear could not handle", message: "bytes on a wire that are no message", telemetry: "telemetry that cannot be decoded", export: "what a collector refused", unknown: "none of the others, such as a row that was refused over HTTP" };

function factsOf(letter) {
  return [
    ["State", html`<strong>${letter.state}</strong>: ${STATE[letter.state]}`],
    ["Reason", html`<span class="bad">${letter.reason}</span>`],
    ["Can go back", letter.replayable ? "yes" : html`no: ${letter.why_not}`],
    ["Note", letter.note],
    ["Kind", `${letter.kind}: ${KIND[letter.kind] || ""}`],
    ["Place", [letter.rack, letter.gear, letter.port].filter(Boolean).join(".") + (letter.way ? `, ${letter.way === "in" ? "as it arrived" : "as it was to leave"}` : "")],
    ["Came by", letter.from && html`<code>${letter.from}</code>`],
    ["Subject", html`<code>${letter.subject}</code>`],
    ["Stored", `${time(letter.ts)}, ${age(letter.ts)}`],
    ["Tries", [letter.attempts, letter.replays ? `replayed ${letter.replays} times before` : ""].filter(Boolean).join(", ")],
    ["Before, it was", letter.replay_of && html`<a href=${href("dead-letters", { letter: letter.replay_of, state: "all" })}><code>${letter.replay_of}</code></a>`],
    ["Acted on", letter.changed && `${time(letter.changed)} by ${letter.changed_by || "?"}`],
    ["Signal", letter.flux_id && html`<a href=${href("signal", { flux_id: letter.flux_id })}><code>${letter.flux_id}</code></a>`],
    ["Trace", letter.trace_id && html`<a href=${href("traces", { trace_id: letter.trace_id })}><code>${letter.trace_id}</code></a>`],
  ];
}

/** One letter: where it came from, why it failed, what became of it, its bytes; given back or dropped from here. @param {{ id: string, offers: boolean, act: (action: any) => void, close: () => void }} props */
function LetterDrawer({ id, offers, act, close }) {
  const answer = useAnswer(at("/api/v1/dlq", id));
  const letter = answer.data?.data;
  const again = letter && (letter.state === "replayed" || letter.state === "dropped");
  const headers = Object.entries(letter?.headers || {});
  return html`<${Drawer} title=${`Letter ${id.slice(0, 12)}`} close=${close}>
    <${Answering} answer=${answer} what="Asking for the letter" />
    ${letter && html`
      ${offers && html`<p class="bar"><button disabled=${!letter.replayable} onClick=${() => act({ verb: "replay", ids: [id], again })}>${again ? "Replay again…" : "Replay…"}</button>
        ${letter.state !== "dropped" && html`<button class="danger" onClick=${() => act({ verb: "drop", ids: [id] })}>Drop…</button>`}
        ${!letter.replayable && html`<span class="dim">It cannot be replayed: ${letter.why_not}</span>`}</p>`}
      <${Facts} facts=${factsOf(letter)} />
      <${Payload} hex=${letter.payload} message=${letter.message} type=${letter.content_type} />
      ${headers.length > 0 && html`<section aria-label="Headers"><h3>What came with it</h3><${Facts} facts=${headers.map(([name, value]) => [html`<code>${name}</code>`, cell(value)])} /></section>`}
      <${Question} path=${at("/api/v1/dlq", id)} command=${`platform dlq show ${id}`} />`}
  </${Drawer}>`;
}

/** How long the Mixer waits for the gears. */
const WAIT = "10s";
/** Letters of which each is looked at afterwards. */
const EACH = 20;

/** Some letters, with what is said of each. */
const listed = (letters, say) => html`<ul>${letters.map((letter) => html`<li><a href=${href("dead-letters", { letter: letter.id, state: "all" })}><code>${letter.id.slice(0, 16)}</code></a> ${say(letter)}</li>`)}</ul>`;

function Refused({ came }) {
  if (!came.refused_total) return null;
  return html`<p class="bad">${count(came.refused_total)} cannot be:</p>${listed(came.refused.slice(0, EACH), ({ reason }) => reason)}`;
}

function Counts({ came, verb }) {
  const parts = [`${count(came.matched)} meant`, `${count(came.changed)} ${came.dry_run ? "would change" : "changed"}`];
  if (came.already) parts.push(`${count(came.already)} ${verb === "drop" ? "dropped" : "replayed"} already`);
  if (came.replayed) parts.push(`${count(came.replayed)} taken by their gear (one that fails again is open again)`);
  if (came.waiting) parts.push(`${count(came.waiting)} wait for their gear`);
  if (came.dropped && verb === "drop") parts.push(`${count(came.dropped)} dropped`);
  return html`<p>${parts.join(", ")}.</p>${came.partial && html`<p class="bad">There may be more: ${came.partial}</p>`}`;
}

/** Replays or drops letters: first what it would do, then the confirmation, then what became of each. @param {{ verb: "replay" | "drop", ids: string[] | null, filter?: any, by: string, again?: boolean, done: (said: any) => void, close: () => void }} props */
function LettersAction({ verb, ids, filter, by, again, done, close }) {
  /** @type {any} */
  const wish = { ...(ids ? { ids } : { filter }), by: by.slice(0, 128) };
  if (verb === "replay" && again) wish.again = true;
  const path = `/api/v1/dlq/${verb}`;
  const dry = useAnswer(path, {}, { method: "POST", body: { ...wish, dry_run: true } });
  const would = dry.data?.data;
  const run = async (signal) => {
    // Letters that came late, from a Rack that was away, were not rehearsed.
    const { data: now } = await request(path, { method: "POST", body: { ...wish, dry_run: true }, signal });
    if (now.changed !== would.changed || now.matched !== would.matched) {
      dry.again();
      throw new ApiError(409, { detail: `other letters are meant by now: it would change ${count(now.changed)}, not ${count(would.changed)}. Nothing was changed; look again` });
    }
    const { data } = await act(path, { signal, body: verb === "replay" ? { ...wish, wait: WAIT } : wish });
    const looked = (ids || []).slice(0, EACH).map((id) => request(at("/api/v1/dlq", id), { signal }).then((answer) => answer.data, () => null));
    return { came: data, letters: (await Promise.all(looked)).filter(Boolean) };
  };
  const action = verb === "replay" ? "Replay" : "Drop";
  const means = verb === "replay" ? "Each goes back to the gear and port where it failed, and nowhere else, in the order in which they failed. Mend the cause first, or they come back as new letters."
    : "They are marked as dropped, and stay as rows until rotation removes them.";
  const end = ({ came, letters }) => done(html`<strong>${action}:</strong><${Counts} came=${came} verb=${verb} /><${Refused} came=${came} />${letters.length > 0 && listed(letters, ({ state, note }) => `${state}${note ? `: ${note}` : ""}`)}`);
  return html`<${Confirm} title=${ids ? `${action} ${ids.length === 1 ? "a letter" : `${ids.length} letters`}` : `${action} all letters that the filters mean`} action=${would ? `${action} ${count(would.changed)}` : action}
    danger=${verb === "drop"} typed=${!ids && verb === "drop" && would ? String(would.changed) : undefined} ready=${would?.changed > 0} run=${run} done=${end} close=${close}>
    <p>${means}</p>
    ${!ids && html`<p>Filters: ${Object.entries(filter).map(([key, value]) => html`<code>${key}=${value}</code> `)}</p>`}
    <${ErrorBox} error=${dry.error} again=${dry.again} />
    ${dry.loading && html`<${Waiting} what="Asking what it would do" />`}
    ${would && html`<${Counts} came=${would} verb=${verb} /><${Refused} came=${would} />`}
  </${Confirm}>`;
}

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
