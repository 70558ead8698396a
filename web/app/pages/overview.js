// What an operator looks at first: whether everything comes in, is kept, and runs.
import { useAnswer } from "../api.js";
import { age, bytes, count } from "../format.js";
import { html, useEffect } from "../html.js";
import { href } from "../location.js";
import { ErrorBox, Waiting } from "../parts/messages.js";
import { may } from "../session.js";

/** How often it is looked again, ms. */
const EVERY = 5_000;

function Tile({ label, value, note, bad, to }) {
  return html`<div class=${bad ? "tile bad" : "tile"}>
    <span class="dim">${to ? html`<a href=${to}>${label}</a>` : label}</span><strong>${value}</strong><span class="dim">${note}</span>
  </div>`;
}

/** An answer that is asked for again every few seconds. */
function useRepeated(path, params) {
  const answer = useAnswer(path, params);
  useEffect(() => {
    const timer = setTimeout(answer.again, EVERY);
    return () => clearTimeout(timer);
  }, [answer.data, answer.error]);
  return answer;
}

function StorageTiles({ storage }) {
  const { tables, rotation } = storage;
  const rows = Object.entries(tables).map(([name, table]) => html`<${Tile} label=${name.replace("_", " ")} value=${count(table.rows + table.hot_rows, true)} note=${`${bytes(table.bytes)} in ${count(table.files)} files`} to=${href(name === "dead_letters" ? "dead-letters" : ["logs", "traces", "metrics"].includes(name) ? name : "storage")} />`);
  return html`<section aria-label="Stored"><h2>Stored</h2><div class="tiles">
    <${Tile} label="All files" value=${bytes(storage.bytes)} note=${rotation.policy ? `rotation by ${rotation.policy}, ${rotation.max_age_days} days` : ""} to=${href("storage")} />
    ${rows}
    <${Tile} label="Quarantined files" value=${count(storage.quarantined_files)} bad=${storage.quarantined_files > 0} />
  </div></section>`;
}

function RackTiles({ racks }) {
  const states = Object.groupBy(racks, (rack) => rack.state);
  const behind = racks.filter(({ state, scenario }) => state === "active" && scenario?.wanted?.hash !== scenario?.running?.hash);
  return html`<section aria-label="Racks"><h2>Racks</h2><div class="tiles">
    ${Object.entries(states).map(([state, of]) => html`<${Tile} label=${state} value=${of.length} to=${href("fleet", { state })} note=${`last seen ${age(of.map(({ last_seen }) => last_seen).sort().at(-1))}`} />`)}
    ${behind.length > 0 && html`<${Tile} label="Not up to date" value=${behind.length} bad to=${href("fleet")} note=${behind.slice(0, 3).map(({ name }) => name).join(", ")} />`}
    ${!racks.length && html`<p class="dim">No Rack yet: start <code>platform run</code> on a machine.</p>`}
  </div></section>`;
}

export default function Overview({ caller }) {
  const storage = useRepeated(may(caller, "read") ? "/api/v1/storage" : null);
  const racks = useRepeated(may(caller, "fleet") ? "/api/v1/racks" : null);
  const ready = useRepeated("/readyz");
  const checks = ready.data?.checks || {};
  return html`<${ErrorBox} error=${ready.error} again=${ready.again} />
    <section aria-label="Checks"><h2>Checks</h2><div class="tiles">
      ${Object.entries(checks).map(([name, check]) => html`<${Tile} label=${name} value=${check.ok ? "ok" : "not ready"} bad=${!check.ok} note=${check.reason || check.detail || ""} />`)}
    </div></section>
    <${ErrorBox} error=${racks.error} again=${racks.again} />
    ${racks.data && html`<${RackTiles} racks=${racks.data.data} />`}
    <${ErrorBox} error=${storage.error} again=${storage.again} />
    ${storage.data ? html`<${StorageTiles} storage=${storage.data.data} />` : storage.loading && html`<${Waiting} what="Asking what is stored" />`}`;
}
