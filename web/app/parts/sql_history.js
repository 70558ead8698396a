// The statements that were run in this browser: the last hundred, newest first, kept on this machine only.
import { age, duration } from "../format.js";
import { html, useState } from "../html.js";
import { href } from "../location.js";
import { Drawer } from "./drawer.js";
import { EmptyState } from "./messages.js";
import { counted } from "./sql_result.js";

const KEY = "platform.sql.history";
const MOST = 100;

/** @typedef {{ link: string, q: string, at: string, ms: number, rows?: number, error?: string }} Remembered */

/** @returns {Remembered[]} */
export function remembered() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) || "[]");
    return Array.isArray(kept) ? kept.filter(({ q }) => typeof q === "string") : [];
  } catch {
    return [];
  }
}

/** Remembers a statement with its parameters; one that was run before moves to the top. */
export function remember({ q, given, explain }, outcome) {
  if (!q.trim()) return;
  const params = { q, explain };
  for (const [name, value] of Object.entries(given)) params[`p.${name}`] = value;
  const link = href("sql", params);
  const others = remembered().filter((one) => one.link !== link);
  const kept = [{ link, q: explain ? `EXPLAIN ${q}` : q, at: new Date().toISOString(), ...outcome }, ...others].slice(0, MOST);
  for (; kept.length; kept.length >>= 1) {
    try {
      return localStorage.setItem(KEY, JSON.stringify(kept));
    } catch {
      // The browser's store is full: fewer are kept.
    }
  }
}

/** @param {{ close: () => void }} props */
export function SqlHistory({ close }) {
  const [wanted, setWanted] = useState("");
  const [all, setAll] = useState(remembered);
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter(({ q }) => words.every((word) => q.toLowerCase().includes(word)));
  const forget = () => {
    localStorage.removeItem(KEY);
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
