// Changes that wait for a second person: what, by whom, until when; withdrawn by anybody who operates.
import { age, time } from "../../format.js";
import { html, useState } from "../../html.js";
import { href } from "../../location.js";
import { act, at, Confirm } from "../../parts/act.js";
import { Answering, EmptyState } from "../../parts/messages.js";
import { Question } from "../../parts/question.js";
import { Table } from "../../parts/table.js";
import { short } from "./rack_state.js";

const WHAT = { approve: "approve a Rack", invite: "invite a Rack", activate: "activate a scenario", roll_back: "roll back" };

/** Where a second person asks for the same. */
function place({ change, entity_id, reference, hash }) {
  if (change === "approve") return href("fleet", { rack: entity_id });
  return href("fleet", { view: "scenarios", scenario: change === "activate" ? hash || reference : null });
}

export function Requests({ answer, say }) {
  const [withdrawn, setWithdrawn] = useState(null);
  const requests = answer.data?.data;
  const withdraw = (signal) => act(at("/api/v1/requests", String(withdrawn.id), "withdraw"), { signal });
  return html`<p class="dim">Nothing is changed before a second person asks for exactly the same within an hour (<code>api.second_person</code>).</p>
    <${Question} path="/api/v1/requests" command="platform requests list" />
    <${Answering} answer=${answer} what="Asking what waits" />
    ${requests && (requests.length ? html`<${Table} heads=${["Request", "What", "Of", "Details", "Asked by", "Waits until", html`<span class="hidden">Action</span>`]} rows=${requests.map((request) => [
        request.id, WHAT[request.change] || request.change,
        request.change === "invite" ? html`<code>platform racks invite ${request.rack}</code>` : html`<a href=${place(request)}>${request.rack || `${request.reference || ""} ${short(request.hash)}`}</a>`,
        html`<code>${request.details}</code>`, `${request.requested_by}, ${age(request.requested)}`, `${time(request.until)}, ${age(request.until)}`,
        html`<button aria-label=${`Withdraw request ${request.id}`} onClick=${() => setWithdrawn(request)}>Withdraw…</button>`,
      ])} />` : html`<${EmptyState}>Nothing waits for a second person.</${EmptyState}>`)}
    ${withdrawn && html`<${Confirm} title=${`Withdraw request ${withdrawn.id}`} action="Withdraw" run=${withdraw} close=${() => setWithdrawn(null)}
      done=${() => say(html`<p>Request ${withdrawn.id} is withdrawn; nothing was changed.</p>`)}><p>${withdrawn.requested_by} asked to ${WHAT[withdrawn.change] || withdrawn.change}: ${withdrawn.rack || withdrawn.reference}.</p></${Confirm}>`}`;
}
