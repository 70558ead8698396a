// What becomes of the store: how fast it grows, how long the disk lasts, what rotation removes and when.
import { age, bytes, count, duration, time } from "../../format.js";
import { html } from "../../html.js";
import { CopyButton } from "../../parts/copy_button.js";
import { Section, Tile } from "../../parts/messages.js";
import { Table } from "../../parts/table.js";

const DAY = 86_400_000;
/** Less than this tells nothing of a day's growth. */
const LEAST = 600_000;

/** Bytes of files a day, of each table by the span of time that its own have; none if all are too short. */
function pace(tables) {
  let [perDay, longest] = [0, 0];
  for (const { bytes: size, earliest, latest } of Object.values(tables)) {
    const span = earliest ? Date.parse(latest) - Date.parse(earliest) : 0;
    if (span < LEAST) continue;
    perDay += (size * DAY) / span;
    longest = Math.max(longest, span);
  }
  return perDay ? { perDay, span: longest } : null;
}

/** The rule in words. */
function rule({ policy, max_age_days, max_bytes }) {
  const [old, large] = [`what is older than ${max_age_days} days`, `the oldest while files have more than ${bytes(max_bytes)}`];
  return { time: old, size: large, both: `${old}, or ${large}` }[policy] || policy;
}

/** A time, and how far it is from now. */
const moment = (at) => `${time(at)}, ${age(at)}`;

/** Days until the disk is full, where that can be said. */
export function Outlook({ storage, free }) {
  const found = pace(storage.tables);
  const { rotation } = storage;
  const room = free === null ? null : html`${bytes(free)} of its disk are free`;
  if (!found) return html`<${Section} title="Outlook"><p>${room || "The free bytes of the disk are not known here."} <span class="dim">There is too little yet to say how fast the store grows.</span></p></${Section}>`;
  const days = free === null ? null : free / found.perDay;
  const limits = [rotation.policy !== "size" && found.perDay * rotation.max_age_days, rotation.policy !== "time" && rotation.max_bytes].filter(Boolean);
  const largest = Math.min(...limits);
  const fits = free === null || largest - storage.bytes < free;
  return html`<${Section} title="Outlook"><div class="tiles">
    <${Tile} label="Grows by" value=${`${bytes(found.perDay)} a day`} note=${`by the ${duration(found.span)} that files cover`} />
    <${Tile} label="Disk lasts" bad=${!fits} value=${days === null ? "not known" : days > 3_650 ? "over 10 years" : `${count(Math.floor(days))} days`} note=${html`${room || "the Mixer does not say what is free"}, without rotation`} />
    <${Tile} label="With rotation at most about" bad=${!fits} value=${bytes(largest)} note=${fits ? "that fits" : "more than the disk has: lower max_age_days, or set a policy by size"} />
  </div></${Section}>`;
}

function Removed({ check, title }) {
  if (!check?.removed?.length) return null;
  return html`<h3>${title}: ${count(check.removed_partitions)} partitions, ${time(check.at)}</h3>
    <${Table} heads=${["Table", "Partition", "Ends", "Files", "Rows", "Bytes", "Why"]} numbers=${[3, 4, 5]}
      rows=${check.removed.map((one) => [one.table, one.partition, time(one.end), count(one.files), count(one.rows), bytes(one.bytes), one.reason])} />`;
}

export function Rotation({ storage }) {
  const { rotation, tables } = storage;
  const last = rotation.last_check;
  const next = last && new Date(Date.parse(last.at) + rotation.check_interval_ms);
  const byAge = rotation.policy !== "size";
  const held = Object.entries(tables).filter(([, table]) => table.earliest);
  const share = rotation.max_bytes > 0 ? Math.round((100 * storage.bytes) / rotation.max_bytes) : 0;
  return html`<${Section} title="Rotation">
    <p>Removes ${rule(rotation)}; whole partitions at a time. Checked every ${duration(rotation.check_interval_ms)}${last ? html`, last ${age(last.at)}, next ${age(next)}` : ", not yet"}.</p>
    ${last?.held && html`<p class="bad" role="alert">Nothing is removed by age just now: ${last.held}</p>`}
    ${last?.more && html`<p>More is due than one check removes: it goes with the next.</p>`}
    ${rotation.policy !== "time" && html`<p>Files have ${bytes(storage.bytes)} of ${bytes(rotation.max_bytes)} (${share} %)${storage.bytes > rotation.max_bytes ? html`: <span class="bad">${bytes(storage.bytes - rotation.max_bytes)} go with the next check</span>` : ""}.</p>`}
    ${byAge && held.length > 0 && html`<${Table} heads=${["Table", "Its oldest rows", "Leave after"]} rows=${held.map(([name, table]) => [name.replace("_", " "), moment(table.earliest), moment(Date.parse(table.earliest) + rotation.max_age_days * DAY)])} />`}
    <p class="dim">Which partitions would go now, one by one: <code>platform-mixer retention --dry-run</code> <${CopyButton} text="platform-mixer retention --dry-run" title="Copy as a command">copy</${CopyButton}>
      Removed since the start: ${count(rotation.removed_partitions)} partitions, ${count(rotation.removed_files)} files, ${count(rotation.removed_rows)} rows, ${bytes(rotation.removed_bytes)}.</p>
    <${Removed} check=${rotation.last_removal} title="Removed last" /></${Section}>`;
}
