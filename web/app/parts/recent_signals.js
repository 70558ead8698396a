// Where no signal is chosen: a field for its id, and the signals of late, found by their spans.
import { useAnswer } from "../api.js";
import { count, time } from "../format.js";
import { html } from "../html.js";
import { useTableKeys } from "../keys.js";
import { change, href } from "../location.js";
import { timeConditions } from "../time_range.js";
import { Typed } from "./field.js";
import { Answering, EmptyState } from "./messages.js";
import { literal, Question, quoted } from "./question.js";
import { TimePicker } from "./time_picker.js";

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
export function SignalForm({ id = "" }) {
  const submit = (event) => {
    event.preventDefault();
    const wanted = String(new FormData(event.currentTarget).get("flux_id")).trim().toLowerCase();
    if (wanted) change({ flux_id: wanted, row: null, zoom: null });
  };
  return html`<form class="bar" role="search" aria-label="Signal" onSubmit=${submit}>
    <label>Signal <${Typed} name="flux_id" data-search value=${id} size="38" placeholder="the flux id of a message, span or log" required /></label><button>Show</button></form>`;
}

export function RecentSignals({ params }) {
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
      <tbody>${signals.map((signal) => html`<tr><td><a href=${href("signal", { flux_id: signal.id })}><code>${signal.id}</code></a></td><td>${time(signal.last)}</td><td class="number">${count(signal.spans)}</td>
        <td class=${signal.errors ? "number bad" : "number"}>${count(signal.errors)}</td><td>${[...signal.names].slice(0, 8).join(", ")}</td></tr>`)}</tbody></table></div>`}
    ${answer.data && !signals.length && html`<${EmptyState} command="platform messages --since 7d">No span of this time ${failed ? "failed and carries" : "carries"} a signal. <button onClick=${() => change({ since: "7d", until: null, failed: null })}>Look at 7 days</button> Messages carry one too:</${EmptyState}>`}`;
}
