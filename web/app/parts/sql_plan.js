// The plan of a statement as a tree of lines: what is done, with how many rows, and which files it opens.
import { count } from "../format.js";
import { html } from "../html.js";

/** @typedef {{ name: string, rest: string, metrics: Map<string, string>, below: PlanLine[] }} PlanLine */

/** Whether an answer is one of EXPLAIN. */
export const isPlan = (columns) => columns.length === 2 && columns[0].name === "plan_type" && columns[1].name === "plan";

function lineOf(text) {
  const [, name, rest] = /^([A-Za-z0-9_ ]+)[:,]?\s*(.*)$/s.exec(text) || ["", text, ""];
  const at = rest.lastIndexOf("metrics=[");
  const metrics = new Map();
  if (at >= 0) for (const [, key, value] of rest.slice(at + 9, -1).matchAll(/(\w+)=(.*?)(?=, \w+=|$)/g)) metrics.set(key, value);
  return { name, rest: (at >= 0 ? rest.slice(0, at) : rest).replace(/,\s*$/, ""), metrics, below: [] };
}

/** The lines of a plan as a tree, by their indents. @returns {PlanLine[]} */
function treeOf(text) {
  const top = [];
  const open = [{ depth: -1, below: top }];
  for (const raw of text.split("\n")) {
    if (!raw.trim()) continue;
    const depth = raw.length - raw.trimStart().length;
    const line = lineOf(raw.trim());
    while (open.at(-1).depth >= depth) open.pop();
    open.at(-1).below.push(line);
    open.push({ depth, below: line.below });
  }
  return top;
}

/** What of a line is worth a look: rows, time, files. */
function facts({ rest, metrics }) {
  const found = [];
  const groups = /file_groups=\{\d+ groups?: \[(.*?)\]\}/s.exec(rest);
  if (metrics.has("output_rows")) found.push(`${metrics.get("output_rows")} rows`);
  if (metrics.has("elapsed_compute")) found.push(metrics.get("elapsed_compute"));
  if (groups) {
    const files = groups[1].match(/[^[\],\s]+/g) || [];
    found.push(files.length === 1 ? "1 file" : `${files.length} files`);
  }
  const pruned = (key, what) => {
    /** @type {any} */
    const [, total, left] = /^(\d+) total → (\d+) matched/.exec(metrics.get(key) || "") || [];
    if (Number(total)) found.push(`${total - left} of ${total} ${what} pruned`);
  };
  pruned("row_groups_pruned_statistics", "row groups");
  pruned("page_index_pages_pruned", "pages");
  if (Number.parseFloat(metrics.get("bytes_scanned"))) found.push(`${metrics.get("bytes_scanned")} B scanned`);
  if (Number.parseFloat(metrics.get("spill_count"))) found.push(`spilled ${metrics.get("spill_count")} times`);
  return found;
}

function Line({ line }) {
  const more = [line.rest, ...[...line.metrics].map(([key, value]) => `${key} = ${value}`)].filter(Boolean).join("\n");
  const said = facts(line).map((fact) => html` <span class="fact">${fact}</span>`);
  return html`<li>
    ${more ? html`<details><summary><code>${line.name}</code>${said} <span class="dim rest">${line.rest}</span></summary><pre>${more}</pre></details>` : html`<div class="leaf"><code>${line.name}</code>${said}</div>`}
    ${line.below.length > 0 && html`<ul>${line.below.map((one, at) => html`<${Line} key=${at} line=${one} />`)}</ul>`}
  </li>`;
}

const TITLES = { logical_plan: "Logical plan", physical_plan: "Physical plan", "Plan with Metrics": "Plan as it ran" };

/** @param {{ rows: { plan_type: string, plan: string }[], stats: any }} props */
export function SqlPlan({ rows, stats }) {
  return html`<div class="sql-plan" tabindex="0" role="region" aria-label="Plan">
    ${stats && html`<p>${stats.files_considered ? html`<strong>${count(stats.files_pruned)} of ${count(stats.files_considered)} files pruned</strong>${stats.files_pruned ? "" : ": bounds of ts, an id, or a text of a log's message exclude files"}` : "No data file is looked at."}</p>`}
    ${[...rows].reverse().map((row) => html`<section key=${row.plan_type}><h2>${TITLES[row.plan_type] || row.plan_type}</h2><ul class="plan">${treeOf(row.plan).map((line, at) => html`<${Line} key=${at} line=${line} />`)}</ul></section>`)}
  </div>`;
}
