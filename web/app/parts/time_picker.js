// The time range of a view: ages by one press, or times, and the switch between local time and UTC.
import { isUtc, setUtc } from "../format.js";
import { html } from "../html.js";
import { change } from "../location.js";
import { AGES } from "../time_range.js";
import { TextInput } from "./text_input.js";

export function TimePicker({ params, fallback = "1h" }) {
  const since = params.get("since") || fallback;
  const until = params.get("until") || "";
  const typed = (event) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    change({ since: String(fields.get("since")).trim(), until: String(fields.get("until")).trim() });
  };
  return html`<form class="times" onSubmit=${typed} aria-label="Time range">
    <select aria-label="Last" value=${AGES.includes(since) && !until ? since : ""} onChange=${(event) => event.target.value && change({ since: event.target.value, until: null })}>
      <option value="">from … to</option>
      ${AGES.map((age) => html`<option value=${age}>last ${age}</option>`)}
    </select>
    <${TextInput} name="since" aria-label="Since" value=${since} size="12" placeholder="1h or a time" />
    <${TextInput} name="until" aria-label="Until" value=${until} size="12" placeholder="now" />
    <button>Set</button>
    <button type="button" class="quiet" aria-pressed=${isUtc()} onClick=${() => setUtc(!isUtc())} title="Times in UTC, or as this machine has them">${isUtc() ? "UTC" : "local"}</button>
  </form>`;
}
