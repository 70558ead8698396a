// A button that unfolds a panel; Esc, or a press elsewhere, closes it.
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { useEscape } from "../keys.js";

export function Menu({ label, children }) {
  const box = useRef(null);
  const [open, setOpen] = useState(false);
  useEscape(() => {
    setOpen(false);
    box.current.querySelector("summary").focus();
  }, open);
  useLayoutEffect(() => {
    const outside = (event) => box.current.contains(event.target) || setOpen(false);
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, []);
  const toggle = (event) => {
    event.preventDefault();
    setOpen(!open);
  };
  return html`<details class="menu" ref=${box} open=${open}><summary onClick=${toggle}>${label}</summary><div class="panel">${children}</div></details>`;
}
