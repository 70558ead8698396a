// Details of one row of a signal: a message with its decoded body, a span, or a log record.
import { useAnswer } from "../api.js";
import { time } from "../format.js";
import { html } from "../html.js";
import { href } from "../location.js";
import { CopyButton } from "./copy_button.js";
import { Drawer, Facts, Fields, LongText } from "./drawer.js";
import { Answering } from "./messages.js";
import { moment, precise, timeOf } from "./micros.js";
import { isSameLog, useWhole } from "./whole_row.js";

/** Rows of one microsecond that are looked through for the message. */
const SAME_TIME = 100;

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

/** @param {{ id: string, item: any, start: number, close: () => void, title: string }} props */
export function SignalDrawer({ id, item, start, close, title }) {
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
