// The fleet: Racks and their admission, scenarios and their activation, the topology, and what waits for a second person.
import { html, useState } from "../html.js";
import { Said } from "../parts/act.js";
import { Answering, ErrorBox } from "../parts/messages.js";
import { useRepeated } from "../parts/repeated.js";
import { Tabs } from "../parts/tabs.js";
import { mayForAll } from "../session.js";
import { Racks } from "./fleet/racks.js";
import { Requests } from "./fleet/requests.js";
import { Scenarios } from "./fleet/scenarios.js";
import { Topology } from "./fleet/topology.js";

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
