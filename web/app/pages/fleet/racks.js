// The Racks: those that wait for admission first, then those that do not run what they should; filters, and one Rack's drawer: its identity, its
// heartbeat, what it runs and should run, and what may be done with it, each with what it means and a confirmation.
import { age, bytes, time } from "../../format.js";
import { html, useMemo, useState } from "../../html.js";
import { change, changeBy, href, hrefHere, toggled } from "../../location.js";
import { Table } from "../../parts/layout.js";
import { act, at, Awaited, Confirm } from "../../parts/changes.js";
import { ColumnList } from "../../parts/column_list.js";
import { CopyButton } from "../../parts/copy_button.js";
import { Drawer, Facts } from "../../parts/drawer.js";
import { Field } from "../../parts/field.js";
import { EmptyState } from "../../parts/messages.js";
import { Question } from "../../parts/question.js";
import { may, mayForAll } from "../../session.js";
import { hasLabel, labelList, named, share, withStatus } from "./rack_state.js";

function heartbeat({ facts, last_seen, spool_bytes }) {
  const { "cpu.count": cores, "cpu.usage": usage, "load.1m": load, "memory.total": memory, "memory.used": used, "disk.total": disk, "disk.free": free, "clock.offset": offset, ...others } = facts || {};
  return [
    ["Last seen", `${age(last_seen)}, ${time(last_seen)}`],
    ["CPU", cores && `${Math.round(100 * (usage || 0))} % of ${cores}, load ${load}`],
    ["Memory", memory && `${bytes(used)} of ${bytes(memory)} used, ${share(used, memory)}`],
    ["Disk", disk && `${bytes(free)} of ${bytes(disk)} free, ${share(free, disk)}`],
    ["Clock", offset !== undefined && html`<span class="bad">${offset} s from the Mixer's: set its clock</span>`],
    ["Spool", `${bytes(spool_bytes)} that the Mixer does not have yet`],
    ...Object.entries(others).map(([key, value]) => [key, String(value)]),
  ];
}

function runs({ id, state, scenario, behind, gears }) {
  const { wanted, running } = scenario || {};
  return [
    ["Wanted", wanted ? html`<a href=${href("fleet", { view: "scenarios", scenario: wanted.hash })}>${named(wanted)}</a>` : "nothing"],
    ["Running", named(running)],
    ["State", behind ? html`<span class="bad">behind: ${behind}</span>` : wanted?.hash === running?.hash ? html`<span class="good">it runs what it should</span>` : state],
    ["Gears", gears.length ? gears.map((gear) => html`<a href=${href("logs", { rack_id: id, gear_id: gear })}><code>${gear}</code></a> `) : "none"],
  ];
}

function identity({ state, id, key_fingerprint: key, host, ip, software, first_seen, labels }) {
  const all = labelList(labels);
  return [
    ["State", state === "pending" ? "pending: it waits for approval, and runs and sends nothing" : state],
    ["Id", html`<code>${id}</code>`],
    ["Key", html`<code>${key}</code> <${CopyButton} text=${key} title="Copy the fingerprint">copy</${CopyButton}>`],
    ["Host", `${host} ${ip || ""}`],
    ["Version", software],
    ["First seen", time(first_seen)],
    ["Labels", all.length ? all.map((label) => html`<a href=${href("fleet", { label })}><code>${label}</code></a> `) : "none"],
  ];
}

/** What a role may have done with a Rack in its state. */
function actionsOf(rack, caller) {
  const offered = [];
  if (rack.state === "removed") return offered;
  const online = rack.state === "active" || rack.state === "offline";
  if (may(caller, "operate")) {
    if (rack.state === "pending") offered.push(["approve", "Approve…"]);
    if (online) offered.push(["suspend", "Suspend…"]);
    if (rack.state === "suspended" || rack.state === "offline") offered.push(["resume", "Resume…"]);
    if (mayForAll(caller, "operate")) offered.push(["labels", "Labels…"]);
    if (rack.state === "active" || rack.state === "suspended") offered.push(["log-level", "Log level…"]);
  }
  if (may(caller, "remove")) offered.push(["remove", "Remove…", "danger"]);
  return offered;
}

function RackDrawer({ rack, wanted, caller, act, close }) {
  if (!rack) return html`<${Drawer} title="Not found" close=${close}><p>There is no Rack ${wanted}, or your token is not for it. <code>platform racks list</code> has all of them.</p></${Drawer}>`;
  return html`<${Drawer} title=${rack.name} close=${close}>
    <p class="bar">${actionsOf(rack, caller).map(([name, title, kind]) => html`<button class=${kind} onClick=${() => act({ name, rack })}>${title}</button>`)}</p>
    <${Facts} facts=${identity(rack)} />
    <section aria-label="Scenario"><h3>Scenario</h3><${Facts} facts=${runs(rack)} /></section>
    <section aria-label="Heartbeat"><h3>Last heartbeat</h3><${Facts} facts=${heartbeat(rack)} /></section>
    <section aria-label="More"><h3>More</h3><p class="bar">
      <a href=${href("logs", { rack_id: rack.id })}>its logs</a>
      <a href=${href("dead-letters", { rack: rack.name, state: "all" })}>its dead letters</a>
      ${may(caller, "audit") && html`<a href=${href("security", { view: "audit", rack: rack.id })}>what happened to it</a>`}</p>
      <${Question} path=${`/api/v1/racks/${rack.id}`} command=${`platform racks show ${rack.name}`} /></section>
  </${Drawer}>`;
}

/** A name of Racks, gears and tokens. */
const NAME = /^[A-Za-z0-9_-]{1,64}$/;
/** Characters of a fingerprint's end that are enough to have compared it. */
const ENOUGH = 8;

/** @param {{ rack: any, verb: string, body?: any, method?: string, signal: AbortSignal }} wish */
const ask = ({ rack, verb, body, method, signal }) => act(at("/api/v1/racks", rack.id, verb), { body, method, signal });

function Approve({ rack, done, close }) {
  const [name, setName] = useState(rack.name);
  const [typed, setTyped] = useState("");
  const own = rack.key_fingerprint;
  const compared = typed.trim().replace(/^id=.*key=/, "");
  const same = compared.length >= ENOUGH && (compared === own || own.endsWith(compared));
  const faults = { name: NAME.test(name) ? "" : "1 to 64 letters, digits, _ and -", key: compared.length >= ENOUGH && !same ? "That is another key: do not approve it. Somebody else may wait under this name." : "" };
  const run = (signal) => ask({ rack, verb: "approve", signal, body: { key_fingerprint: own, name: name === rack.name ? null : name } });
  const end = ({ data, awaited }) => done(awaited ? html`<${Awaited} awaited=${awaited} />` : html`<p>${data.name} is admitted; it is sent its part of the active scenario.</p>`);
  return html`<${Confirm} title=${`Approve ${rack.name}`} action="Approve" ready=${same && !faults.name} run=${run} done=${end} close=${close}>
    <p>From ${rack.host} ${rack.ip}. It shows this key; the Rack prints its own at its start and while it waits:</p>
    <pre><code>${own}</code></pre>
    <${Field} label="Key that the Rack prints" help=${`All of it, or its last ${ENOUGH} characters`} fault=${faults.key} value=${typed} onInput=${(event) => setTyped(event.currentTarget.value)} />
    <${Field} label="Admit as" help="Its name in scenarios" fault=${faults.name} value=${name} onInput=${(event) => setName(event.currentTarget.value)} />
    <p class="dim"><${CopyButton} text=${`platform racks approve ${rack.name} --key '${own}'`} title="Copy as a command">command</${CopyButton}></p>
  </${Confirm}>`;
}

function Labels({ rack, done, close }) {
  const [labels, setLabels] = useState(Object.entries(rack.labels));
  const [added, setAdded] = useState("");
  const [key, value] = added.split(/=(.*)/s);
  const fault = !added || (NAME.test(key) && value !== undefined && value.length <= 256) ? "" : "key=value, the key of letters, digits, _ and -";
  const wanted = Object.fromEntries([...labels, ...(added && !fault ? [[key, value]] : [])]);
  const changes = Object.fromEntries([...Object.keys(rack.labels).filter((known) => !(known in wanted)).map((known) => [known, null]), ...Object.entries(wanted).filter(([known, now]) => rack.labels[known] !== now)]);
  const run = (signal) => ask({ rack, verb: "labels", method: "PATCH", body: changes, signal });
  return html`<${Confirm} title=${`Labels of ${rack.name}`} action="Set labels" ready=${!fault && Object.keys(changes).length > 0} run=${run} done=${() => done(html`<p>Labels of ${rack.name} are set.</p>`)} close=${close}>
    <p>Groups of a scenario choose Racks by their labels: this may start and stop gears at once.</p>
    <ul class="chips" aria-label="Labels">${labels.map(([known, now]) => html`<li><code>${known}=${now}</code><button type="button" class="quiet" aria-label=${`Remove ${known}=${now}`} onClick=${() => setLabels(labels.filter(([other]) => other !== known))}>×</button></li>`)}</ul>
    <${Field} label="Add or change" help="role=press" fault=${fault} value=${added} onInput=${(event) => setAdded(event.currentTarget.value.trim())} />
    <p class="dim">It will: ${Object.entries(changes).map(([known, now]) => html`<code>${now === null ? `${known}-` : `${known}=${now}`}</code> `)}${!Object.keys(changes).length && "change nothing"}</p>
  </${Confirm}>`;
}

function LogLevel({ rack, done, close }) {
  const [level, setLevel] = useState("debug");
  const run = (signal) => ask({ rack, verb: "log-level", body: { level }, signal });
  return html`<${Confirm} title=${`Log level of ${rack.name}`} action="Set" run=${run} done=${() => done(html`<p>${rack.name} logs from level ${level} on, until it restarts.</p>`)} close=${close}>
    <${Field} label="Level" help="Of its own log, until it restarts or its configuration file sets another">
      ${(attributes) => html`<select ...${attributes} value=${level} onChange=${(event) => setLevel(event.currentTarget.value)}>${["debug", "info", "warn", "error"].map((name) => html`<option>${name}</option>`)}</select>`}</${Field}>
  </${Confirm}>`;
}

const MEANS = {
  suspend: { action: "Suspend", means: "Its gears stop and their sockets close. Messages on guaranteed wires wait for it. It can be resumed.", done: "is suspended" },
  resume: { action: "Resume", means: "Its gears start again, with the messages that waited.", done: "is resumed" },
  remove: { action: "Remove", danger: true, means: "For ever: its gears stop, its identity is revoked, its name is free. To come back, it needs a new key and another approval.", done: "is removed" },
};

function Simple({ name, rack, done, close }) {
  const { action, danger, means, done: becomes } = MEANS[name];
  const away = rack.state === "offline" ? " It is offline: it learns of it when it is heard again." : "";
  const run = (signal) => ask({ rack, verb: name, signal });
  return html`<${Confirm} title=${`${action} ${rack.name}`} action=${action} danger=${danger} typed=${danger ? rack.name : undefined} run=${run} done=${() => done(html`<p>${rack.name} ${becomes}.</p>`)} close=${close}>
    <p>${means}${away}</p><${Facts} facts=${[["Rack", `${rack.name}, ${rack.state}`], ["Id", html`<code>${rack.id}</code>`], ["Key", html`<code>${rack.key_fingerprint}</code>`], ["Gears", rack.gears.join(", ") || "none"]]} />
  </${Confirm}>`;
}

/** @param {{ name: string, rack: any, done: (said: any) => void, close: () => void }} props */
function RackAction(props) {
  const forms = { approve: Approve, labels: Labels, "log-level": LogLevel };
  return html`<${forms[props.name] || Simple} ...${props} />`;
}

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
