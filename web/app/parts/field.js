// Inputs: a labelled one of a form, and one that keeps what is being typed.
import { html, useLayoutEffect, useRef, useState } from "../html.js";

let last = 0;

/**
 * A labelled input of a form, with its help and its fault beside it.
 * @param {{ label: string, help?: any, fault?: string, children?: (attributes: any) => any, [attribute: string]: any }} props
 *   `children` draws what is no plain input with the attributes
 */
export function Field({ label, help, fault, children, ...input }) {
  const id = useRef(null);
  id.current ??= `field-${(last += 1)}`;
  const attributes = { id: id.current, "aria-invalid": fault ? "true" : undefined, "aria-describedby": `${id.current}-help` };
  return html`<div class="field"><label for=${id.current}>${label}</label>${children ? children(attributes) : html`<input autocomplete="off" spellcheck="false" ...${input} ...${attributes} />`}
    <span id=${`${id.current}-help`} class=${fault ? "bad" : "dim"} role=${fault ? "alert" : undefined}>${fault || help}</span></div>`;
}

/**
 * A field that keeps what is being typed, whatever is drawn anew meanwhile, until its value becomes another one.
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
