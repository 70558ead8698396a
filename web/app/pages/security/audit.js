// The audit log: what was done, when and by whom, the newest first; and its signed checkpoints, by which others can tell whether it was changed.
import { useAnswer } from "../../api.js";
import { age, time } from "../../format.js";
import { html, useMemo } from "../../html.js";
import { change, changeBy, href, hrefHere } from "../../location.js";
import { ColumnList } from "../../parts/column_list.js";
import { CopyButton } from "../../parts/copy_button.js";
import { Drawer, Facts } from "../../parts/drawer.js";
import { Typed } from "../../parts/field.js";
import { EmptyState, ErrorBox } from "../../parts/messages.js";
import { commandOf, Question } from "../../parts/question.js";
import { ListState, NoRows, usePagedRows } from "../../parts/repeated.js";
import { TimePicker } from "../../parts/time_picker.js";

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

export function Audit({ params }) {
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

export function Checkpoints() {
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
