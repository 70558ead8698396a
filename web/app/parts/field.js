// A labelled input of a form, with its help and its fault beside it.
import { html, useRef } from "../html.js";

let last = 0;

/**
 * @param {{ label: string, help?: any, fault?: string, children: (attributes: any) => any }} props `children` draws the input with the attributes
 */
export function Field({ label, help, fault, children }) {
  const id = useRef(null);
  id.current ??= `field-${(last += 1)}`;
  const attributes = { id: id.current, "aria-invalid": fault ? "true" : undefined, "aria-describedby": `${id.current}-help` };
  return html`<div class="field"><label for=${id.current}>${label}</label>${children(attributes)}
    <span id=${`${id.current}-help`} class=${fault ? "bad" : "dim"} role=${fault ? "alert" : undefined}>${fault || help}</span></div>`;
}
