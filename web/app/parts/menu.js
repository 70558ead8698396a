// A button that unfolds a panel; Esc, or a press elsewhere, closes it.
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { useEscape } from "../keys.js";

/** What stays free at the right edge of the page, pixels. */
const EDGE = 12;

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
  // Wherever its button is, the panel stays within the page.
  useLayoutEffect(() => {
    if (!open) return;
    const panel = box.current.lastElementChild;
    panel.style.left = `${Math.min(0, document.getElementById("content").clientWidth - EDGE - box.current.getBoundingClientRect().left - panel.offsetWidth)}px`;
  });
  const toggle = (event) => {
    event.preventDefault();
    setOpen(!open);
  };
  return html`<details class="menu" ref=${box} open=${open}><summary onClick=${toggle}>${label}</summary><div class="panel">${children}</div></details>`;
}
