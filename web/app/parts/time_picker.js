// The time range of a view: ages by one press, or times, and the switch between local time and UTC.
import { isUtc, setUtc, time } from "../format.js";
import { html } from "../html.js";
import { change } from "../location.js";
import { AGES } from "../time_range.js";
import { TextInput } from "./text_input.js";

/** A moment of the address as all of the page writes it; ages, and what is no time, as they are. */
const shown = (text) => (/^\d{4}-\d\d-\d\dT/.test(text) ? time(text).replace(/(:00)?\.000$/, "") : text);
const size = (text) => Math.max(8, shown(text).length - 1);

/** What is typed, for the address. @param {string} before what stands there: it may be more exact than what is shown */
function asked(typed, before) {
  const text = typed.trim();
  if (text === shown(before)) return before;
  const [, day, clock = "00:00"] = /^(\d{4}-\d\d-\d\d)(?:[ T](\d\d:\d\d[\d:.]*))?$/.exec(text) || [];
  const at = new Date(`${day}T${clock}${isUtc() ? "Z" : ""}`);
  return Number.isNaN(at.getTime()) ? text : at.toISOString();
}

export function TimePicker({ params, fallback = "1h" }) {
  const since = params.get("since") || fallback;
  const until = params.get("until") || "";
  const typed = (event) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    change({ since: asked(String(fields.get("since")), since), until: asked(String(fields.get("until")), until) });
  };
  return html`<form class="times" onSubmit=${typed} aria-label="Time range">
    <select aria-label="Last" value=${AGES.includes(since) && !until ? since : ""} onChange=${(event) => event.target.value && change({ since: event.target.value, until: null })}>
      <option value="">from … to</option>
      ${AGES.map((age) => html`<option value=${age}>last ${age}</option>`)}
    </select>
    <${TextInput} name="since" aria-label="Since" value=${shown(since)} size=${size(since)} placeholder="1h or a time" />
    <${TextInput} name="until" aria-label="Until" value=${shown(until)} size=${size(until)} placeholder="now" />
    <button>Set</button>
    <button type="button" class="quiet" aria-pressed=${isUtc()} onClick=${() => setUtc(!isUtc())} title="Times in UTC, or as this machine has them">${isUtc() ? "UTC" : "local"}</button>
  </form>`;
}
