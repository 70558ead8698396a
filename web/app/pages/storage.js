// What the Mixer keeps: bytes, files and rows by table, what is not in a file or not in the object store yet, what rotation removes and when.
import { open } from "../api.js";
import { age, bytes, count, duration, time } from "../format.js";
import { html, useEffect, useState } from "../html.js";
import { href } from "../location.js";
import { CopyButton } from "../parts/copy_button.js";
import { Answering, Section, Tile } from "../parts/messages.js";
import { Question } from "../parts/question.js";
import { useRepeated } from "../parts/repeated.js";
import { Table } from "../parts/table.js";
import { Outlook, Rotation } from "./storage/rotation.js";

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
