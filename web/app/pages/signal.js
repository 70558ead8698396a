// Signal: what happened to one flux id over all Racks, messages, spans and log records on one time axis, and below it the same rows in order.
import { count, time } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { useRowKeys } from "../keys.js";
import { change, changeBy, href, toggled } from "../location.js";
import { CopyButton } from "../parts/copy_button.js";
import { EmptyState, Reading } from "../parts/messages.js";
import { precise, zoomOf, zoomText } from "../parts/micros.js";
import { ownStyle } from "../parts/own_style.js";
import { Question } from "../parts/question.js";
import { RecentSignals, SignalForm } from "../parts/recent_signals.js";
import { SignalDrawer } from "../parts/signal_drawer.js";
import { SignalDrawing } from "../parts/signal_drawing.js";
import { arrangeLanes, LANES, laneName, MOST_ROWS, readSignal, textOf } from "../parts/signal_model.js";
import { headOf, VirtualList } from "../parts/virtual_list.js";
import { useWork } from "../parts/work.js";

await ownStyle("traces.css");

const KINDS = { message: ["◆", "messages"], span: ["▬", "spans"], log: ["❙", "log records"] };

/** A row in a few words. */
function words({ kind, row, to }) {
  if (kind === "span") return row.span_name;
  if (kind === "log") return row.message;
  const taker = row.dst_gear_id || [...new Set(to.map((span) => span.row.attributes?.["gear.id"] || span.row.entity_name))].join(", ");
  return `${row.src_gear_id}.${row.msg_type}${taker ? ` → ${taker}` : ""}`;
}

const head = headOf([["After", "l-at"], ["Kind", "s-kind"], ["Lane", "c-service"], ["What", "c-name"], ["Duration", "c-length"], ["State", "c-state"]]);

function ItemRow({ item, index, start, lanes, selected, open }) {
  const { row, kind } = item;
  const state = row.level || row.status;
  return html`<div role="row" key=${item.key} aria-rowindex=${index + 1} aria-selected=${selected} onClick=${open}>
    <span role="cell" class="l-at" title=${time(row.ts)}>${precise((item.at - start) / 1_000)}</span>
    <span role="cell" class="s-kind"><span aria-hidden="true">${KINDS[kind][0]}</span> ${kind}</span>
    <span role="cell" class="c-service">${laneName(row, lanes)}</span>
    <span role="cell" class="c-name">${words(item).slice(0, 400)}</span>
    <span role="cell" class="c-length">${kind === "span" ? precise(row.duration_ms) : ""}</span>
    <span role="cell" class=${state === "error" || state === "fatal" ? "c-state bad" : "c-state"}>${state}</span>
  </div>`;
}

function Summary({ id, signal, more }) {
  const of = (kind) => signal.items.filter((item) => item.kind === kind).length;
  return html`<div class="bar"><h2>Signal ${id}</h2><span>${time(signal.items[0].row.ts)}</span><span>${precise((signal.end - signal.start) / 1_000)}</span>
      ${Object.entries(KINDS).map(([kind, [, name]]) => html`<span>${count(of(kind))} ${of(kind) === 1 ? name.slice(0, -1) : name}</span>`)}
      ${signal.traces.slice(0, 4).map((trace) => html`<a href=${href("traces", { trace_id: trace })}>trace ${trace.slice(0, 8)}</a>`)}${signal.traces.length > 4 && html`<span class="dim">and ${count(signal.traces.length - 4)} more traces</span>`}
      <${CopyButton} text=${id} title="Copy the signal's id">id</${CopyButton}></div>
    ${of("message") === 0 && html`<p class="dim">No message is archived: only those that leave a gear by a wire of lane guaranteed are.</p>`}
    ${signal.more && html`<p role="status">These are the first ${count(signal.items.length)} rows; there are more. <button onClick=${more}>Read ${count(MOST_ROWS)} more</button></p>`}
    ${signal.partial && html`<p class="bad" role="status">Rows are missing: ${signal.partial}</p>`}`;
}

function Tools({ params, kinds, by, shown, all }) {
  return html`<div class="bar" role="group" aria-label="What is shown">
    <label>Lanes by <select value=${by} onChange=${changeBy("lanes")}>${Object.entries(LANES).map(([name, title]) => html`<option value=${name}>${title}</option>`)}</select></label>
    ${Object.entries(KINDS).map(([kind, [, name]]) => html`<label><input type="checkbox" checked=${kinds.includes(kind)} onChange=${() => change({ hide: toggled(params.getAll("hide"), kind) })} /> ${name}</label>`)}
    <label>Filter <input type="search" value=${params.get("find") || ""} onInput=${changeBy("find", true)} size="16" placeholder="text" /></label>
    ${params.has("zoom") && html`<button onClick=${() => change({ zoom: null })}>Whole time</button>`}
    <span class="dim" role="status">${shown < all ? `${count(shown)} of ${count(all)} rows` : ""}</span></div>`;
}

function Shown({ params, id, signal, more }) {
  const by = Object.hasOwn(LANES, params.get("lanes") || "") ? params.get("lanes") : "service";
  const kinds = Object.keys(KINDS).filter((kind) => !params.getAll("hide").includes(kind));
  const find = (params.get("find") || "").toLowerCase();
  const view = zoomOf(params, signal);
  const matching = useMemo(() => signal.items.filter((item) => kinds.includes(item.kind) && (!find || textOf(item).includes(find))), [signal, kinds.join(), find]);
  const drawn = useMemo(() => ({ items: matching, lanes: arrangeLanes(signal.items, by) }), [matching, by]);
  const rows = useMemo(() => (view.zoomed ? matching.filter(({ at, end }) => end >= view.from && at <= view.to) : matching), [matching, view.from, view.to]);
  const chosen = signal.items.find(({ key }) => key === params.get("row")) || null;
  const [at, setAt] = useState(-1);
  const index = chosen && rows.includes(chosen) ? rows.indexOf(chosen) : Math.min(at, rows.length - 1);
  const open = (item) => {
    setAt(rows.indexOf(item));
    change({ row: item.key });
  };
  const close = () => change({ row: null });
  const select = (next) => {
    setAt(next);
    if (chosen) change({ row: rows[next].key }, true);
  };
  useRowKeys({ count: rows.length, selected: index, select, open: (one) => open(rows[one]) });
  const zoom = (from, to) => change({ zoom: zoomText(signal.start, from, to) });
  return html`<${Summary} id=${id} signal=${signal} more=${more} />
    <${Tools} params=${params} kinds=${kinds} by=${by} shown=${rows.length} all=${signal.items.length} />
    <${SignalDrawing} items=${drawn.items} lanes=${drawn.lanes} view=${view} selected=${rows[index]} open=${open} zoom=${zoom} tell=${(item) => `${item.kind}: ${words(item).slice(0, 200)}`} />
    ${rows.length > 0 ? html`<div class="tall"><${VirtualList} rows=${rows} selected=${index} label="Rows of the signal" head=${head} row=${(item, one) => html`<${ItemRow} item=${item} index=${one} start=${signal.start} lanes=${by} selected=${one === index} open=${() => open(item)} />`} /></div>`
      : html`<${EmptyState}>No row is left of ${count(signal.items.length)}. <button onClick=${() => change({ hide: null, find: null, zoom: null })}>Show all</button></${EmptyState}>`}
    ${chosen && html`<${SignalDrawer} key=${chosen.key} id=${id} item=${chosen} start=${signal.start} title=${`${chosen.kind}: ${words(chosen)}`} close=${close} />`}`;
}

function OneSignal({ params, id }) {
  const [most, setMost] = useState(MOST_ROWS);
  const read = useWork(`${id} ${most}`, (signal, progress) => readSignal(id, most, signal, progress));
  const signal = read.value;
  return html`<div class="bar"><a href=${href("signal")}>← signals</a><${SignalForm} key=${id} id=${id} />
      <${Question} path=${`/api/v1/flux/${encodeURIComponent(id)}`} params=${{ raw: "none", limit: 5_000 }} command=${`platform flux ${id}`} /></div>
    <${Reading} read=${read} what="the signal" rows="rows" />
    ${read.error?.code === "flux_not_found" && html`<p>Ids of signals that are stored: <a href=${href("signal", { since: "7d" })}>those of 7 days</a>.</p>`}
    ${signal?.items.length > 0 && html`<${Shown} params=${params} id=${id} signal=${signal} more=${() => setMost(most + MOST_ROWS)} />`}`;
}

export default function Signal({ params }) {
  const id = (params.get("flux_id") || "").trim();
  return html`<div class="spans-page">${id ? html`<${OneSignal} key=${id} params=${params} id=${id} />` : html`<${RecentSignals} params=${params} />`}</div>`;
}
