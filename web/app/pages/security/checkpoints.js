// The signed checkpoints of the audit log, by which somebody else can tell whether it was changed.
import { useAnswer } from "../../api.js";
import { age, time } from "../../format.js";
import { html } from "../../html.js";
import { ColumnList } from "../../parts/column_list.js";
import { CopyButton } from "../../parts/copy_button.js";
import { EmptyState, ErrorBox, Waiting } from "../../parts/messages.js";
import { Question } from "../../parts/question.js";
import { usePagedRows } from "../../parts/repeated.js";

const PAGE = 500;
const COLUMNS = [
  { name: "id", title: "Up to entry", width: 100, cell: ({ id }) => String(id) },
  { name: "ts", title: "Signed", width: 206, cell: ({ ts }) => time(ts) },
  { name: "age", title: "Age", width: 110, cell: ({ ts }) => age(ts) },
  { name: "chain", title: "Link of that entry", width: 520, cell: ({ chain }) => html`<code>${chain}</code>`, hint: ({ chain }) => chain },
  { name: "by", title: "By key", width: 520, cell: ({ signed_by }) => html`<code>${signed_by}</code>`, hint: ({ signed_by }) => signed_by },
];

export function Checkpoints() {
  const points = usePagedRows("/api/v1/audit/checkpoints", { limit: PAGE });
  const about = useAnswer("/api/v1/audit/checkpoints", { limit: 1 });
  const key = about.data?.cluster_key;
  const verify = `platform audit verify --checkpoints checkpoints.ndjson --cluster-key ${key || "SHA256:…"}`;
  return html`<${Question} path="/api/v1/audit/checkpoints" params=${{ limit: PAGE }} command="platform audit checkpoints -o ndjson" />
    <dl class="facts"><dt>The cluster's key</dt><dd>${key && html`<code>${key}</code> <${CopyButton} text=${key} title="Copy the fingerprint">copy</${CopyButton}>`} <span class="dim">note it elsewhere while you trust this Mixer</span></dd>
      <dt>Keys before</dt><dd>${about.data?.successions.length ? `${about.data.successions.length}, each has signed the next` : "none"}</dd>
      <dt>To verify</dt><dd><code>${verify}</code> <${CopyButton} text=${verify} title="Copy the command">copy</${CopyButton}></dd></dl>
    <${ErrorBox} error=${points.error || about.error} again=${points.again} />
    ${points.rows.length ? html`<div class="list"><${ColumnList} label="Checkpoints" columns=${COLUMNS} rows=${points.rows} keyOf=${({ id, ts }) => `${id} ${ts}`} onEnd=${points.more} /></div>`
      : points.loading ? html`<${Waiting} what="Asking for the checkpoints" />` : !points.error && html`<${EmptyState} command="platform audit checkpoints -o ndjson >> /mnt/elsewhere/checkpoints.ndjson">No checkpoint yet: one is signed every hour. Keep them elsewhere, too:</${EmptyState}>`}`;
}
