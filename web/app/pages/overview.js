// What an operator looks at first: whether everything comes in, is kept, and runs.
import { age, bytes, count } from "../format.js";
import { html } from "../html.js";
import { href } from "../location.js";
import { Tile } from "../parts/layout.js";
import { Answering, ErrorBox } from "../parts/messages.js";
import { useRepeated } from "../parts/repeated.js";
import { may } from "../session.js";
import { whyBehind } from "./fleet/rack_state.js";

/** Racks whose reason is shown; the list of Racks has those of all. */
const MOST_REASONS = 3;

/** What to do where a check is not ok, beside what the Mixer says of it. */
const FIXES = {
  engine: "Free the disk of store.dir and see its permissions; the Mixer's log says which file it was. Rows wait in the log and in memory.",
  wal: "Free the disk of store.dir, or let rotation remove more (Storage has how much). Where nothing is accepted until a restart, restart the Mixer.",
  bus: "See that the NATS server runs and that snake.url leads to it.",
  ingest: "The Mixer opens it again by itself once the bus is well; its log says why it is not open.",
  export: "See the address, the certificate and the credentials under observability.otlp, and the collector's own log.",
};

function StorageTiles({ storage }) {
  const { tables, rotation } = storage;
  const rows = Object.entries(tables).map(([name, table]) => html`<${Tile} label=${name === "dead_letters" ? "dead letters, of every state" : name} value=${count(table.rows + table.hot_rows, true)} note=${`${bytes(table.bytes)} in ${count(table.files)} ${table.files === 1 ? "file" : "files"}`} to=${href(name === "dead_letters" ? "dead-letters" : ["logs", "traces", "metrics"].includes(name) ? name : "storage")} />`);
  return html`<section aria-label="Stored"><h2>Stored</h2><div class="tiles">
    <${Tile} label="All files" value=${bytes(storage.bytes)} note=${rotation.policy ? `rotation by ${rotation.policy}, ${rotation.max_age_days} days` : ""} to=${href("storage")} />
    ${rows}
    <${Tile} label="Quarantined files" value=${count(storage.quarantined_files)} bad=${storage.quarantined_files > 0} />
  </div></section>`;
}

function RackTiles({ racks }) {
  const states = Object.groupBy(racks, (rack) => rack.state);
  const behind = racks.map((rack) => ({ ...rack, why: whyBehind(rack) })).filter(({ why }) => why);
  return html`<section aria-label="Racks"><h2>Racks</h2><div class="tiles">
    ${Object.entries(states).map(([state, of]) => html`<${Tile} label=${state} value=${of.length} to=${href("fleet", { state })} note=${`last seen ${age(of.map(({ last_seen }) => last_seen).sort().at(-1))}`} />`)}
    ${behind.length > 0 && html`<${Tile} label="Not up to date" value=${behind.length} bad to=${href("fleet", { behind: "1" })} note=${behind.slice(0, 3).map(({ name }) => name).join(", ")} />`}
    ${!racks.length && html`<p class="dim">No Rack yet: start <code>platform run</code> on a machine.</p>`}
  </div>
    ${behind.slice(0, MOST_REASONS).map(({ id, name, why }) => html`<p><a href=${href("fleet", { rack: id })}>${name}</a> <span class="bad">${why}</span></p>`)}</section>`;
}

export default function Overview({ caller }) {
  const storage = useRepeated(may(caller, "read") ? "/api/v1/storage" : null);
  const racks = useRepeated(may(caller, "fleet") ? "/api/v1/racks" : null);
  const ready = useRepeated("/readyz");
  // Not ready is an answer too: 503 with every check.
  const checks = ready.error?.body?.checks || (ready.error ? {} : ready.data?.checks || {});
  return html`${!ready.error?.body?.checks && html`<${ErrorBox} error=${ready.error} again=${ready.again} />`}
    <section aria-label="Checks"><h2>Checks</h2><div class="tiles">
      ${Object.entries(checks).map(([name, check]) => html`<${Tile} label=${name} value=${check.ok ? "ok" : "not ready"} bad=${!check.ok} note=${check.ok ? check.reason : ""} />`)}
    </div>
      ${Object.entries(checks).filter(([, { ok }]) => !ok).map(([name, { reason }]) => html`<p class="bad" role="alert"><strong>${name}:</strong> ${reason || "not ready"}. ${FIXES[name]}</p>`)}</section>
    <${ErrorBox} error=${racks.error} again=${racks.again} />
    ${racks.data && html`<${RackTiles} racks=${racks.data.data} />`}
    ${may(caller, "read") && html`<${Answering} answer=${storage} what="Asking what is stored" />`}
    ${storage.data && html`<${StorageTiles} storage=${storage.data.data} />`}`;
}
