// One Rack: its identity, its heartbeat, what it runs and should run, and what may be done with it, each with what it means and a confirmation.
import { age, bytes, time } from "../../format.js";
import { html, useState } from "../../html.js";
import { href } from "../../location.js";
import { act, at, Awaited, Confirm } from "../../parts/act.js";
import { CopyButton } from "../../parts/copy_button.js";
import { Drawer, Facts } from "../../parts/drawer.js";
import { Field } from "../../parts/field.js";
import { Question } from "../../parts/question.js";
import { may, mayForAll } from "../../session.js";
import { labelList, named, share } from "./rack_state.js";

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

export function RackDrawer({ rack, wanted, caller, act, close }) {
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
export function RackAction(props) {
  const forms = { approve: Approve, labels: Labels, "log-level": LogLevel };
  return html`<${forms[props.name] || Simple} ...${props} />`;
}
