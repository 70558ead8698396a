// Signal: what happened to one flux id over all Racks, messages, spans and log records on one time axis, and below it the same rows in order.
import { useAnswer } from "../api.js";
import { count, time } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { useRowKeys, useTableKeys } from "../keys.js";
import { change, changeBy, href, hrefHere, toggled } from "../location.js";
import { loadPlots } from "../parts/chart.js";
import { CopyButton } from "../parts/copy_button.js";
import { Drawer, Facts, Fields, LongText } from "../parts/drawer.js";
import { Typed } from "../parts/field.js";
import { Answering, EmptyState, Reading } from "../parts/messages.js";
import { moment, precise, timeOf, zoomOf, zoomText } from "../parts/micros.js";
import { ownStyle } from "../parts/own_style.js";
import { literal, Question, quoted } from "../parts/question.js";
import { SignalDrawing } from "../parts/signal_drawing.js";
import { arrangeLanes, laneName, LANES, MOST_ROWS, readSignal, textOf } from "../parts/signal_model.js";
import { TimePicker } from "../parts/time_picker.js";
import { headOf, VirtualList } from "../parts/virtual_list.js";
import { isSameLog, SAME_TIME, useWhole } from "../parts/whole_row.js";
import { useWork } from "../parts/work.js";
import { timeConditions } from "../time_range.js";

// A chart says itself that it could not be loaded.
loadPlots().catch(() => {});
await ownStyle("traces.css");

/** The message as it was sent; asked for only here, since it may be large. */
function Body({ id, item: { row, at } }) {
  const answer = useAnswer(`/api/v1/flux/${encodeURIComponent(id)}`, { ...moment(at), raw: "json", limit: SAME_TIME });
  const same = (other) => other.kind === "message" && ["entity_name", "src_gear_id", "msg_type", "trace_id"].every((key) => other[key] === row[key]);
  const raw = answer.data?.data.find(same)?.raw_msg;
  if (!answer.data) return html`<${Answering} answer=${answer} what="Decoding the message" />`;
  if (!raw) return html`<p class="dim">The message is not among the first ${SAME_TIME} rows of its microsecond.</p>`;
  return html`<h3>Body${raw.body_is ? `, as ${raw.body_is}` : ""}</h3><${LongText} value=${raw.error ? raw : raw.body ?? null} />
    <h3>Facts</h3><${Fields} fields=${raw.meta} />`;
}

/** Details of one row: a message with its decoded body, a span, or a log record. @param {{ id: string, item: any, start: number, close: () => void, title: string }} props */
function SignalDrawer({ id, item, start, close, title }) {
  const { kind } = item;
  const same = (other) => other.kind === kind && (kind === "span" ? other.span_id === item.row.span_id : kind === "log" && isSameLog(other, item.row));
  const [row, unread] = useWhole(item.row, item.at, `/api/v1/flux/${encodeURIComponent(id)}`, { raw: "none" }, same);
  const trace = row.trace_id || row.attributes?.trace_id;
  const span = row.span_id || row.attributes?.span_id;
  const taken = item.to.map((one) => html`<span>${one.row.entity_name}${one.row.attributes?.["gear.id"] ? ` / ${one.row.attributes["gear.id"]}` : ""}, ${precise((one.at - item.at) / 1_000)} later</span> `);
  const facts = [
    ["When", `${time(row.ts)}, ${precise((item.at - start) / 1_000)} after the first row`],
    ["Duration", kind === "span" ? precise(row.duration_ms) : null],
    ["Level", row.level],
    ["Status", row.status && html`<span class=${row.status === "error" ? "bad" : ""}>${row.status}</span>`],
    ["Entity", row.entity_name],
    ["From", kind === "message" ? `${row.src_gear_id}.${row.msg_type} (${row.direction})` : null],
    ["For", row.dst_gear_id],
    ["Taken by", kind === "message" ? (taken.length ? taken : "no span says it") : null],
    ["Trace", trace && html`<a href=${href("traces", { trace_id: trace, span })}>${trace}</a>`],
    ["Span", span && html`<code>${span}</code>`],
    ["Carries the id", row.flux_id ? null : "no: it belongs to a trace of this signal"],
  ];
  return html`<${Drawer} title=${title.slice(0, 200)} close=${close}>
    <div class="bar"><${CopyButton} text=${() => JSON.stringify(row, null, 2)}>JSON</${CopyButton}>
      ${kind !== "message" && html`<a href=${href("logs", { flux_id: id, since: timeOf(start - 60e6), until: timeOf(item.end + 3_600e6) })}>logs of the signal</a>`}</div>
    <${Facts} facts=${facts} />
    ${unread}
    ${kind === "log" && html`<h3>Message</h3><${LongText} value=${row.message} />`}
    ${kind === "message" ? html`<${Body} id=${id} item=${item} />` : html`<h3>Attributes</h3><${Fields} fields=${row.attributes} />`}
    ${row.promoted && Object.keys(row.promoted).length > 0 && html`<h3>Columns of its spec</h3><${Fields} fields=${row.promoted} />`}
  </${Drawer}>`;
}

/** Spans that are looked at, and signals that are listed. */
const LOOKED = 500;
const LISTED = 100;

/** The signals among spans, the newest first, with what was seen of each. */
function signalsOf(rows) {
  const signals = new Map();
  for (const row of rows) {
    const signal = signals.get(row.flux_id) || { id: row.flux_id, last: row.ts, spans: 0, errors: 0, names: new Set() };
    signal.spans += 1;
    signal.errors += row.status === "error" ? 1 : 0;
    signal.names.add(row.entity_name);
    signals.set(row.flux_id, signal);
  }
  return [...signals.values()].slice(0, LISTED);
}

/** The field for an id. */
function SignalForm({ id = "" }) {
  const submit = (event) => {
    event.preventDefault();
    const wanted = String(new FormData(event.currentTarget).get("flux_id")).trim().toLowerCase();
    if (wanted) change({ flux_id: wanted, row: null, zoom: null });
  };
  return html`<form class="bar" role="search" aria-label="Signal" onSubmit=${submit}>
    <label>Signal <${Typed} name="flux_id" data-search value=${id} size="38" placeholder="the flux id of a message, span or log" required /></label><button>Show</button></form>`;
}

/** Where no signal is chosen: a field for its id, and the signals of late, found by their spans. */
function RecentSignals({ params }) {
  useTableKeys();
  const failed = params.has("failed");
  const where = ["flux_id IS NOT NULL", ...timeConditions(params, literal), ...(failed ? ["status = 'error'"] : [])];
  const query = `SELECT ts, flux_id, entity_name, status FROM traces WHERE ${where.join(" AND ")} ORDER BY ts DESC`;
  const [body, sql] = [{ query, limit: LOOKED }, `${query} LIMIT ${LOOKED}`];
  const answer = useAnswer("/api/v1/sql", {}, { method: "POST", body });
  const signals = signalsOf(answer.data?.data || []);
  return html`<div class="bar"><${SignalForm} /><${TimePicker} params=${params} />
      <label><input type="checkbox" checked=${failed} onChange=${(event) => change({ failed: event.target.checked ? "1" : null })} /> failed only</label></div>
    <${Question} path="/api/v1/sql" body=${body} text=${sql} command=${`platform sql ${quoted(sql)}`} sql=${sql} />
    <${Answering} answer=${answer} what="Looking for signals" />
    ${signals.length > 0 && html`<div class="scrolled"><table><caption class="dim">Signals of the newest ${count(LOOKED)} spans that carry one</caption>
      <thead><tr><th scope="col">Signal</th><th scope="col">Last span</th><th scope="col" class="number">Spans</th><th scope="col" class="number">Errors</th><th scope="col">Racks and services</th></tr></thead>
      <tbody>${signals.map((signal) => html`<tr><td><a href=${hrefHere({ flux_id: signal.id })}><code>${signal.id}</code></a></td><td>${time(signal.last)}</td><td class="number">${count(signal.spans)}</td>
        <td class=${signal.errors ? "number bad" : "number"}>${count(signal.errors)}</td><td>${[...signal.names].slice(0, 8).join(", ")}</td></tr>`)}</tbody></table></div>`}
    ${answer.data && !signals.length && html`<${EmptyState} command="platform messages --since 7d">No span of this time ${failed ? "failed and carries" : "carries"} a signal. <button onClick=${() => change({ since: "7d", until: null, failed: null })}>Look at 7 days</button> Messages carry one too:</${EmptyState}>`}`;
}

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
  return html`<div class="bar"><a href=${href("signal", { since: params.get("since"), until: params.get("until"), failed: params.get("failed") })}>← signals</a><${SignalForm} key=${id} id=${id} />
      <${Question} path=${`/api/v1/flux/${encodeURIComponent(id)}`} params=${{ raw: "none", limit: 5_000 }} command=${`platform flux ${id}`} /></div>
    <${Reading} read=${read} what="the signal" rows="rows" />
    ${read.error?.code === "flux_not_found" && html`<p>Ids of signals that are stored: <a href=${href("signal", { since: "7d" })}>those of 7 days</a>.</p>`}
    ${signal?.items.length > 0 && html`<${Shown} params=${params} id=${id} signal=${signal} more=${() => setMost(most + MOST_ROWS)} />`}`;
}

export default function Signal({ params }) {
  const id = (params.get("flux_id") || "").trim();
  return html`<div class="spans-page">${id ? html`<${OneSignal} key=${id} params=${params} id=${id} />` : html`<${RecentSignals} params=${params} />`}</div>`;
}
