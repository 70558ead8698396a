// A text of any length: its beginning, and all of it at a press, piece by piece, so that nothing stops the page; another press ends that.
// Pieces that cannot be seen are not laid out.
import { bytes } from "../format.js";
import { html, useEffect, useMemo, useState } from "../html.js";

/** Characters that are shown at first, unless somebody says otherwise, and of a piece; pieces that are added in a frame. */
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

/**
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
