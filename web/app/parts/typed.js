// A field that keeps what is being typed, whatever is drawn anew meanwhile, until its value becomes another one.
import { html, useLayoutEffect, useState } from "../html.js";

/** @param {{ value: string, room?: number, [attribute: string]: any }} props `room` is how many characters it has room for at least; it grows with more of them */
export function Typed({ value, room, ...attributes }) {
  const [text, setText] = useState(value);
  useLayoutEffect(() => setText(value), [value]);
  const size = room ? { style: { width: `calc(${Math.max(room, text.length)}ch + 20px)` } } : {};
  return html`<input ...${attributes} ...${size} value=${text} onInput=${(event) => setText(event.currentTarget.value)} />`;
}
