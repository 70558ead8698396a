// The Racks: those that wait for admission first, then those that do not run what they should; filters, and one Rack's drawer.
import { age, bytes, time } from "../../format.js";
import { html, useMemo, useState } from "../../html.js";
import { change, changeBy, href, hrefHere, toggled } from "../../location.js";
import { ColumnList } from "../../parts/column_list.js";
import { CopyButton } from "../../parts/copy_button.js";
import { EmptyState } from "../../parts/messages.js";
import { Question } from "../../parts/question.js";
import { Table } from "../../parts/table.js";
import { may } from "../../session.js";
import { RackAction, RackDrawer } from "./rack_drawer.js";
import { hasLabel, labelList, named, share, withStatus } from "./rack_state.js";

/** Pending Racks that are shown above the list; the others are in it. */
const FIRST = 10;
const STATES = ["pending", "active", "suspended", "offline", "removed"];

const COLUMNS = [
  { field: "name", title: "Rack", width: 150 },
  { title: "State", width: 90, cell: ({ state }) => html`<span class=${state === "active" ? "good" : state === "offline" || state === "pending" ? "bad" : "dim"}>${state}</span>` },
  { title: "Behind, and why", width: 420, cell: ({ behind }) => behind && html`<span class="bad">${behind}</span>`, hint: ({ behind }) => behind },
  { title: "Wanted", width: 160, cell: ({ scenario }) => (scenario?.wanted ? named(scenario.wanted) : "") },
  { title: "Running", width: 160, cell: ({ scenario }) => named(scenario?.running) },
  { title: "Last seen", width: 130, cell: ({ last_seen }) => age(last_seen), hint: ({ last_seen }) => time(last_seen) },
  { title: "Spool", width: 80, number: true, cell: ({ spool_bytes }) => bytes(spool_bytes) },
  { title: "Disk free", width: 130, number: true, cell: ({ facts }) => (facts?.["disk.total"] ? `${bytes(facts["disk.free"])}, ${share(facts["disk.free"], facts["disk.total"])}` : "") },
  { field: "software", title: "Version", width: 80 },
  { title: "Labels", width: 200, cell: ({ labels }) => labelList(labels).join(" ") },
  { title: "Host", width: 160, cell: ({ host, ip }) => `${host} ${ip || ""}` },
];

function Filters({ params, racks }) {
  const states = params.getAll("state");
  const counts = Object.groupBy(racks, ({ state }) => state);
  const behind = racks.filter((rack) => rack.behind).length;
  const labels = [...new Set(racks.flatMap(({ labels }) => labelList(labels)))].slice(0, 500);
  return html`<div class="bar" role="search" aria-label="Filter Racks">
    ${STATES.filter((state) => counts[state]).map((state) => html`<button aria-pressed=${states.includes(state)} onClick=${() => change({ state: toggled(states, state) })}>${state} ${counts[state].length}</button>`)}
    <button aria-pressed=${params.has("behind")} onClick=${() => change({ behind: params.has("behind") ? null : "1" })}>behind ${behind}</button>
    <input type="search" data-search placeholder="text: name, host, version, why" aria-label="Text" value=${params.get("q") || ""} onInput=${changeBy("q", true)} />
    <input type="search" placeholder="label: role=press" aria-label="Label" list="fleet-labels" value=${params.get("label") || ""} onInput=${changeBy("label", true)} />
    <datalist id="fleet-labels">${labels.map((label) => html`<option value=${label} />`)}</datalist>
  </div>`;
}

function filtered(racks, params) {
  const [states, text, label] = [params.getAll("state"), (params.get("q") || "").toLowerCase(), params.get("label")];
  return racks.filter((rack) => {
    if (states.length ? !states.includes(rack.state) : rack.state === "removed") return false;
    if (params.has("behind") && !rack.behind) return false;
    if (label && !hasLabel(rack, label)) return false;
    return !text || [rack.name, rack.host, rack.ip, rack.software, rack.behind, rack.id, rack.key_fingerprint].some((value) => value?.toLowerCase().includes(text));
  });
}

function Pending({ racks, caller, act }) {
  const pending = racks.filter(({ state }) => state === "pending");
  if (!pending.length) return null;
  return html`<section aria-label="Waiting for admission"><h2>${pending.length} ${pending.length === 1 ? "Rack waits" : "Racks wait"} for admission</h2>
    <${Table} heads=${["Rack", "Key: compare it with what the Rack prints at its start", "Host", "First seen", "Last seen", html`<span class="hidden">Action</span>`]} rows=${pending.slice(0, FIRST).map((rack) => [
      html`<a href=${hrefHere({ rack: rack.id })}>${rack.name}</a>`, html`<code>${rack.key_fingerprint}</code>`, `${rack.host} ${rack.ip || ""}`, age(rack.first_seen), age(rack.last_seen),
      may(caller, "operate") && html`<button aria-label=${`Approve ${rack.name}`} onClick=${() => act({ name: "approve", rack })}>Approve…</button>`,
    ])} />
    ${pending.length > FIRST && html`<p class="dim">and ${pending.length - FIRST} more: <a href=${href("fleet", { state: "pending" })}>all of them</a></p>`}</section>`;
}

export function Racks({ params, caller, status, racks, say }) {
  const [action, setAction] = useState(null);
  const all = useMemo(() => withStatus(racks, status), [racks, status]);
  const shown = filtered(all, params);
  const wanted = params.get("rack");
  const open = wanted && all.find(({ id, name, state }) => id === wanted || (name === wanted && state !== "removed"));
  return html`<${Pending} racks=${all} caller=${caller} act=${setAction} />
    <${Filters} params=${params} racks=${all} />
    <${Question} path="/api/v1/racks" command="platform racks list" />
    ${!all.length ? html`<${EmptyState} command="platform racks invite press-1   # at the Mixer\nplatform join plinv1_…          # on the Rack's machine\nplatform">No Rack yet. Make an invite, and start a Rack with it:</${EmptyState}>`
      : !shown.length ? html`<${EmptyState}>None of ${all.length} Racks meets the filters. <a href=${href("fleet")}>Without filters</a></${EmptyState}>`
      : html`<p class="dim">${shown.length} of ${all.length} Racks <${CopyButton} text=${() => shown.map(({ name }) => name).join("\n")} title="Copy the names">copy names</${CopyButton}></p>
        <div class="list"><${ColumnList} label="Racks" columns=${COLUMNS} rows=${shown} keyOf=${({ id }) => id} to=${({ id }) => hrefHere({ rack: id })} opened=${open?.id} /></div>`}
    ${wanted && html`<${RackDrawer} key=${wanted} rack=${open} wanted=${wanted} caller=${caller} act=${setAction} close=${() => change({ rack: null })} />`}
    ${action && html`<${RackAction} ...${action} close=${() => setAction(null)} done=${say} />`}`;
}
