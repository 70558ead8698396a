// The fleet: Racks and their admission, scenarios and their activation, the topology, and what waits for a second person.
import { age, time } from "../format.js";
import { html, useState } from "../html.js";
import { href } from "../location.js";
import { Table, Tabs } from "../parts/layout.js";
import { act, at, Confirm, Said } from "../parts/changes.js";
import { Answering, EmptyState, ErrorBox } from "../parts/messages.js";
import { Question } from "../parts/question.js";
import { useRepeated } from "../parts/repeated.js";
import { mayForAll } from "../session.js";
import { short } from "./fleet/rack_state.js";
import { Racks } from "./fleet/racks.js";
import { Scenarios } from "./fleet/scenarios.js";
import { Topology } from "./fleet/topology.js";

const WHAT = { approve: "approve a Rack", invite: "invite a Rack", activate: "activate a scenario", roll_back: "roll back" };

/** Where a second person asks for the same. */
function place({ change, entity_id, reference, hash }) {
  if (change === "approve") return href("fleet", { rack: entity_id });
  return href("fleet", { view: "scenarios", scenario: change === "activate" ? hash || reference : null });
}

/** Changes that wait for a second person: what, by whom, until when; withdrawn by anybody who operates. */
function Requests({ answer, say }) {
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

export default function Fleet({ params, caller }) {
  const [said, setSaid] = useState(null);
  const decides = mayForAll(caller, "operate");
  const racks = useRepeated("/api/v1/racks");
  const status = useRepeated("/api/v1/scenarios/status");
  const requests = useRepeated(decides ? "/api/v1/requests" : null);
  const waiting = requests.data?.data || [];
  const again = () => [racks, status, requests].forEach((answer) => answer.again());
  const say = (text) => {
    setSaid(text);
    again();
  };
  const view = params.get("view") || "racks";
  const views = [["racks", "Racks", racks.data?.data.filter(({ state }) => state !== "removed").length], ["scenarios", "Scenarios"], ["topology", "Topology"]];
  if (decides) views.push(["requests", "Waiting requests", waiting.length]);
  const shared = { params, caller, status: status.data?.data, say };
  const body = () => {
    if (view === "scenarios") return html`<${Scenarios} ...${shared} />`;
    if (view === "topology") return html`<${Topology} ...${shared} />`;
    if (view === "requests" && decides) return html`<${Requests} answer=${requests} say=${say} />`;
    return racks.data ? html`<${Racks} ...${shared} racks=${racks.data.data} />` : !racks.error && html`<${Answering} answer=${racks} what="Asking for the Racks" />`;
  };
  return html`<${Tabs} page="fleet" label="Views of the fleet" views=${views} view=${view} />
    <${Said} said=${said} clear=${() => setSaid(null)} />
    <${ErrorBox} error=${racks.error || status.error} again=${again} />
    ${body()}`;
}
