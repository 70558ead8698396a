// The waterfall of a trace: one row a span with its name in the tree and its bar in time, and above it all spans as one small drawing that zooms.
import { html, useMemo } from "../html.js";
import { bare, colour, placeName, Plot } from "./chart.js";
import { marks, precise } from "./micros.js";
import { VirtualList } from "./virtual_list.js";

const MAP_HEIGHT = 48;
/** Levels of the tree that are indented; deeper ones stay where this one is. */
const INDENTED = 24;

/** The colour of a service, by its place among the services of the trace. */
const serviceColour = (services, service) => placeName(services.indexOf(service));

/** All spans, small: a drag chooses the time that the bars show. @param {{ trace: any, view: { from: number, to: number }, zoom: (from: number, to: number) => void }} props */
export function TraceMap({ trace, view, zoom }) {
  const { start, end, nodes, services } = trace;
  const data = useMemo(() => [[0, end - start]], [trace]);
  const paint = (context, plot) => {
    const places = new Map(services.map((service) => [service, colour(serviceColour(services, service))]));
    const bad = colour("--level-error");
    const x = (at) => plot.valToPos(at - start, "x");
    const row = MAP_HEIGHT / Math.max(1, nodes.length);
    for (const node of nodes) {
      context.fillStyle = node.row.status === "error" ? bad : places.get(node.service);
      context.fillRect(x(node.start), node.index * row, Math.max(1, x(node.end) - x(node.start)), Math.max(1, Math.min(row - 1, 8)));
    }
    context.fillStyle = colour("--ink-2");
    context.globalAlpha = 0.25;
    context.fillRect(0, 0, x(view.from), MAP_HEIGHT);
    context.fillRect(x(view.to), 0, x(end) - x(view.to), MAP_HEIGHT);
  };
  const options = () => ({ ...bare, axes: [{ show: false }, { show: false }], padding: [0, 0, 0, 0] });
  return html`<div class="trace-map"><${Plot} height=${MAP_HEIGHT} data=${data} drawn=${[view.from, view.to]} options=${options} zoom=${(from, to) => zoom(start + from, start + to)} paint=${paint}
    label=${`All ${nodes.length} spans of the trace over its time; a drag zooms, the rows below have the same`} /></div>`;
}

function Head({ view, start }) {
  const size = view.to - view.from;
  const ticks = marks(view.from - start, view.to - start, 6);
  return html`<div role="row" class="head waterfall">
    <span role="columnheader" class="w-name">Service and span</span>
    <span role="columnheader" class="w-bars"><span class="hidden">Time</span>${ticks.map((at) => html`<span class="tick" style=${{ left: `${(100 * (at + start - view.from)) / size}%` }}>${at === 0 ? "0" : precise(at / 1_000)}</span>`)}</span></div>`;
}

function Bar({ node, view, colour, path }) {
  const size = view.to - view.from;
  const place = (at) => Math.max(-1, Math.min(101, (100 * (at - view.from)) / size));
  const [left, right] = [place(node.start), place(node.end)];
  const pieces = (path?.get(node) || []).slice(0, 200);
  const label = right < 75 ? { left: `calc(${Math.max(0, right)}% + 6px)` } : left > 25 ? { right: `calc(${100 - left}% + 6px)` } : { left: `${Math.max(left, 0)}%`, paddingLeft: "6px" };
  const inside = right >= 75 && left <= 25;
  return html`<i class="bar-of-span" style=${{ left: `${left}%`, width: `max(2px, ${right - left}%)`, background: `var(${colour})` }}></i>
    ${pieces.map(([from, to]) => html`<i class="critical" style=${{ left: `${place(from)}%`, width: `max(1px, ${place(to) - place(from)}%)` }}></i>`)}
    <span class=${inside ? "bar-text inside" : "bar-text"} style=${label}>${precise(node.row.duration_ms)}</span>`;
}

function SpanRow({ node, index, selected, isClosed, trace, view, path, toggle, open }) {
  const bad = node.row.status === "error";
  const colour = serviceColour(trace.services, node.service);
  const name = node.row.span_name.slice(0, 200);
  const press = (event) => {
    event.stopPropagation();
    toggle(node);
  };
  return html`<div role="row" class="waterfall" key=${node.index} aria-rowindex=${index + 1} aria-selected=${selected} onClick=${open}>
    <span role="cell" class="w-name" style=${{ paddingLeft: `${4 + Math.min(node.depth, INDENTED) * 10}px` }} title=${`${node.service} ${name}`}>
      ${node.children.length ? html`<button class="quiet toggle" tabindex="-1" aria-expanded=${!isClosed} aria-label=${`${node.children.length} spans below ${name}`} onClick=${press}>${isClosed ? "▸" : "▾"}</button>` : html`<span class="toggle"></span>`}
      <i class="dot" style=${{ background: `var(${colour})` }}></i>
      <strong>${node.service}</strong> ${name}${bad && html` <span class="bad">error</span>`}${isClosed && html` <span class="dim">+${node.last - node.index}</span>`}
    </span>
    <span role="cell" class="w-bars"><${Bar} node=${node} view=${view} colour=${bad ? "--level-error" : colour} path=${path} /></span>
  </div>`;
}

/**
 * @param {{ trace: any, rows: any[], view: { from: number, to: number }, selected: number, isClosed: (node: any) => boolean, path: Map<any, any> | null,
 *   toggle: (node: any) => void, open: (node: any) => void }} props
 */
export function Waterfall({ trace, rows, view, selected, isClosed, path, toggle, open }) {
  const row = (node, index) => html`<${SpanRow} node=${node} index=${index} selected=${index === selected} isClosed=${node.children.length > 0 && isClosed(node)} trace=${trace} view=${view} path=${path}
    toggle=${toggle} open=${() => open(node)} />`;
  return html`<div class="tall"><${VirtualList} rows=${rows} row=${row} selected=${selected} label="Spans of the trace" head=${html`<${Head} view=${view} start=${trace.start} />`} /></div>`;
}
