// Who may call and what was done: tokens, the audit log with its signed checkpoints, and what is off in the Mixer's settings.
import { useAnswer } from "../api.js";
import { age, time } from "../format.js";
import { html, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { change, changeBy, href, hrefHere, toggled } from "../location.js";
import { Table, Tabs } from "../parts/layout.js";
import { act, at, Confirm, Said } from "../parts/changes.js";
import { ColumnList } from "../parts/column_list.js";
import { CopyButton } from "../parts/copy_button.js";
import { Drawer, Facts } from "../parts/drawer.js";
import { Field, Typed } from "../parts/field.js";
import { Answering, EmptyState, ErrorBox } from "../parts/messages.js";
import { commandOf, Question } from "../parts/question.js";
import { ListState, NoRows, usePagedRows } from "../parts/repeated.js";
import { TimePicker } from "../parts/time_picker.js";
import { mayForAll } from "../session.js";
import { ageOf } from "../time_range.js";

const ROLES = [
  ["monitor", "reads metrics and health"],
  ["reader", "reads telemetry, Racks, scenarios by name"],
  ["ingester", "stores telemetry, nothing else"],
  ["author", "imports and deletes scenarios"],
  ["operator", "admits and operates Racks, activates, handles letters"],
  ["auditor", "reads the audit log"],
  ["admin", "everything"],
];
const TABLES = ["logs", "traces", "metrics", "messages", "dead_letters"];
const EMPTY = { name: "", roles: ["reader"], tables: [], entities: "", rack: "", expires: "90d" };

/** What is wrong, by field. */
function faultsOf({ name, roles, entities, rack, expires }) {
  const listed = words(entities);
  return {
    name: !name || /^[A-Za-z0-9_-]{1,64}$/.test(name) ? "" : "1 to 64 letters, digits, _ and -",
    roles: roles.length ? "" : "choose a role at least",
    entities: listed.length > 256 ? "256 at most" : listed.some((one) => one.length > 255) ? "255 characters each at most" : "",
    rack: !rack || /^[A-Za-z0-9_-]{1,64}=.*$/.test(rack) ? "" : "one label, written key=value",
    expires: !expires || ageOf(expires) > 0 ? "" : "write it like 90m, 1h30m or 90d; leave it empty for no end",
  };
}

const words = (text) => text.split(/[\s,]+/).filter(Boolean);

function bodyOf({ name, roles, tables, entities, rack, expires }) {
  const [key, value] = rack.split(/=(.*)/s);
  const scope = {};
  if (tables.length) scope.tables = tables;
  if (words(entities).length) scope.entities = words(entities);
  if (rack) scope.racks = { [key]: value };
  return { name, roles, scope, expires_in: expires || null };
}

function Choices({ legend, choices, chosen, set, fault }) {
  return html`<fieldset><legend>${legend}</legend>
    ${choices.map(([name, title]) => html`<label title=${title}><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => set(toggled(chosen, name))} /> ${name}${title ? html` <span class="dim">${title}</span>` : ""}</label>`)}
    ${fault && html`<span class="bad" role="alert">${fault}</span>`}</fieldset>`;
}

function NewToken({ done, close }) {
  const [form, setForm] = useState(EMPTY);
  const faults = faultsOf(form);
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const text = (key, label, help, required = false) => html`<${Field} label=${label} help=${help} fault=${faults[key]} required=${required} value=${form[key]} onInput=${(event) => set(key)(event.currentTarget.value.trimStart())} />`;
  const ready = form.name !== "" && Object.values(faults).every((fault) => !fault);
  return html`<${Confirm} title="New token" action="Make the token" ready=${ready} run=${(signal) => act("/api/v1/tokens", { body: bodyOf(form), signal })} done=${done} close=${close}>
    ${text("name", "Name", "What or who uses it: grafana, anna", true)}
    <${Choices} legend="Roles" choices=${ROLES} chosen=${form.roles} set=${set("roles")} fault=${faults.roles} />
    <${Choices} legend="Only these tables" choices=${TABLES.map((name) => [name, ""])} chosen=${form.tables} set=${set("tables")} />
    ${text("entities", "Only these entities", "Names or ids, with spaces between; empty for all")}
    ${text("rack", "Only Racks with the label", "site=lyon; empty for all. Nothing that concerns the whole fleet may be done then")}
    ${text("expires", "Expires after", form.expires ? "Then it opens nothing" : "It never ends: somebody has to revoke it")}
  </${Confirm}>`;
}

/** A secret that is shown once, in memory of this view only, with a way to copy it. @param {{ secret: string, what: string, clear: () => void, children?: any }} props */
function Secret({ secret, what, clear, children }) {
  const box = useRef(null);
  useLayoutEffect(() => box.current.focus(), []);
  return html`<div class="said" role="group" aria-label=${what} tabindex="-1" ref=${box}><div>
    <p><strong>${what}: shown now and never again.</strong> ${children}</p>
    <pre><code>${secret}</code></pre><${CopyButton} text=${secret} title="Copy the secret">Copy</${CopyButton}>
    <button onClick=${clear}>I have it: forget it</button></div></div>`;
}

/** `press-1 press-2, tables logs`. */
function scopeText({ entities = [], tables = [], racks = {} }) {
  const parts = [tables.length && `tables ${tables.join(" ")}`, entities.length && `entities ${entities.join(" ")}`, Object.keys(racks).length && `Racks ${Object.entries(racks).map(([key, value]) => `${key}=${value}`).join(" ")}`];
  return parts.filter(Boolean).join(", ") || "everything";
}

const ends = ({ expires }) => !expires ? "never" : Date.parse(expires) < Date.now() ? "expired" : age(expires);

const TOKEN_COLUMNS = [
  { field: "name", title: "Token", width: 170 },
  { title: "Roles", width: 170, cell: ({ roles }) => roles.join(", ") },
  { title: "Limited to", width: 240, cell: ({ scope }) => scopeText(scope) },
  { title: "Expires", width: 120, cell: (token) => html`<span class=${token.expires ? "" : "bad"}>${ends(token)}</span>`, hint: ({ expires }) => time(expires) },
  { title: "Last used", width: 120, cell: ({ last_used }) => (last_used ? age(last_used) : "never"), hint: ({ last_used }) => time(last_used) },
  { field: "created_by", title: "Made by", width: 280 },
  { title: "Made", width: 120, cell: ({ created }) => age(created), hint: ({ created }) => time(created) },
  { field: "id", title: "Id", width: 140 },
];

function TokenDrawer({ token, wanted, close, revoke }) {
  if (!token) return html`<${Drawer} title="Not found" close=${close}><p>There is no token ${wanted}: it was revoked, or has another name.</p></${Drawer}>`;
  const quotas = Object.entries(token.quotas || {}).filter(([, value]) => value !== null);
  const ofFile = token.created_by === "api.tokens_file";
  return html`<${Drawer} title=${token.name} close=${close}>
    <p class="bar">${ofFile ? html`<span class="dim">It stands in <code>api.tokens_file</code>: take it out of there.</span>` : html`<button class="danger" onClick=${revoke}>Revoke…</button>`}
      <a href=${href("security", { view: "audit", q: token.id })}>what was done with it</a></p>
    <${Facts} facts=${[
      ["Id", html`<code>${token.id}</code>`], ["Roles", token.roles.join(", ")], ["Limited to", scopeText(token.scope)],
      ["Quotas", quotas.map(([name, value]) => `${name}=${value}`).join(", ") || "those of the Mixer"],
      ["Expires", token.expires ? `${time(token.expires)}, ${ends(token)}` : "never: give tokens an end"],
      ["Last used", token.last_used ? `${time(token.last_used)}, ${age(token.last_used)}` : "never"],
      ["Made", `${time(token.created)} by ${token.created_by}`],
    ]} /></${Drawer}>`;
}

/** Tokens: who has which roles and until when; made with the secret shown once, revoked at once. */
function Tokens({ params }) {
  const answer = useAnswer("/api/v1/tokens");
  const [doing, setDoing] = useState(null);
  const [made, setMade] = useState(null);
  const [said, setSaid] = useState(null);
  const text = (params.get("q") || "").toLowerCase();
  const tokens = answer.data?.data;
  const rows = (tokens || []).filter((token) => !text || [token.name, token.id, token.created_by, ...token.roles].some((value) => value.toLowerCase().includes(text)));
  const wanted = params.get("token");
  const open = tokens?.find(({ id, name }) => id === wanted || name === wanted);
  const end = (what) => {
    setSaid(what);
    answer.again();
  };
  return html`<div class="bar"><button onClick=${() => setDoing("create")}>New token…</button>
      <input type="search" data-search aria-label="Text" placeholder="name, role, who made it" value=${params.get("q") || ""} onInput=${changeBy("q", true)} />
      <${Question} path="/api/v1/tokens" command="platform token list" /></div>
    ${made && html`<${Secret} secret=${made.token} what=${`The secret of ${made.name}`} clear=${() => setMade(null)}>It goes into <code>Authorization: Bearer</code>, or into the password of a PostgreSQL client with the user ${made.name}.</${Secret}>`}
    <${Said} said=${said} clear=${() => setSaid(null)} />
    <${Answering} answer=${answer} what="Asking for the tokens" />
    ${!tokens ? "" : !tokens.length ? html`<${EmptyState} command="platform token create grafana --role reader --expires-in 90d">No token was made. Local users need none where api.auth is "auto"; everybody else does:</${EmptyState}>`
      : html`<div class="list"><${ColumnList} label="Tokens" columns=${TOKEN_COLUMNS} rows=${rows} keyOf=${({ id }) => id} to=${({ id }) => hrefHere({ token: id })} opened=${open?.id} /></div>`}
    ${wanted && tokens && html`<${TokenDrawer} key=${wanted} token=${open} wanted=${wanted} close=${() => change({ token: null })} revoke=${() => setDoing(open)} />`}
    ${doing === "create" && html`<${NewToken} close=${() => setDoing(null)} done=${({ data }) => {
      setMade(data);
      end(null);
    }} />`}
    ${doing?.id && html`<${Confirm} title=${`Revoke ${doing.name}`} action="Revoke" danger typed=${doing.name} run=${(signal) => act(at("/api/v1/tokens", doing.id, "revoke"), { signal })} close=${() => setDoing(null)} done=${() => {
      change({ token: null });
      end(html`<p>${doing.name} is revoked: it opens nothing any more.</p>`);
    }}><p>For ever, and at once: its requests, live tails, taps and PostgreSQL sessions end. It was last used ${doing.last_used ? age(doing.last_used) : "never"}.</p></${Confirm}>`}`;
}

const PAGE = 500;
const KINDS = ["rack_pending", "rack_approved", "rack_adopted", "rack_suspended", "rack_resumed", "rack_removed", "rack_offline", "rack_online", "rack_renamed", "rack_labels", "rack_log_level", "scenario_imported", "scenario_activated", "scenario_rolled_back", "scenario_deleted",
  "letters_replayed", "letters_dropped", "invite_created", "invite_revoked", "invite_refused", "change_requested", "request_withdrawn", "token_created", "token_revoked", "call_refused", "cluster_key_rotated", "bus_authority_rotated", "backup_made", "backup_restored"];

/** A hash as commands name it; anything else as it is. */
const shortened = (text) => (/^[0-9a-f]{64}$/.test(text || "") ? text.slice(0, 8) : text || "nothing");
const changed = ({ from, to }) => (from || to ? `${shortened(from)} → ${shortened(to)}` : "");

const COLUMNS = [
  { field: "id", title: "No.", width: 70 },
  { title: "Time", width: 206, cell: ({ ts }) => time(ts) },
  { title: "What", width: 160, cell: ({ kind }) => html`<span class=${kind === "call_refused" || kind === "invite_refused" || kind === "rack_removed" ? "bad" : ""}>${kind}</span>` },
  { title: "Of", width: 150, cell: ({ rack, reference }) => rack || reference || "" },
  { title: "Change", width: 200, cell: changed },
  { field: "by", title: "By", width: 280 },
  { field: "why", title: "Why, or details", width: 520 },
];

function EntryDrawer({ entry, close }) {
  const shown = (name, value) => {
    if (name === "ts") return time(value);
    if (name === "entity_id") return html`<a href=${href("fleet", { rack: value })}><code>${value}</code></a>`;
    return name === "chain" || name === "hash" ? html`<code>${value}</code>` : String(value);
  };
  const facts = Object.entries(entry).map(([name, value]) => [name, value && shown(name, value)]);
  return html`<${Drawer} title=${`Entry ${entry.id}: ${entry.kind}`} close=${close}>
    <${Facts} facts=${facts} />
    <p class="bar"><${CopyButton} text=${JSON.stringify(entry, null, 2)} title="Copy as JSON">copy JSON</${CopyButton}><a href=${href("security", { view: "audit", kind: entry.kind, since: "90d" })}>all of this kind</a></p></${Drawer}>`;
}

/** The audit log: what was done, when and by whom, the newest first. */
function Audit({ params }) {
  const filter = { since: params.get("since") || "90d", until: params.get("until"), kind: params.get("kind"), rack: params.get("rack") };
  const asked = { ...filter, limit: PAGE };
  const entries = usePagedRows("/api/v1/audit", asked);
  const text = (params.get("q") || "").toLowerCase();
  const rows = useMemo(() => entries.rows.filter((entry) => !text || Object.values(entry).some((value) => value !== null && String(value).toLowerCase().includes(text))), [entries.rows, text]);
  const wanted = params.get("entry");
  const open = wanted && entries.rows.find(({ id }) => String(id) === wanted);
  return html`<div class="bar" role="search" aria-label="Filter entries">
      <label>Kind <select value=${filter.kind || ""} onChange=${changeBy("kind")}><option value="">all</option>${KINDS.map((kind) => html`<option>${kind}</option>`)}</select></label>
      <label>Rack <${Typed} type="search" size="12" placeholder="name or id" value=${filter.rack || ""} onChange=${changeBy("rack")} /></label>
      <label>Text <input type="search" data-search size="16" placeholder="in loaded entries" value=${params.get("q") || ""} onInput=${changeBy("q", true)} /></label>
      <${TimePicker} params=${params} fallback="90d" /></div>
    <${Question} path="/api/v1/audit" params=${asked} command=${commandOf("platform audit", filter)} />
    <${ErrorBox} error=${entries.error} again=${entries.again} />
    ${rows.length ? html`<div class="list"><${ColumnList} label="Audit log" columns=${COLUMNS} rows=${rows} keyOf=${({ id }) => String(id)} to=${({ id }) => hrefHere({ view: "audit", entry: id })} opened=${wanted} onEnd=${text ? undefined : entries.more} /></div>`
      : html`<${NoRows} pages=${entries} what="Asking for the audit log"><${EmptyState}>Nothing ${entries.rows.length ? "that is loaded" : "that was recorded"} meets the filters. <a href=${href("security", { view: "audit" })}>Without filters</a></${EmptyState}></${NoRows}>`}
    ${entries.rows.length > 0 && html`<${ListState} pages=${entries} shown=${rows} what="entries" />`}
    ${open && html`<${EntryDrawer} key=${wanted} entry=${open} close=${() => change({ entry: null })} />`}`;
}

const CHECKPOINT_COLUMNS = [
  { field: "id", title: "Up to entry", width: 100 },
  { title: "Signed", width: 206, cell: ({ ts }) => time(ts) },
  { title: "Age", width: 130, cell: ({ ts }) => age(ts) },
  { title: "Link of that entry", width: 520, cell: ({ chain }) => html`<code>${chain}</code>`, hint: ({ chain }) => chain },
  { title: "By key", width: 520, cell: ({ signed_by }) => html`<code>${signed_by}</code>`, hint: ({ signed_by }) => signed_by },
];

/** Its signed checkpoints, by which others can tell whether it was changed. */
function Checkpoints() {
  const points = usePagedRows("/api/v1/audit/checkpoints", { limit: PAGE });
  const about = useAnswer("/api/v1/audit/checkpoints", { limit: 1 });
  const key = about.data?.cluster_key;
  const verify = `platform audit verify --checkpoints checkpoints.ndjson --cluster-key ${key || "SHA256:…"}`;
  return html`<${Question} path="/api/v1/audit/checkpoints" params=${{ limit: PAGE }} command="platform audit checkpoints -o ndjson" />
    <${Facts} facts=${[
      ["The cluster's key", html`${key && html`<code>${key}</code> <${CopyButton} text=${key} title="Copy the fingerprint">copy</${CopyButton}>`} <span class="dim">note it elsewhere while you trust this Mixer</span>`],
      ["Keys before", about.data?.successions.length ? `${about.data.successions.length}, each has signed the next` : "none"],
      ["To verify", html`<code>${verify}</code> <${CopyButton} text=${verify} title="Copy the command">copy</${CopyButton}>`],
    ]} />
    <${ErrorBox} error=${points.error || about.error} again=${points.again} />
    ${points.rows.length ? html`<div class="list"><${ColumnList} label="Checkpoints" columns=${CHECKPOINT_COLUMNS} rows=${points.rows} keyOf=${({ id, ts }) => `${id} ${ts}`} onEnd=${points.more} /></div>`
      : html`<${NoRows} pages=${points} what="Asking for the checkpoints"><${EmptyState} command="platform audit checkpoints -o ndjson >> /mnt/elsewhere/checkpoints.ndjson">No checkpoint yet: one is signed every hour. Keep them elsewhere, too:</${EmptyState}></${NoRows}>`}`;
}

function Findings({ answer }) {
  const findings = answer.data?.data;
  if (!findings) return html`<${Answering} answer=${answer} what="Asking what is off" />`;
  const sorted = [...findings].sort((one, other) => one.ok - other.ok);
  return html`<${Question} path="/api/v1/security" command="platform doctor --security" />
    ${sorted.every(({ ok }) => ok) && html`<p class="good">Nothing is off.</p>`}
    ${!sorted.length ? html`<${EmptyState}>No check was made.</${EmptyState}>` : html`<${Table} heads=${["Check", "Result", "Found", "How to mend it"]} rows=${sorted.map(({ check, ok, found, fix }) => [check, html`<span class=${ok ? "good" : "bad"}>${ok ? "ok" : "off"}</span>`, found, fix])} />`}`;
}

export default function Security({ params, caller }) {
  const findings = useAnswer("/api/v1/security");
  const manages = mayForAll(caller, "tokens");
  const views = [["audit", "Audit log"], ["checkpoints", "Checkpoints"], ["checks", "Checks", findings.data?.data.filter(({ ok }) => !ok).length]];
  if (manages) views.unshift(["tokens", "Tokens"]);
  const view = params.get("view") || views[0][0];
  const body = () => {
    if (view === "tokens" && manages) return html`<${Tokens} params=${params} />`;
    if (view === "checkpoints") return html`<${Checkpoints} />`;
    return view === "checks" ? html`<${Findings} answer=${findings} />` : html`<${Audit} params=${params} />`;
  };
  return html`<${Tabs} page="security" label="Views of security" views=${views} view=${view} />${body()}`;
}
