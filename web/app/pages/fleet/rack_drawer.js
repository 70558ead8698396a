// One Rack: its identity, its heartbeat, what it runs and should run, and what may be done with it.
import { age, bytes, time } from "../../format.js";
import { html } from "../../html.js";
import { href } from "../../location.js";
import { CopyButton } from "../../parts/copy_button.js";
import { Drawer } from "../../parts/drawer.js";
import { Question } from "../../parts/question.js";
import { may } from "../../session.js";
import { named, share } from "./rack_state.js";

function Fact({ label, children }) {
  return html`<dt>${label}</dt><dd>${children}</dd>`;
}

function Heartbeat({ rack }) {
  const facts = rack.facts || {};
  const shown = new Set(["cpu.count", "cpu.usage", "load.1m", "memory.total", "memory.used", "disk.total", "disk.free", "clock.offset"]);
  return html`<section aria-label="Heartbeat"><h3>Last heartbeat</h3><dl class="facts">
    <${Fact} label="Last seen">${age(rack.last_seen)}, ${time(rack.last_seen)}</${Fact}>
    ${facts["cpu.count"] && html`<${Fact} label="CPU">${Math.round(100 * (facts["cpu.usage"] || 0))} % of ${facts["cpu.count"]}, load ${facts["load.1m"]}</${Fact}>`}
    ${facts["memory.total"] && html`<${Fact} label="Memory">${bytes(facts["memory.used"])} of ${bytes(facts["memory.total"])} used, ${share(facts["memory.used"], facts["memory.total"])}</${Fact}>`}
    ${facts["disk.total"] && html`<${Fact} label="Disk">${bytes(facts["disk.free"])} of ${bytes(facts["disk.total"])} free, ${share(facts["disk.free"], facts["disk.total"])}</${Fact}>`}
    ${facts["clock.offset"] !== undefined && html`<${Fact} label="Clock"><span class="bad">${facts["clock.offset"]} s from the Mixer's: set its clock</span></${Fact}>`}
    <${Fact} label="Spool">${bytes(rack.spool_bytes)} that the Mixer does not have yet</${Fact}>
    ${Object.entries(facts).filter(([key]) => !shown.has(key)).map(([key, value]) => html`<${Fact} label=${key}>${String(value)}</${Fact}>`)}
  </dl></section>`;
}

function Runs({ rack }) {
  const { wanted, running } = rack.scenario || {};
  return html`<section aria-label="Scenario"><h3>Scenario</h3><dl class="facts">
    <${Fact} label="Wanted">${wanted ? html`<a href=${href("fleet", { view: "scenarios", scenario: wanted.hash })}>${named(wanted)}</a>` : "nothing"}</${Fact}>
    <${Fact} label="Running">${named(running)}</${Fact}>
    <${Fact} label="State">${rack.behind ? html`<span class="bad">behind: ${rack.behind}</span>` : wanted?.hash === running?.hash ? html`<span class="good">it runs what it should</span>` : rack.state}</${Fact}>
    <${Fact} label="Gears">${rack.gears.length ? rack.gears.map((gear) => html`<a href=${href("logs", { rack_id: rack.id, gear_id: gear })}><code>${gear}</code></a> `) : "none"}</${Fact}>
  </dl></section>`;
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
    if (!Object.keys(caller.scope?.racks || {}).length) offered.push(["labels", "Labels…"]);
    if (rack.state === "active" || rack.state === "suspended") offered.push(["log-level", "Log level…"]);
  }
  if (may(caller, "remove")) offered.push(["remove", "Remove…", "danger"]);
  return offered;
}

export function RackDrawer({ rack, wanted, caller, act, close }) {
  if (!rack) return html`<${Drawer} title="Not found" close=${close}><p>There is no Rack ${wanted}, or your token is not for it. <code>platform racks list</code> has all of them.</p></${Drawer}>`;
  return html`<${Drawer} title=${rack.name} close=${close}>
    <p class="bar">${actionsOf(rack, caller).map(([name, title, kind]) => html`<button class=${kind} onClick=${() => act({ name, rack })}>${title}</button>`)}</p>
    <dl class="facts">
      <${Fact} label="State">${rack.state}${rack.state === "pending" ? ": it waits for approval, and runs and sends nothing" : ""}</${Fact}>
      <${Fact} label="Id"><code>${rack.id}</code></${Fact}>
      <${Fact} label="Key"><code>${rack.key_fingerprint}</code> <${CopyButton} text=${rack.key_fingerprint} title="Copy the fingerprint">copy</${CopyButton}></${Fact}>
      <${Fact} label="Host">${rack.host} ${rack.ip}</${Fact}>
      <${Fact} label="Version">${rack.software}</${Fact}>
      <${Fact} label="First seen">${time(rack.first_seen)}</${Fact}>
      <${Fact} label="Labels">${Object.entries(rack.labels).map(([key, value]) => html`<a href=${href("fleet", { label: `${key}=${value}` })}><code>${key}=${value}</code></a> `)}${!Object.keys(rack.labels).length && "none"}</${Fact}>
    </dl>
    <${Runs} rack=${rack} />
    <${Heartbeat} rack=${rack} />
    <section aria-label="More"><h3>More</h3><p class="bar">
      <a href=${href("logs", { rack_id: rack.id })}>its logs</a>
      <a href=${href("dead-letters", { rack: rack.name, state: "all" })}>its dead letters</a>
      ${may(caller, "audit") && html`<a href=${href("security", { view: "audit", rack: rack.id })}>what happened to it</a>`}</p>
      <${Question} path=${`/api/v1/racks/${rack.id}`} params=${{}} command=${`platform racks show ${rack.name}`} /></section>
  </${Drawer}>`;
}
