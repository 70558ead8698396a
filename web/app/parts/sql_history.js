// The statements that were run in this browser, without the values of their parameters: the last hundred, newest first, kept on this machine only.
import { age, duration } from "../format.js";
import { html, useState } from "../html.js";
import { keep, kept } from "../kept.js";
import { href } from "../location.js";
import { Drawer } from "./drawer.js";
import { EmptyState } from "./messages.js";
import { counted } from "./sql_result.js";

const KEY = "sql.history";
const MOST = 100;

/** @typedef {{ link: string, q: string, at: string, ms: number, rows?: number, error?: string }} Remembered */

/** @returns {Remembered[]} */
function remembered() {
  try {
    const all = JSON.parse(kept(KEY) || "[]");
    return Array.isArray(all) ? all.filter(({ q }) => typeof q === "string") : [];
  } catch {
    return [];
  }
}

/** Remembers a statement; one that was run before moves to the top. Its parameters may be secrets: they are given again. */
export function remember({ q, explain, given }, outcome) {
  if (!q.trim()) return;
  const link = href("sql", { q, explain });
  const others = remembered().filter((one) => one.link !== link);
  const error = outcome.error && Object.keys(given).length ? "not answered" : outcome.error;
  const all = [{ link, q: explain ? `EXPLAIN ${q}` : q, at: new Date().toISOString(), ...outcome, error }, ...others].slice(0, MOST);
  // Where the browser's store is full, fewer are kept.
  while (all.length && !keep(KEY, JSON.stringify(all))) all.length >>= 1;
}

/** @param {{ close: () => void }} props */
export function SqlHistory({ close }) {
  const [wanted, setWanted] = useState("");
  const [all, setAll] = useState(remembered);
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter(({ q }) => words.every((word) => q.toLowerCase().includes(word)));
  const forget = () => {
    keep(KEY, null);
    setAll([]);
  };
  return html`<${Drawer} title="History" close=${close}>
    <div class="bar"><input type="search" aria-label="Search the history" placeholder="search" value=${wanted} onInput=${(event) => setWanted(event.currentTarget.value)} />
      <span class="dim" role="status">${found.length} of ${all.length}</span>
      ${all.length > 0 && html`<button onClick=${forget}>Forget all</button>`}</div>
    ${found.length ? html`<ul class="history">${found.map(({ link, q, at, ms, rows, error }) => html`<li key=${link}>
      <a href=${link}><code>${q.length > 400 ? `${q.slice(0, 400)}…` : q}</code></a>
      <span class="dim">${age(at)} · ${duration(ms)} · ${error ? html`<span class="bad">${error.slice(0, 160)}</span>` : `${counted(rows, "row")}`}</span></li>`)}</ul>`
      : html`<${EmptyState}>${all.length ? "No statement has all these words." : "Statements that you run are kept here, in this browser only."}</${EmptyState}>`}
  </${Drawer}>`;
}
