// A field that keeps what is being typed, whatever is drawn anew meanwhile, until its value becomes another one.
import { html, useLayoutEffect, useState } from "../html.js";

/**
 * @param {{ value: string, room?: number, onInput?: (event: any) => void, [attribute: string]: any }} props `room` is how many characters it
 *   has room for at least; it grows with more of them
 */
export function Typed({ value, room, onInput, ...attributes }) {
  const [text, setText] = useState(value);
  useLayoutEffect(() => setText(value), [value]);
  const size = room ? { style: { width: `calc(${Math.max(room, text.length)}ch + 20px)` } } : {};
  const typed = (event) => {
    setText(event.currentTarget.value);
    onInput?.(event);
  };
  return html`<input spellcheck="false" ...${attributes} ...${size} value=${text} onInput=${typed} />`;
}
