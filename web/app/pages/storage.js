// What the Mixer keeps: bytes, files and rows by table, what is not in a file or not in the object store yet; how fast it grows, how long the
// disk lasts, what rotation removes and when.
import { open } from "../api.js";
import { age, bytes, count, duration, time } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { href } from "../location.js";
import { Section, Table, Tile } from "../parts/layout.js";
import { CopyButton } from "../parts/copy_button.js";
import { Answering } from "../parts/messages.js";
import { Question } from "../parts/question.js";
import { useRepeated } from "../parts/repeated.js";

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
function Outlook({ storage, free }) {
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

function Rotation({ storage }) {
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

/** How often the free bytes of the disk are looked at, ms. */
const EVERY = 30_000;
const PAGES = { dead_letters: "dead-letters", messages: "sql" };

/** Free bytes of the disk, as `/metrics` has them; none if they are not told. */
function useFreeBytes() {
  const [free, setFree] = useState(null);
  useEffect(() => {
    const cancel = new AbortController();
    const look = () =>
      open("/metrics", { accept: "text/plain", signal: cancel.signal })
        .then((response) => response.text())
        .then((text) => {
          const found = /^platform_bus_store_free_bytes(?:\{[^}]*\})? (\S+)/m.exec(text);
          setFree(found ? Number(found[1]) : null);
        })
        .catch(() => setFree(null));
    look();
    const timer = setInterval(() => document.hidden || look(), EVERY);
    return () => {
      cancel.abort();
      clearInterval(timer);
    };
  }, []);
  return free;
}

function Tiles({ storage }) {
  const full = storage.wal_max_bytes > 0 && storage.wal_bytes / storage.wal_max_bytes > 0.8;
  return html`<${Section} title="Store"><div class="tiles">
    <${Tile} label="In files" value=${bytes(storage.bytes)} note=${`${count(storage.files)} files, ${count(storage.open_files)} of them open; ${count(storage.rows)} rows`} />
    <${Tile} label="Hot rows" value=${count(storage.hot_rows)} note=${`${bytes(storage.hot_bytes)} in memory and in the log, not in a file yet`} />
    <${Tile} label="Write-ahead log" value=${bytes(storage.wal_bytes)} bad=${full} note=${`of ${bytes(storage.wal_max_bytes)}${full ? ": ingest waits when it is full" : ""}`} />
    <${Tile} label="Indexes" value=${bytes(storage.index_bytes)} note=${`${count(storage.index_files)} files, ${count(storage.index_waiting)} to be made`} />
    <${Tile} label="Quarantined files" value=${count(storage.quarantined_files)} bad=${storage.quarantined_files > 0} note=${storage.quarantined_files > 0 ? "they cannot be read: platform-mixer check names them" : "every file can be read"} />
    <${Tile} label="Since the start" value=${count(storage.appended_rows, true)} note=${`rows taken; ${count(storage.duplicate_batches)} batches came twice, ${count(storage.misdated_rows)} rows have an impossible time`} />
  </div></${Section}>`;
}

function Tables({ tables }) {
  const all = {};
  for (const table of Object.values(tables)) for (const key of ["bytes", "files", "open_files", "rows", "hot_rows"]) all[key] = (all[key] || 0) + table[key];
  const row = (name, table) => [name, bytes(table.bytes), count(table.files), count(table.open_files), count(table.rows), count(table.hot_rows), time(table.earliest), time(table.latest)];
  const rows = Object.entries(tables).map(([name, table]) => row(html`<a href=${href(PAGES[name] || name)}>${name.replace("_", " ")}</a>`, table));
  return html`<${Section} title="Tables">
    <${Table} heads=${["Table", "Bytes", "Files", "Open", "Rows in files", "Hot rows", "Earliest", "Latest"]} numbers=${[1, 2, 3, 4, 5]} rows=${[...rows, row("all", all)]} /></${Section}>`;
}

function ObjectStore({ store }) {
  if (!store) return html`<${Section} title="Object store"><p class="dim">None: files are on this machine only. <code>observability.embedded.storage.url</code> names one.</p></${Section}>`;
  const behind = store.unuploaded_files > 0 || store.unuploaded_rows > 0;
  return html`<${Section} title="Object store">
    <p><code>${store.url}</code>${store.read_only ? ", read only" : ""}</p>
    ${store.trouble && html`<p class="bad" role="alert">${store.trouble}</p>`}
    <div class="tiles">
      ${!store.read_only && html`<${Tile} label="Not uploaded" value=${bytes(store.unuploaded_bytes)} bad=${Boolean(store.trouble) && behind} note=${`${count(store.unuploaded_files)} files, ${count(store.unuploaded_rows)} rows`} />
      <${Tile} label="Lag" value=${duration(1_000 * (store.unuploaded_age_seconds || 0))} note="age of the oldest row that is not there" />
      <${Tile} label="Uploaded" value=${bytes(store.uploaded_bytes)} note=${`${count(store.uploaded_files)} files since the start`} />`}
      <${Tile} label="Local copies" value=${bytes(store.cached_bytes)} note=${`${count(store.cached_files)} files, of ${bytes(store.cache_max_bytes)}`} />
      <${Tile} label="Fetched" value=${bytes(store.fetched_bytes)} note=${`${count(store.fetched_files)} files since the start`} />
      <${Tile} label="Requests" value=${count(store.writes + store.reads, true)} note=${`${count(store.writes)} writes, ${count(store.reads)} reads, ${count(store.retries)} again`} />
    </div></${Section}>`;
}

function Export({ state }) {
  if (!state) return html`<${Section} title="Export"><p class="dim">Nothing is sent to a collector. <code>observability.otlp</code> names one.</p></${Section}>`;
  const rows = Object.entries(state.signals).map(([name, signal]) => [name, count(signal.rows), count(signal.requests), count(signal.retries), count(signal.rejected_records),
    signal.dead_letters ? html`<a href=${href("dead-letters", { kind: "export", state: "all" })}>${count(signal.dead_letters)}</a>` : 0,
    signal.oldest_waiting ? age(signal.oldest_waiting) : "nothing waits", signal.trouble && html`<span class="bad">${signal.trouble}, since ${time(signal.trouble_since)}</span>`]);
  return html`<${Section} title="Export"><p>To <code>${state.collector}</code></p>
    <${Table} heads=${["Signal", "Rows", "Requests", "Again", "Rejected", "Dead letters", "Oldest that waits", "Trouble"]} numbers=${[1, 2, 3, 4, 5]} rows=${rows} /></${Section}>`;
}

export default function Storage() {
  const answer = useRepeated("/api/v1/storage");
  const free = useFreeBytes();
  const storage = answer.data?.data;
  return html`<${Question} path="/api/v1/storage" command="platform storage" />
    <${Answering} answer=${answer} what="Asking what is stored" />
    ${storage && html`
      ${storage.trouble && html`<p class="bad" role="alert"><strong>Trouble:</strong> ${storage.trouble} <a href=${href("overview")}>checks</a></p>`}
      ${storage.partial && html`<p class="bad" role="alert"><strong>Answers are partial:</strong> ${storage.partial}</p>`}
      <${Tiles} storage=${storage} />
      <${Outlook} storage=${storage} free=${free} />
      <${Tables} tables=${storage.tables} />
      <${Rotation} storage=${storage} />
      <${ObjectStore} store=${storage.object_store} />
      <${Export} state=${storage.export} />
      <p class="dim">To see whether every file is as it was written: <code>platform-mixer check</code> <${CopyButton} text="platform-mixer check" title="Copy as a command">copy</${CopyButton}></p>`}`;
}
