// One trace in memory: its spans as a tree, which of them are shown, and its critical path. All that walks over all spans goes in slices.
import { micros } from "./micros.js";
import { CELL, readRows } from "./row_stream.js";
import { slices } from "./work.js";

/** Spans that are read at first, and once more at each wish. */
export const MOST_SPANS = 20_000;
/** Spans of one request. */
const PAGE = 10_000;
/** Spans between two looks at the clock. */
const BATCH = 256;

/**
 * @typedef {{ row: any, id: string, parent: SpanNode | null, children: SpanNode[], start: number, end: number, depth: number, index: number,
 *   last: number, service: string, text?: string }} SpanNode times in µs; `index` in the order of the tree, `last` that of its last descendant
 * @typedef {{ nodes: SpanNode[], roots: SpanNode[], byId: Map<string, SpanNode>, start: number, end: number, services: string[], errors: number,
 *   fluxes: string[], more: boolean, partial: string | null }} Trace
 */

function nodeOf(row) {
  const start = micros(row.ts);
  const service = row.attributes?.["resource.service.name"] ?? row.entity_name;
  return { row, id: row.span_id, parent: null, children: [], start, end: start + Number(row.duration_ms) * 1_000, depth: 0, index: -1, last: -1, service: String(service) };
}

/** What a span is found by: made when somebody looks for the first time. */
const textOf = (node) => (node.text ??= `${node.service} ${node.row.span_name} ${node.id} ${node.row.status} ${JSON.stringify(node.row.attributes)}`.toLowerCase());

/** Reads a trace. @param {(spans: number) => void} progress @returns {Promise<Trace>} */
export async function readTrace(id, most, signal, progress) {
  const nodes = [];
  /** @type {(string | null)[]} */
  let [next, partial] = [null, null];
  do {
    const params = { trace_id: id, since: "1970-01-01T00:00:00Z", order: "asc", limit: PAGE, cells: CELL, cursor: next };
    const answer = await readRows("/api/v1/telemetry/traces", { params, signal }, (rows) => {
      for (const row of rows) nodes.push(nodeOf(row));
      progress(nodes.length);
    });
    next = answer.next;
    partial ||= answer.partial;
  } while (next && nodes.length < most);
  return { ...(await arrange(nodes, signal)), more: Boolean(next), partial };
}

/** Puts spans, the earliest first, into the order of their tree. A span whose parent is not there is a root, and so is the earliest of a circle. */
async function arrange(nodes, signal) {
  const pause = slices(signal);
  const byId = new Map();
  for (const node of nodes) if (!byId.has(node.id)) byId.set(node.id, node);
  const roots = [];
  for (const [at, node] of nodes.entries()) {
    const parent = byId.get(node.row.parent_span_id);
    if (parent && parent !== node) {
      node.parent = parent;
      parent.children.push(node);
    } else roots.push(node);
    if (at % BATCH === 0) await pause();
  }
  const ordered = [];
  for (const root of roots) await walk(root, ordered, pause);
  for (const node of nodes) {
    if (node.index >= 0) continue;
    node.parent.children.splice(node.parent.children.indexOf(node), 1);
    node.parent = null;
    roots.push(node);
    await walk(node, ordered, pause);
  }
  return { nodes: ordered, roots, byId, ...(await sums(nodes, pause)) };
}

async function walk(root, ordered, pause) {
  const stack = [root];
  while (stack.length) {
    const node = stack.pop();
    if (node.index >= 0) {
      node.last = ordered.length - 1;
      continue;
    }
    node.index = ordered.push(node) - 1;
    node.depth = node.parent ? node.parent.depth + 1 : 0;
    stack.push(node);
    for (let at = node.children.length - 1; at >= 0; at -= 1) if (node.children[at].index < 0) stack.push(node.children[at]);
    if (node.index % BATCH === 0) await pause();
  }
}

async function sums(nodes, pause) {
  let [start, end, errors] = [Infinity, -Infinity, 0];
  const [services, fluxes] = [new Set(), new Set()];
  for (const [at, node] of nodes.entries()) {
    start = Math.min(start, node.start);
    end = Math.max(end, node.end);
    services.add(node.service);
    if (node.row.flux_id) fluxes.add(node.row.flux_id);
    if (node.row.status === "error") errors += 1;
    if (at % BATCH === 0) await pause();
  }
  return { start, end: Math.max(end, start + 1), services: [...services], fluxes: [...fluxes], errors };
}

/**
 * The spans that are shown, in order: those that are wanted, and those above them.
 * @param {Trace} trace
 * @param {{ closed: Set<string>, depth: number, text: string, share: number, path: Map<SpanNode, any> | null }} wish `share`: of the trace's time, a hundredth
 */
export function shownSpans({ nodes, start, end }, { closed, depth, text, share, path }) {
  const least = ((end - start) * share) / 100;
  const wanted = text.toLowerCase();
  const all = !wanted && !share && !path;
  const kept = new Uint8Array(all ? 0 : nodes.length);
  if (!all) {
    for (const node of nodes) {
      if (node.end - node.start < least || (wanted && !textOf(node).includes(wanted)) || (path && !path.has(node))) continue;
      // @ts-expect-error a root has none above it
      for (let above = node; above && !kept[above.index]; above = above.parent) kept[above.index] = 1;
    }
  }
  const shown = [];
  for (let at = 0; at < nodes.length; at += 1) {
    const node = nodes[at];
    if (!all && !kept[at]) continue;
    shown.push(node);
    if (closed.has(node.id) || node.depth + 1 >= depth) at = node.last;
  }
  return shown;
}

/**
 * The critical path: at each moment of a root, the span that the end waited for. From the end backwards: the child that ended last, before
 * it that which had ended last when it began, and so on; what is left is the span's own time.
 * @param {Trace} trace @returns {Promise<Map<SpanNode, [number, number][]>>} the pieces of each span that is on it
 */
export async function criticalPath(trace, signal) {
  const pause = slices(signal);
  // Durations have 24 bits: two spans may seem to overlap by as much.
  const slack = 2 + (trace.end - trace.start) * 1e-7;
  const root = trace.roots.reduce((longest, node) => (node.end - node.start > longest.end - longest.start ? node : longest));
  const path = new Map();
  const add = (node, from, to) => to > from && (path.get(node)?.push([from, to]) ?? path.set(node, [[from, to]]));
  const frame = (node, until) => ({ node, until, first: true, at: 0, children: node.children.toSorted((one, other) => other.end - one.end) });
  const stack = [frame(root, root.end)];
  for (let steps = 0; stack.length; steps += 1) {
    if (steps % BATCH === 0) await pause();
    const top = stack.at(-1);
    const child = top.children[top.at];
    if (!child) {
      add(top.node, top.node.start, top.until);
      stack.pop();
      continue;
    }
    top.at += 1;
    const fits = child.start < top.until && child.end > top.node.start && (top.first || child.end <= top.until + slack);
    if (!fits) continue;
    const end = Math.min(child.end, top.until);
    add(top.node, end, top.until);
    top.first = false;
    top.until = Math.max(top.node.start, child.start);
    stack.push(frame(child, end));
  }
  return path;
}
