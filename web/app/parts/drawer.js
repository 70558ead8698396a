// What is known of one row, beside the list: name by name its facts, and the fields of its JSON column; texts of any length.
import { bytes, cell } from "../format.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../html.js";
import { useEscape } from "../keys.js";

/** Characters of a text that are shown at first, of a field among others, and of a piece; pieces that are added in a frame. */
const [SHOWN, SHORT, PIECE, AT_ONCE] = [4_000, 400, 16_000, 8];

/** It takes the focus, and gives it back. */
export function Drawer({ title, close, children }) {
  const box = useRef(null);
  useEscape(close);
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.focus();
    return () => {
      before?.focus?.();
      // A dialog that closes with it did not allow that yet.
      queueMicrotask(() => document.activeElement === document.body && before?.focus?.());
    };
  }, []);
  return html`<aside class="drawer" ref=${box} tabindex="-1" aria-label=${title}>
    <header><h2>${title}</h2><button class="quiet" aria-label="Close" onClick=${close}>×</button></header>
    ${children}
  </aside>`;
}

/** A value of any type. */
export function LongText({ value }) {
  const isObject = value !== null && typeof value === "object";
  const text = useMemo(() => (isObject ? JSON.stringify(value, null, 1) : cell(value)), [value]);
  return html`<${SlicedText} tag=${isObject ? "pre" : "span"} text=${text} shown=${SHORT} />`;
}

/** Names and values; those without a value are left out. @param {{ facts: [string, any][] }} props a value may be markup */
export function Facts({ facts }) {
  const known = facts.filter(([, value]) => value !== null && value !== undefined && value !== "" && value !== false);
  return html`<dl class="facts">${known.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** The fields of a JSON column. @param {{ fields: Record<string, any>, find?: (key: string, value: any) => string }} props `find`: the address of rows with the same value */
export function Fields({ fields, find }) {
  const facts = Object.entries(fields || {}).map(([key, value]) => [key, html`<${LongText} value=${value} />
    ${find && (value === null || typeof value !== "object") && html` <a href=${find(key, value)} aria-label=${`Find ${key}=${cell(value).slice(0, 60)}`}>find</a>`}`]);
  return facts.length ? html`<${Facts} facts=${facts} />` : html`<p class="dim">none</p>`;
}

/** Pieces end with a line, if there is an end of one, and never within a character. */
function piecesOf(text) {
  const pieces = [];
  for (let from = 0; from < text.length;) {
    let piece = text.slice(from, from + PIECE);
    const line = piece.lastIndexOf("\n") + 1;
    if (piece.length === PIECE) piece = piece.slice(0, line || (/[\ud800-\udbff]$/.test(piece) ? PIECE - 1 : PIECE));
    pieces.push(piece);
    from += piece.length;
  }
  return pieces;
}

/**
 * A text of any length: its beginning, and all of it at a press, piece by piece, so that nothing stops the page; another press ends that.
 * Pieces that cannot be seen are not laid out.
 * @param {{ text: string, size?: number, load?: () => void, shown?: number, tag?: string, box?: Record<string, string> }} props
 *   `size`: the bytes of the whole, if this is the beginning, which `load` asks for; `tag` and `box`: the element and its attributes
 */
export function SlicedText({ text, size, load, shown = SHOWN, tag = "code", box }) {
  const [all, setAll] = useState(false);
  const [drawn, setDrawn] = useState(0);
  const pieces = useMemo(() => (all ? piecesOf(text) : []), [all, text]);
  useEffect(() => {
    if (drawn >= pieces.length) return undefined;
    const frame = requestAnimationFrame(() => setDrawn(drawn + AT_ONCE));
    return () => cancelAnimationFrame(frame);
  }, [drawn, pieces]);
  const press = () => {
    setAll(!all);
    setDrawn(0);
    if (!all) load?.();
  };
  const isCut = text.length > shown || Boolean(size);
  const seen = all ? pieces.slice(0, drawn).map((piece) => html`<span class="piece">${piece}</span>`) : isCut ? `${text.slice(0, shown)}…` : text;
  // What may be longer than its box is reached by the keys that scroll it.
  return html`<${tag} class="value" tabindex=${text.length > 300 ? 0 : undefined} ...${box}>${seen}</${tag}>
    ${(all || isCut) && html`<button onClick=${press}>${all ? "Show less" : `Show all (${bytes(size || text.length)})`}</button>`}`;
}
