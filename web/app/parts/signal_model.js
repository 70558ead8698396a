// One business signal in memory: its rows on lanes, where each is drawn, and who took which message.
import { micros } from "./micros.js";
import { CELL, readRows } from "./row_stream.js";
import { slices } from "./work.js";

/** Rows that are read at first, and once more at each wish. */
export const MOST_ROWS = 10_000;
/** Rows of one request. */
const PAGE = 5_000;
/** Bars of a lane that lie below each other; more share the last line. */
const MOST_LINES = 8;
/** Lanes of their own; rows of further ones share one. */
const MOST_LANES = 60;
const OTHERS = "all others";

/** What lanes are made of. */
export const LANES = { service: "service or Rack", entity: "entity", gear: "gear" };

/**
 * @typedef {{ row: any, key: string, kind: "message" | "span" | "log", at: number, end: number, lane: any, line: number, to: SignalItem[], text?: string }} SignalItem
 *   times in µs; `to`: the spans of those who took a message
 */

/** What a row is found by: made when somebody looks for the first time. @param {SignalItem} item */
export const textOf = (item) => (item.text ??= JSON.stringify(item.row).toLowerCase());

/** Reads the rows of a signal, oldest first. @param {(rows: number) => void} progress */
export async function readSignal(id, most, signal, progress) {
  const rows = [];
  /** @type {(string | null)[]} */
  let [next, partial] = [null, null];
  do {
    const answer = await readRows(`/api/v1/flux/${encodeURIComponent(id)}`, { params: { raw: "none", limit: PAGE, cells: CELL, cursor: next }, signal }, (some) => {
      rows.push(...some);
      progress(rows.length);
    });
    next = answer.next;
    partial ||= answer.partial;
  } while (next && rows.length < most);
  const traces = new Set(rows.map(({ trace_id, attributes }) => trace_id ?? attributes?.trace_id).filter(Boolean));
  const items = await itemsOf(rows, slices(signal));
  const start = items.reduce((least, { at }) => Math.min(least, at), Infinity);
  const end = items.reduce((most, { end }) => Math.max(most, end), start + 1);
  return { items, traces: [...traces], start, end, more: Boolean(next), partial };
}

async function itemsOf(rows, pause) {
  const seen = new Map();
  const items = [];
  for (const row of rows) {
    const name = `${row.kind}:${row.span_id || row.ts}`;
    const times = seen.get(name) || 0;
    seen.set(name, times + 1);
    const at = micros(row.ts);
    const end = row.kind === "span" ? at + Number(row.duration_ms) * 1_000 : at;
    items.push({ row, key: times ? `${name}:${times}` : name, kind: row.kind, at, end, lane: null, line: 0, to: [] });
    if (items.length % 256 === 0) await pause();
  }
  findReceivers(items);
  return items;
}

/** The subject on which a message left its gear. */
const subjectOf = ({ entity_name, src_gear_id, msg_type }) => `flux.msg.${entity_name}.${src_gear_id}.${msg_type}`;

/**
 * Who took a message is seen by spans of its trace: those that process its subject and whose parent is the span that sent it. Where
 * spans do not say so, it is the first one of the gear that the message was for.
 */
function findReceivers(items) {
  const spans = Map.groupBy(items.filter(({ kind }) => kind === "span"), ({ row }) => row.trace_id);
  for (const item of items) {
    if (item.kind !== "message") continue;
    const subject = subjectOf(item.row);
    const near = spans.get(item.row.trace_id) || [];
    const takes = near.filter(({ row }) => row.attributes?.["messaging.destination.name"] === subject && row.attributes["messaging.operation.type"] === "process");
    const sent = near.filter(({ row, at }) => row.attributes?.["gear.id"] === item.row.src_gear_id && row.entity_name === item.row.entity_name && at <= item.at).at(-1);
    const children = takes.filter(({ row }) => row.parent_span_id === sent?.row.span_id);
    const named = near.filter(({ row, at }) => item.row.dst_gear_id && row.attributes?.["gear.id"] === item.row.dst_gear_id && at >= item.at).slice(0, 1);
    item.to = children.length ? children : takes.length ? takes : named;
  }
}

/** The lane of a row, by what lanes are made of. */
export function laneName({ kind, entity_name, src_gear_id, attributes }, by) {
  if (by === "entity") return entity_name;
  if (by === "gear") return [entity_name, kind === "message" ? src_gear_id : attributes?.["gear.id"]].filter(Boolean).join(" / ");
  return String(attributes?.["resource.service.name"] ?? entity_name);
}

/** Puts items on lanes, in the order of their first rows, and bars that overlap on lines below each other. */
export function arrangeLanes(items, by) {
  const lanes = new Map();
  const laneOf = (wanted) => {
    const name = lanes.has(wanted) || lanes.size < MOST_LANES ? wanted : OTHERS;
    if (!lanes.has(name)) lanes.set(name, { name, index: lanes.size, ends: [], hasMarks: false, items: 0 });
    return lanes.get(name);
  };
  for (const item of items) {
    const lane = (item.lane = laneOf(laneName(item.row, by)));
    lane.items += 1;
    if (item.kind !== "span") {
      lane.hasMarks = true;
      continue;
    }
    const free = lane.ends.findIndex((end) => end <= item.at);
    item.line = free >= 0 ? free : Math.min(lane.ends.length, MOST_LINES - 1);
    lane.ends[item.line] = Math.max(item.end, lane.ends[item.line] ?? 0);
  }
  return [...lanes.values()];
}
