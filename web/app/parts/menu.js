// A button that unfolds a panel; Esc, or a press elsewhere, closes it.
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { useEscape } from "../keys.js";

/** What stays free at the right edge of the page, pixels. */
const EDGE = 12;

/** @param {{ label: string, children?: any }} props what is in the panel, or a function of what closes it that makes it */
export function Menu({ label, children }) {
  const box = useRef(null);
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  useEscape(() => {
    close();
    box.current.querySelector("summary").focus();
  }, open);
  useLayoutEffect(() => {
    const outside = (event) => box.current.contains(event.target) || close();
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
  return html`<details class="menu" ref=${box} open=${open}><summary onClick=${toggle}>${label}</summary><div class="panel">${typeof children === "function" ? children(close) : children}</div></details>`;
}
