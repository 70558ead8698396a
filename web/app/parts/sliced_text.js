// A text of any length: its beginning, and all of it at a press, piece by piece, so that nothing stops the page. Pieces that cannot be
// seen are not laid out.
import { bytes } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";

/** Characters that are shown at first, and of a piece; pieces that are added in a frame. */
const [SHOWN, PIECE, AT_ONCE] = [4_000, 16_000, 8];

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

/** @param {{ text: string, size?: number, load?: () => void }} props `size`: the bytes of the whole, if this is the beginning, which `load` asks for */
export function SlicedText({ text, size, load }) {
  const [all, setAll] = useState(false);
  const [drawn, setDrawn] = useState(0);
  const pieces = useMemo(() => (all ? piecesOf(text) : []), [all, text]);
  useEffect(() => {
    if (drawn >= pieces.length) return undefined;
    const frame = requestAnimationFrame(() => setDrawn(drawn + AT_ONCE));
    return () => cancelAnimationFrame(frame);
  }, [drawn, pieces]);
  // What may be longer than its box is reached by the keys that scroll it.
  const tabindex = text.length > 300 ? 0 : undefined;
  if (all) return html`<code class="value" tabindex=${tabindex}>${pieces.slice(0, drawn).map((piece) => html`<span class="piece">${piece}</span>`)}</code>`;
  if (text.length <= SHOWN && !size) return html`<code class="value" tabindex=${tabindex}>${text}</code>`;
  return html`<code class="value" tabindex=${tabindex}>${text.slice(0, SHOWN)}…</code>
    <button onClick=${() => {
      setAll(true);
      load?.();
    }}>Show all (${bytes(size || text.length)})</button>`;
}
