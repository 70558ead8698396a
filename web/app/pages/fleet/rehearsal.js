// An activation or a rollback: first what it would do to Racks and wires and in what the texts differ, then the confirmation, then what came of it.
import { useAnswer } from "../../api.js";
import { html, useState } from "../../html.js";
import { Table } from "../../parts/layout.js";
import { act, at, Awaited, Failed, isUnknown, useChange } from "../../parts/changes.js";
import { CopyButton } from "../../parts/copy_button.js";
import { Drawer } from "../../parts/drawer.js";
import { ErrorBox, Waiting } from "../../parts/messages.js";
import { named } from "./rack_state.js";

/** Lines around a difference that are shown. */
const AROUND = 3;
/** Pairs of lines that are compared at most; more would hold up the page. */
const MOST = 4_000_000;

/**
 * @returns {{ sign: "+" | "-" | " " | "…", text: string }[] | null} nothing if the texts are too different and too long to compare here
 */
function lineDiff(before, after) {
  const [one, other] = [before.split("\n"), after.split("\n")];
  let [start, end] = [0, 0];
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  while (end < one.length - start && end < other.length - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  const [left, right] = [one.slice(start, one.length - end), other.slice(start, other.length - end)];
  if (left.length * right.length > MOST) return null;
  const same = (text) => ({ sign: " ", text });
  return shorten([...one.slice(0, start).map(same), ...changed(left, right), ...one.slice(one.length - end).map(same)]);
}

/** The longest common subsequence of what is between, walked from its beginning. */
function changed(left, right) {
  const width = right.length + 1;
  const longest = new Uint32Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = left[i] === right[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) [i, j] = [i + 1, j + 1, lines.push({ sign: " ", text: left[i] })];
    else if (j >= right.length || (i < left.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) lines.push({ sign: "-", text: left[i++] });
    else lines.push({ sign: "+", text: right[j++] });
  }
  return lines;
}

/** Leaves out lines that are far from every difference. */
function shorten(lines) {
  const near = new Uint8Array(lines.length);
  lines.forEach(({ sign }, at) => sign !== " " && near.fill(1, Math.max(0, at - AROUND), at + AROUND + 1));
  const shown = [];
  lines.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.at(-1)?.sign !== "…") shown.push({ sign: "…", text: "" });
  });
  return shown;
}

/** How long the Mixer waits for Racks before it says how they stand. */
const WAIT = "20s";
const WIRES = { begins: "gets what comes from now on", resumes: "goes on where it was paused", takes_over: "takes over what waits for", pauses: "is paused, what waits is kept", ends: "ends" };

function Text({ before, after }) {
  const lines = lineDiff(before, after);
  if (!lines) return html`<p class="dim">The texts differ too much to be compared here: <code>platform scenario diff</code>.</p>`;
  const kinds = { "+": "plus", "-": "minus" };
  if (lines.every(({ sign }) => sign === "…")) return html`<p class="dim">The texts are the same.</p>`;
  return html`<pre class="diff" tabindex="0" role="group" aria-label="Differences of the texts">${lines.map(({ sign, text }) => html`<div class=${kinds[sign] || "dim"}>${sign} ${text}</div>`)}</pre>`;
}

/** In what the text differs from that of the active scenario. */
function Difference({ active, wanted }) {
  const before = useAnswer(active ? at("/api/v1/scenarios", active.hash) : null);
  const after = useAnswer(wanted ? at("/api/v1/scenarios", wanted.hash) : null);
  if (!active || !wanted) return null;
  const [one, other] = [before.data?.data.text, after.data?.data.text];
  return html`<section aria-label="Texts"><h3>From ${named(active)} to ${named(wanted)}</h3>
    <${ErrorBox} error=${before.error || after.error} />
    ${one !== undefined && other !== undefined ? html`<${Text} before=${one} after=${other} />` : (before.loading || after.loading) && html`<${Waiting} what="Asking for the texts" />`}</section>`;
}

/** What an active Rack says only because nothing was sent to it yet. */
const NOT_YET = "it has not applied it yet";

function RackTable({ racks, label, rehearsed = false }) {
  const means = ({ converged, reason }) => (converged ? "it runs it" : rehearsed && reason === NOT_YET ? "it changes over at once" : reason);
  if (!racks.length) return html`<p class="dim">It concerns no Rack.</p>`;
  const rows = racks.slice(0, 200).map((rack) => [rack.name, rack.state || "unknown", rack.gears.join(" "), named(rack.running), named(rack.wanted), html`<span class=${rack.converged ? "good" : ""}>${means(rack)}</span>`]);
  return html`<${Table} label=${label} heads=${["Rack", "State", "Gears", "Running", "Wanted", "What it means"]} rows=${rows} />
    ${racks.length > 200 && html`<p class="dim">and ${racks.length - 200} more</p>`}`;
}

function WireTable({ wires }) {
  if (!wires?.length) return null;
  const rows = wires.slice(0, 200).map((wire) => [html`<code>${wire.wire}</code>`, html`${WIRES[wire.change] || wire.change}${wire.from && html` <code>${wire.from}</code>`}`, wire.waiting ?? "not known"]);
  return html`<section aria-label="Wires"><h3>Guaranteed wires</h3><${Table} heads=${["Wire", "What becomes of it", "Waiting"]} numbers=${[2]} rows=${rows} /></section>`;
}

/** Only Racks that would run another text, or cannot. */
function Changes({ report, active }) {
  const moved = report.racks.filter(({ wanted, running, converged }) => !converged || wanted.hash !== running?.hash);
  return html`${report.warnings.map((text) => html`<p class="bad">Warning: ${text}</p>`)}
    <section aria-label="Racks"><h3>${moved.length} of ${report.racks.length} Racks would change</h3><${RackTable} racks=${moved} label="Racks that would change" rehearsed /></section>
    <${WireTable} wires=${report.wires} />
    <${Difference} active=${active} wanted=${report.scenario} />`;
}

function Outcome({ outcome }) {
  if (outcome.awaited) return html`<${Awaited} awaited=${outcome.awaited} />`;
  const { scenario, converged, racks } = outcome.data;
  return html`<p role="status"><strong class=${converged ? "good" : "bad"}>${named(scenario)} is active${converged ? ", and every Rack that it concerns runs it." : "; not every Rack runs it yet. The Mixer goes on trying:"}</strong></p>
    <${RackTable} racks=${racks} label="How Racks follow" />`;
}

/** @param {{ reference: string | null, active: any, close: () => void, say: (said: any) => void }} props no reference: a rollback */
export function Rehearsal({ reference, active, close, say }) {
  const path = reference ? at("/api/v1/scenarios", reference, "activate") : "/api/v1/scenarios/rollback";
  const [resume, setResume] = useState("");
  const [outcome, setOutcome] = useState(null);
  const { busy, error, run, leave } = useChange(close);
  const dry = useAnswer(path, { dry_run: true, resume_from: resume }, { method: "POST" });
  const report = dry.data?.data;
  const title = reference ? `Activate ${reference}` : "Roll back";
  const activate = (signal) => {
    // The content that was rehearsed, whatever the name means, and whatever was active before, by now.
    const { hash } = report.scenario;
    const exact = reference ? at("/api/v1/scenarios", hash, "activate") : path;
    return act(exact, { params: { to: reference ? null : hash, wait: WAIT, resume_from: resume }, signal });
  };
  const done = (came) => {
    setOutcome(came);
    say(came.awaited ? html`<${Awaited} awaited=${came.awaited} />` : html`<p>${named(came.data.scenario)} is active.</p>`);
  };
  const press = () => run(activate, done, (why) => isUnknown(why) || dry.again());
  const command = reference ? `platform scenario activate ${reference}` : "platform scenario rollback";
  return html`<${Drawer} title=${title} close=${leave}>
    ${outcome ? html`<${Outcome} outcome=${outcome} /><button onClick=${close}>Close</button>` : html`
      <p>Nothing is changed yet. This is what it would do <${CopyButton} text=${`${command} --dry-run`} title="Copy as a command">command</${CopyButton}></p>
      <${ErrorBox} error=${dry.error} again=${dry.again} />
      ${dry.loading && html`<${Waiting} what="Rehearsing" />`}
      ${report && html`<${Changes} report=${report} active=${active} />
        ${report.wires?.some(({ change }) => change === "resumes") && html`<label>Wires that were paused go on <select value=${resume} onChange=${(event) => setResume(event.currentTarget.value)}><option value="">where they were paused</option><option value="now">with what comes from now on</option></select></label>`}
        <p class="bar"><button class="primary" disabled=${busy || dry.loading} onClick=${press}>${reference ? `Activate ${named(report.scenario)}` : `Roll back to ${named(report.scenario)}`}</button><button onClick=${leave}>${error ? "Close" : "Cancel"}</button></p>`}
      <${Failed} error=${error} />
      ${busy && html`<${Waiting} what=${`Racks are told; the Mixer waits for them, ${WAIT} at most`} cancel=${leave} />`}`}
  </${Drawer}>`;
}
