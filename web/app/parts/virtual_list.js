// Rows of one height, of which only those that can be seen are in the document, however many there are.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../html.js";

/** The height of a row, as `page.css` has it, px; rows beyond the edge that are drawn already. */
const [HEIGHT, SPARE] = [24, 8];

/** The heads of columns: what they are called, and their classes. @param {[string, string][]} columns */
export const headOf = (columns) => html`<div role="row" class="head">${columns.map(([title, kind]) => html`<span role="columnheader" class=${kind}>${title}</span>`)}</div>`;

/**
 * @param {{ rows: any[], row: (row: any, index: number) => any, selected?: number, label: string,
 *   onEnd?: () => void, head?: any }} props `row` draws one, with role="row"; `onEnd` is called when the last one is near
 */
export function VirtualList({ rows, row, selected, label, onEnd, head }) {
  const box = useRef(null);
  const [view, setView] = useState({ top: 0, size: 600 });
  const look = () => box.current && setView({ top: box.current.scrollTop, size: box.current.clientHeight });
  useLayoutEffect(() => {
    const watched = new ResizeObserver(look);
    watched.observe(box.current);
    return () => watched.disconnect();
  }, []);
  useLayoutEffect(() => {
    if (selected === undefined || selected < 0 || !box.current) return;
    const [at, { scrollTop, clientHeight }] = [selected * HEIGHT, box.current];
    if (at < scrollTop) box.current.scrollTop = at;
    else if (at + 2 * HEIGHT > scrollTop + clientHeight) box.current.scrollTop = at + 2 * HEIGHT - clientHeight;
  }, [selected]);
  const first = Math.max(0, Math.floor(view.top / HEIGHT) - SPARE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.size) / HEIGHT) + SPARE);
  useEffect(() => {
    if (onEnd && rows.length > 0 && last >= rows.length - SPARE) onEnd();
  }, [last, rows]);
  const drawn = [];
  for (let index = first; index < last; index += 1) drawn.push(row(rows[index], index));
  return html`<div class="virtual" ref=${box} onScroll=${look} role="table" aria-label=${label} aria-rowcount=${rows.length} tabindex="0">
    ${head}
    <div role="rowgroup" style=${{ height: `${rows.length * HEIGHT}px`, position: "relative" }}>
      <div style=${{ transform: `translateY(${first * HEIGHT}px)` }} role="presentation">${drawn}</div>
    </div>
  </div>`;
}
