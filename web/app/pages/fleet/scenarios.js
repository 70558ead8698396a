// Stored scenarios: which is active and how Racks follow it, the text of one, import, deletion, and the way to activate or roll back.
import { ApiError, useAnswer } from "../../api.js";
import { age, time } from "../../format.js";
import { html, useState } from "../../html.js";
import { change, href } from "../../location.js";
import { act, at, Confirm, Failed, useChange } from "../../parts/changes.js";
import { ColumnList } from "../../parts/column_list.js";
import { CopyButton } from "../../parts/copy_button.js";
import { Drawer, Facts } from "../../parts/drawer.js";
import { Field } from "../../parts/field.js";
import { Answering, EmptyState, Waiting } from "../../parts/messages.js";
import { Question } from "../../parts/question.js";
import { saveFile } from "../../parts/save_file.js";
import { may, mayForAll } from "../../session.js";
import { named, short } from "./rack_state.js";
import { Rehearsal } from "./rehearsal.js";

const EXAMPLE = `meta: { name: press, version: "1" }
racks: [ { name: press-1 } ]
gears:
  - { name: numbers, type: generator, deploy: press-1, config: { rate: 1 } }
`;
/** What the Mixer takes. */
const MOST = 4 * 1_024 * 1_024;

function Import({ done }) {
  const [text, setText] = useState("");
  const [replace, setReplace] = useState(false);
  const [large, setLarge] = useState(null);
  const change = useChange();
  const error = large || change.error;
  const lines = error?.errors?.filter(({ line }) => line) || [];
  const submit = (event) => {
    event.preventDefault();
    setLarge(null);
    change.run((signal) => act("/api/v1/scenarios", { params: { replace: replace || null }, body: text, type: "application/yaml", signal }), ({ data }) => done(data));
  };
  const pick = async (event) => {
    const [file] = event.currentTarget.files;
    if (!file) return;
    const isLarge = file.size > MOST;
    setLarge(isLarge ? new ApiError(413, { detail: "a scenario has 4 MiB at most" }) : null);
    if (!isLarge) setText(await file.text());
  };
  const write = (event) => {
    setLarge(null);
    setText(event.currentTarget.value);
  };
  const goTo = ({ line, column }) => {
    /** @type {any} */
    const field = document.getElementById("scenario-text")?.querySelector("textarea");
    const start = text.split("\n").slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + column - 1;
    field.focus();
    field.setSelectionRange(start, start + 1);
  };
  return html`<form class="form" onSubmit=${submit} aria-label="Import a scenario">
    <${Field} label="File" help="A YAML file of up to 4 MiB">${(attributes) => html`<input ...${attributes} type="file" accept=".yaml,.yml" onChange=${pick} />`}</${Field}>
    <div id="scenario-text"><${Field} label="Text" help=${html`Checked as by <code>platform scenario validate</code>; storing it runs nothing`} fault=${lines.length ? `${lines.length} ${lines.length === 1 ? "fault" : "faults"}, listed below` : ""}>
      ${(attributes) => html`<textarea ...${attributes} required class="code" rows="12" spellcheck="false" placeholder=${EXAMPLE} value=${text} onInput=${write}></textarea>`}</${Field}></div>
    ${lines.length > 0 ? html`<ul>${lines.map((fault) => html`<li><button type="button" class="quiet bad" onClick=${() => goTo(fault)}>${fault.line}:${fault.column}</button> ${fault.detail}</li>`)}</ul>` : html`<${Failed} error=${error} />`}
    ${change.busy && html`<${Waiting} what="Checking and storing" cancel=${change.leave} />`}
    <label><input type="checkbox" checked=${replace} onChange=${(event) => setReplace(event.currentTarget.checked)} /> Replace another text that has this name and version; what runs does not change</label>
    <p class="bar"><button class="primary" disabled=${change.busy}>Check and store</button></p>
  </form>`;
}

const COLUMNS = [
  { field: "reference", title: "Scenario", width: 200 },
  { title: "Hash", width: 90, cell: ({ hash }) => short(hash), hint: ({ hash }) => hash },
  { title: "Active", width: 80, cell: ({ active }) => active && html`<strong class="good">active</strong>` },
  { title: "Stored", width: 200, cell: ({ stored }) => time(stored) },
  { title: "Age", width: 130, cell: ({ stored }) => age(stored) },
];

/** Which one is active, and what was before. */
function Active({ status, canActivate, rollBack }) {
  const behind = status.racks.filter(({ converged }) => !converged);
  return html`<section aria-label="Active scenario"><p class="bar"><strong>${status.scenario ? named(status.scenario) : "No scenario is active"}</strong>
    ${status.activated && html`<span class="dim">since ${time(status.activated)}, ${age(status.activated)}</span>`}
    ${status.scenario && (status.converged ? html`<span class="good">all ${status.racks.length} Racks run it</span>` : html`<a class="bad" href=${href("fleet", { behind: "1" })}>${behind.length} of ${status.racks.length} Racks do not</a>`)}
    ${canActivate && status.history.length > 0 && html`<button onClick=${rollBack}>Roll back to ${named(status.history[0])}…</button>`}</p>
    ${behind.slice(0, 5).map(({ name, reason }) => html`<p class="dim">${name}: ${reason}</p>`)}
    ${status.warnings.map((text) => html`<p class="bad">Warning: ${text}</p>`)}</section>`;
}

function ScenarioDrawer({ wanted, listed, caller, decides, close, activate, remove }) {
  const readable = may(caller, "texts");
  const answer = useAnswer(readable ? at("/api/v1/scenarios", wanted) : null);
  const one = answer.data?.data || listed;
  return html`<${Drawer} title=${one?.reference || wanted} close=${close}>
    ${readable && html`<${Answering} answer=${answer} what="Asking for the scenario" />`}
    ${one && html`
      <p class="bar">${decides && !one.active && html`<button class="primary" onClick=${activate}>Activate: dry run first…</button>`}
        ${one.text !== undefined && html`<button onClick=${() => saveFile([one.text], `${one.name}-${one.version}.yaml`, "application/yaml")}>Save as a file</button><${CopyButton} text=${one.text} title="Copy the text">copy</${CopyButton}>`}
        ${mayForAll(caller, "author") && !one.active && html`<button class="danger" onClick=${() => remove(one)}>Delete…</button>`}</p>
      <${Facts} facts=${[["Hash", html`<code>${one.hash}</code>`], ["Stored", time(one.stored)], ["Active", one.active ? html`yes <a href=${href("fleet", { view: "topology" })}>its topology</a>` : "no"]]} />
      ${one.text !== undefined ? html`<pre tabindex="0" role="group" aria-label="Text of the scenario"><code>${one.text}</code></pre>` : !readable && html`<p class="dim">The text is for authors, operators and admins.</p>`}
      <${Question} path=${at("/api/v1/scenarios", one.reference)} command=${`platform scenario show ${one.reference}`} />`}
  </${Drawer}>`;
}

function Delete({ scenario, done, close }) {
  const run = (signal) => act(at("/api/v1/scenarios", scenario.hash, "delete"), { signal });
  return html`<${Confirm} title=${`Delete ${scenario.reference}`} action="Delete" danger typed=${scenario.reference} run=${run} done=${done} close=${close}>
    <p>Its name and its text (${short(scenario.hash)}) are forgotten. A rollback can still restore it if it was active before.</p></${Confirm}>`;
}

export function Scenarios({ params, caller, status, say }) {
  const answer = useAnswer("/api/v1/scenarios");
  const [deleted, setDeleted] = useState(null);
  const decides = mayForAll(caller, "operate");
  const authors = mayForAll(caller, "author");
  const rows = [...(answer.data?.data || [])].sort((one, other) => other.active - one.active || other.stored.localeCompare(one.stored));
  const [wanted, doing] = [params.get("scenario"), params.get("do")];
  const close = () => change({ scenario: null, do: null });
  const told = (text) => {
    answer.again();
    say(text);
  };
  const listed = rows.find(({ hash, reference }) => wanted === reference || (wanted && hash.startsWith(wanted)));
  return html`${status && html`<${Active} status=${status} canActivate=${decides} rollBack=${() => change({ do: "rollback" })} />`}
    <p class="bar">${authors && html`<button aria-expanded=${doing === "import"} onClick=${() => change({ do: doing === "import" ? null : "import" })}>Import…</button>`}
      <${Question} path="/api/v1/scenarios" command="platform scenario list" /></p>
    ${authors && doing === "import" && html`<${Import} done=${(imported) => {
      change({ do: null, scenario: imported.reference });
      told(html`<p>${imported.reference} ${short(imported.hash)} is ${imported.new ? "stored" : "stored already"}; nothing runs it before it is activated. ${imported.warnings.map(({ line, text }) => `Line ${line}: ${text} `)}</p>`);
    }} />`}
    <${Answering} answer=${answer} what="Asking for the scenarios" />
    ${!answer.data ? "" : !rows.length ? html`<${EmptyState} command="platform scenario import press.yaml">No scenario is stored. Import one:</${EmptyState}>`
      : html`<div class="list"><${ColumnList} label="Scenarios" columns=${COLUMNS} rows=${rows} keyOf=${({ reference }) => reference} to=${({ reference }) => href("fleet", { view: "scenarios", scenario: reference })} opened=${listed?.reference} /></div>`}
    ${decides && doing === "rollback" && html`<${Rehearsal} reference=${null} active=${status?.scenario} close=${close} say=${told} />`}
    ${wanted && decides && doing === "activate" && html`<${Rehearsal} key=${wanted} reference=${wanted} active=${status?.scenario} close=${close} say=${told} />`}
    ${wanted && doing !== "activate" && html`<${ScenarioDrawer} key=${wanted} wanted=${wanted} listed=${listed} caller=${caller} decides=${decides} close=${close} activate=${() => change({ do: "activate" })} remove=${setDeleted} />`}
    ${deleted && html`<${Delete} scenario=${deleted} close=${() => setDeleted(null)} done=${() => {
      close();
      told(html`<p>${deleted.reference} is deleted.</p>`);
    }} />`}`;
}
