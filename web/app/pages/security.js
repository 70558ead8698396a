// Who may call and what was done: tokens, the audit log with its signed checkpoints, and what is off in the Mixer's settings.
import { useAnswer } from "../api.js";
import { html } from "../html.js";
import { Answering, EmptyState } from "../parts/messages.js";
import { Question } from "../parts/question.js";
import { Table } from "../parts/table.js";
import { Tabs } from "../parts/tabs.js";
import { mayForAll } from "../session.js";
import { Audit, Checkpoints } from "./security/audit.js";
import { Tokens } from "./security/tokens.js";

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
