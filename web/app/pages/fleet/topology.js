// The topology of the active scenario: gears as boxes in the lane of their Rack or group, wires as lines; the same as tables.
import { useAnswer } from "../../api.js";
import { bytes, count } from "../../format.js";
import { html, useMemo } from "../../html.js";
import { href } from "../../location.js";
import { at } from "../../parts/act.js";
import { ColumnList } from "../../parts/column_list.js";
import { EmptyState, ErrorBox, Waiting } from "../../parts/messages.js";
import { useRepeated } from "../../parts/repeated.js";
import { Table } from "../../parts/table.js";
import { may } from "../../session.js";
import { BOX, graphOf, layOut, readYaml } from "./graph.js";
import { named } from "./rack_state.js";

/** Gears that are drawn; more would be no picture any more. */
const MOST = 300;

const WIRES = [
  { name: "from", title: "From", width: 240, cell: ({ from }) => `${from.gear}.${from.port}` },
  { name: "to", title: "To", width: 240, cell: ({ to }) => `${to.gear}.${to.port}` },
  { name: "lane", title: "Lane", width: 100, cell: ({ lane }) => lane },
  { name: "limits", title: "Limits", width: 260, cell: ({ limits }) => limits },
];
const WAITING = [
  { name: "wire", title: "Guaranteed wire", width: 380, cell: ({ wire }) => wire },
  { name: "rack", title: "Rack", width: 110, cell: ({ rack }) => rack || "" },
  { name: "batches", title: "Waiting", width: 90, number: true, cell: ({ waiting_batches }) => (waiting_batches === null ? "not known" : count(waiting_batches)) },
  { name: "bytes", title: "Bytes", width: 90, number: true, cell: ({ waiting_bytes }) => bytes(waiting_bytes) },
  { name: "limit", title: "May wait", width: 90, number: true, cell: ({ limit_bytes }) => (limit_bytes === null ? "no limit" : bytes(limit_bytes)) },
  { name: "state", title: "State", width: 210, cell: (wire) => (wire.is_held ? html`<span class="bad">full: its senders wait</span>` : wire.is_paused ? "paused" : "flows") },
  { name: "dropped", title: "Dropped", width: 90, number: true, cell: ({ dropped_messages }) => count(dropped_messages) },
];

/** As high as its rows need, up to a limit. */
const high = (rows) => ({ flex: `0 0 ${Math.min(300, 24 * rows.length + 50)}px` });

const clip = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

function Drawing({ graph, status }) {
  const { gears, places, wires, width, height } = useMemo(() => layOut(graph), [graph]);
  const behind = new Set((status?.racks || []).filter(({ converged }) => !converged).map(({ name }) => name));
  const members = new Map((status?.groups || []).map(({ group, racks }) => [group, racks]));
  const label = (place) => (place.isGroup ? `group ${place.name}: ${members.get(place.name)?.join(", ") || "no Rack"}` : `Rack ${place.name}${behind.has(place.name) ? " (does not run it)" : ""}`);
  return html`<div class="topology" tabindex="0" role="group" aria-label="Drawing of the topology">
    <svg width=${width} height=${height} viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${`${gears.length} gears on ${places.length} Racks and groups, ${wires.length} wires; the tables below have the same`}>
      <defs><marker id="arrow" viewBox="0 0 6 6" refX="1" refY="3" markerWidth="6" markerHeight="6" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 0 L6 3 L0 6 z" fill="context-stroke" /></marker></defs>
      ${places.map((place) => html`<g key=${place.name}><rect class="place" x="1" y=${place.y} width=${width - 2} height=${place.height} rx="6" /><text class=${behind.has(place.name) ? "" : "dim"} x=${BOX.pad} y=${place.y + 16}>${clip(label(place), 120)}</text></g>`)}
      ${wires.map(({ path, lane, from, to }) => html`<path class=${`wire ${lane}`} d=${path} marker-end="url(#arrow)"><title>${from.gear}.${from.port} → ${to.gear}.${to.port}, ${lane}</title></path>`)}
      ${gears.map(({ id, name, type, x, y }) => html`<g key=${id}><rect class="gear" x=${x} y=${y} width=${BOX.width} height=${BOX.height} rx="4" /><title>${name} (${type})</title>
        <text x=${x + 8} y=${y + 16}>${clip(name, 21)}</text><text class="dim" x=${x + 8} y=${y + 31}>${clip(type, 21)}</text></g>`)}
    </svg></div>
    <p class="dim">Thick lines: lane guaranteed. Dashed lines: lane hot, in the memory of one Rack.</p>`;
}

/** Gears by Rack, for those who may not read the text of a scenario. */
function GearTable({ status }) {
  const places = [...status.groups.map(({ group, gears, racks }) => ({ name: `group ${group}: ${racks.join(", ") || "no Rack"}`, gears })), ...status.racks];
  return html`<section aria-label="Gears"><h2>Gears</h2><${Table} heads=${["Rack or group", "Gears"]} rows=${places.slice(0, 300).map(({ name, gears }) => [name, gears.join(", ")])} /></section>`;
}

function read(text) {
  try {
    return { graph: graphOf(readYaml(text)) };
  } catch (error) {
    return { why: error.message };
  }
}

export function Topology({ caller, status }) {
  const readable = may(caller, "texts");
  const text = useAnswer(readable && status?.scenario ? at("/api/v1/scenarios", status.scenario.hash) : null);
  const waiting = useRepeated("/api/v1/wires");
  const found = useMemo(() => (text.data ? read(text.data.data.text) : {}), [text.data]);
  if (!status) return html`<${Waiting} what="Asking for the active scenario" />`;
  if (!status.scenario) return html`<${EmptyState} command="platform scenario activate press.yaml">No scenario is active. Activate one:</${EmptyState}>`;
  const { graph, why } = found;
  const wires = waiting.data?.data || [];
  return html`<p><a href=${href("fleet", { view: "scenarios", scenario: status.scenario.reference })}>${named(status.scenario)}</a></p>
    <${ErrorBox} error=${text.error || waiting.error} />
    ${why && html`<p class="bad">This text cannot be drawn here (${why}). <code>platform scenario graph ${status.scenario.reference}</code> draws it.</p>`}
    ${!readable && html`<p class="dim">Wires of lane hot stand in the scenario's text, which authors, operators and admins may read.</p>`}
    ${graph && (graph.gears.length > MOST ? html`<p class="dim">${graph.gears.length} gears: too many for a picture. <code>platform scenario graph ${status.scenario.reference} --format svg</code> draws them all.</p>` : html`<${Drawing} graph=${graph} status=${status} />`)}
    ${graph?.wires.length > 0 && html`<h2>Wires</h2><div class="list" style=${high(graph.wires)}><${ColumnList} label="Wires of the scenario" columns=${WIRES} rows=${graph.wires} keyOf=${({ from, to }) => `${from.gear}.${from.port} ${to.gear}.${to.port}`} /></div>`}
    ${(!graph || graph.gears.length > MOST) && html`<${GearTable} status=${status} />`}
    ${wires.length > 0 && html`<h2>What waits for guaranteed wires</h2><div class="list" style=${high(wires)}><${ColumnList} label="What waits for guaranteed wires" columns=${WAITING} rows=${wires} keyOf=${({ wire, rack }) => `${wire} ${rack}`} /></div>`}
    ${waiting.data && !wires.length && html`<p class="dim">No wire of lane guaranteed is in force.</p>`}`;
}
