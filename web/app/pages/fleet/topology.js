// The topology of the active scenario: gears as boxes in the lane of their Rack or group, from left to right as messages go, wires as lines;
// the same as tables.
import { useAnswer } from "../../api.js";
import { bytes, count } from "../../format.js";
import { html, useMemo } from "../../html.js";
import { href } from "../../location.js";
import { Section, Table } from "../../parts/layout.js";
import { at } from "../../parts/changes.js";
import { ColumnList } from "../../parts/column_list.js";
import { EmptyState, ErrorBox, Waiting } from "../../parts/messages.js";
import { useRepeated } from "../../parts/repeated.js";
import { named } from "./rack_state.js";

/** @typedef {{ name: string, type: string, deploy: string, x: number, y: number }} GearBox */
const BOX = { width: 150, height: 38, gapX: 70, gapY: 12, head: 24, pad: 12 };

/** The gear of `gear.port` or `rack.gear.port`. */
const gearOf = (port) => port.split(".").at(-2);

/** The layout: a lane for each Rack or group. @returns {{ gears: GearBox[], places: any[], wires: any[], width: number, height: number }} */
function layOut({ gears, wires }) {
  const byPlace = [...Map.groupBy(gears, ({ deploy }) => deploy)];
  const first = (of) => Math.min(...of.map(({ layer }) => layer));
  byPlace.sort((one, other) => first(one[1]) - first(other[1]));
  const boxes = new Map();
  let y = 0;
  const places = byPlace.map(([name, of]) => {
    const columns = Map.groupBy(of, ({ layer }) => layer);
    const rows = Math.max(...[...columns.values()].map((column) => column.length));
    for (const [at, column] of columns) {
      column.forEach((gear, row) => boxes.set(gear.name, { ...gear, x: BOX.pad + at * (BOX.width + BOX.gapX), y: y + BOX.head + row * (BOX.height + BOX.gapY) }));
    }
    const height = BOX.head + rows * (BOX.height + BOX.gapY) + BOX.pad - BOX.gapY;
    const place = { name, isGroup: of[0].is_group, y, height };
    y += height + BOX.gapY;
    return place;
  });
  const width = 2 * BOX.pad + (Math.max(0, ...gears.map(({ layer }) => layer)) + 1) * (BOX.width + BOX.gapX) - BOX.gapX;
  return { gears: [...boxes.values()], places, wires: wires.map((wire) => ({ ...wire, path: curve(boxes.get(gearOf(wire.from)), boxes.get(gearOf(wire.to))) })), width, height: y };
}

/** Of a wire, from the right side of one box to the left side of another. */
function curve(from, to) {
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = Math.max(36, Math.abs(x2 - x1) / 2);
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 5} ${y2}`;
}

/** Gears that are drawn; more would be no picture any more. */
const MOST = 300;

const WIRES = [
  { field: "from", title: "From", width: 240 },
  { field: "to", title: "To", width: 240 },
  { field: "lane", title: "Lane", width: 100 },
  { title: "Limits", width: 260, cell: ({ max_bytes, max_age, overflow }) => [max_bytes && bytes(max_bytes), max_age, overflow].filter(Boolean).join(", ") },
];
const WAITING = [
  { field: "wire", title: "Guaranteed wire", width: 380 },
  { field: "rack", title: "Rack", width: 110 },
  { title: "Waiting", width: 90, number: true, cell: ({ waiting_batches }) => (waiting_batches === null ? "not known" : count(waiting_batches)) },
  { title: "Bytes", width: 90, number: true, cell: ({ waiting_bytes }) => bytes(waiting_bytes) },
  { title: "May wait", width: 90, number: true, cell: ({ limit_bytes }) => (limit_bytes === null ? "no limit" : bytes(limit_bytes)) },
  { title: "State", width: 210, cell: (wire) => (wire.is_held ? html`<span class="bad">full: its senders wait</span>` : wire.is_paused ? "paused" : "flows") },
  { title: "Dropped", width: 90, number: true, cell: ({ dropped_messages }) => count(dropped_messages) },
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
      ${places.map((place) => html`<g key=${place.name}><rect class="place" x="1" y=${place.y} width=${width - 2} height=${place.height} rx="6" /><text class=${behind.has(place.name) ? "bad" : "dim"} x=${BOX.pad} y=${place.y + 16}>${clip(label(place), 120)}</text></g>`)}
      ${wires.map(({ path, lane, from, to }) => html`<path class=${`wire ${lane}`} d=${path} marker-end="url(#arrow)"><title>${from} → ${to}, ${lane}</title></path>`)}
      ${gears.map(({ name, type, x, y }) => html`<g key=${name}><rect class="gear" x=${x} y=${y} width=${BOX.width} height=${BOX.height} rx="4" /><title>${name} (${type})</title>
        <text x=${x + 8} y=${y + 16}>${clip(name, 21)}</text><text class="dim" x=${x + 8} y=${y + 31}>${clip(type, 21)}</text></g>`)}
    </svg></div>
    <p class="dim">Thick lines: lane guaranteed. Dashed lines: lane hot, in the memory of one Rack.</p>`;
}

/** Gears by Rack, where they are too many for a picture. */
function GearTable({ status }) {
  const places = [...status.groups.map(({ group, gears, racks }) => ({ name: `group ${group}: ${racks.join(", ") || "no Rack"}`, gears })), ...status.racks];
  return html`<${Section} title="Gears"><${Table} heads=${["Rack or group", "Gears"]} rows=${places.slice(0, 300).map(({ name, gears }) => [name, gears.join(", ")])} /></${Section}>`;
}

export function Topology({ status }) {
  const asked = useAnswer(status?.scenario ? at("/api/v1/scenarios", status.scenario.hash, "graph") : null);
  const waiting = useRepeated("/api/v1/wires");
  if (!status) return html`<${Waiting} what="Asking for the active scenario" />`;
  if (!status.scenario) return html`<${EmptyState} command="platform scenario activate press.yaml">No scenario is active. Activate one:</${EmptyState}>`;
  const graph = asked.data?.data;
  const wires = waiting.data?.data || [];
  const large = graph?.gears.length > MOST;
  return html`<p><a href=${href("fleet", { view: "scenarios", scenario: status.scenario.reference })}>${named(status.scenario)}</a></p>
    <${ErrorBox} error=${asked.error || waiting.error} />
    ${!graph && asked.loading && html`<${Waiting} what="Asking for its gears and wires" cancel=${asked.cancel} />`}
    ${large && html`<p class="dim">${graph.gears.length} gears: too many for a picture. <code>platform scenario graph ${status.scenario.reference} --format svg</code> draws them all.</p>`}
    ${graph && !large && html`<${Drawing} graph=${graph} status=${status} />`}
    ${graph?.wires.length > 0 && html`<h2>Wires</h2><div class="list" style=${high(graph.wires)}><${ColumnList} label="Wires of the scenario" columns=${WIRES} rows=${graph.wires} keyOf=${({ from, to }) => `${from} ${to}`} /></div>`}
    ${large && html`<${GearTable} status=${status} />`}
    ${wires.length > 0 && html`<h2>What waits for guaranteed wires</h2><div class="list" style=${high(wires)}><${ColumnList} label="What waits for guaranteed wires" columns=${WAITING} rows=${wires} keyOf=${({ wire, rack }) => `${wire} ${rack}`} /></div>`}
    ${waiting.data && !wires.length && html`<p class="dim">No wire of lane guaranteed is in force.</p>`}`;
}
