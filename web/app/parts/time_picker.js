// The time range of a view: ages by one press, or times, and the switch between local time and UTC.
import { isUtc, setUtc } from "../format.js";
import { html, useLayoutEffect, useState } from "../html.js";
import { change } from "../location.js";
import { AGES, asked, written } from "../time_range.js";
import { Typed } from "./field.js";

/** Characters that a field has room for at least. */
const ROOM = 6;
const HINT = "14:05, 2026-11-30 14:05, a time with its zone, or an age such as 90m";

/** What is typed replaces what is there, unless that is an edit that was not set; another press puts the cursor. */
const selectUntouched = (time) => ({ currentTarget: field }) => field.value === written(time) && field.select();

export function TimePicker({ params, fallback = "1h" }) {
  const since = params.get("since") || fallback;
  const until = params.get("until") || "";
  // Somebody is about to write times, whatever is drawn anew meanwhile.
  const [writes, setWrites] = useState(false);
  useLayoutEffect(() => setWrites(false), [since, until]);
  const chosen = (event) => {
    setWrites(!event.target.value);
    if (event.target.value) change({ since: event.target.value, until: null });
  };
  const typed = (event) => {
    event.preventDefault();
    const fields = new FormData(event.currentTarget);
    const [from, to] = ["since", "until"].map((name) => String(fields.get(name)).trim());
    // What was not touched stays as exact as it was.
    const first = from === written(since) ? since : asked(from);
    change({ since: first, until: to === written(until) ? until : asked(to, first) });
  };
  return html`<form class="times" onSubmit=${typed} aria-label="Time range">
    <select aria-label="Last" value=${AGES.includes(since) && !until && !writes ? since : ""} onChange=${chosen}>
      <option value="">from … to</option>
      ${AGES.map((age) => html`<option value=${age}>last ${age}</option>`)}
    </select>
    <${Typed} name="since" aria-label="Since" value=${written(since)} room=${ROOM} placeholder="14:05" title=${HINT} onFocus=${selectUntouched(since)} />
    <${Typed} name="until" aria-label="Until" value=${written(until)} room=${ROOM} placeholder="now" title=${HINT} onFocus=${selectUntouched(until)} />
    <button>Set</button>
    <button type="button" class="quiet" aria-pressed=${isUtc()} onClick=${() => setUtc(!isUtc())} title="Times in UTC, or as this machine has them">${isUtc() ? "UTC" : "local"}</button>
  </form>`;
}
