// A button that unfolds a panel; Esc, or a press elsewhere, closes it.
import { html, useEffect, useRef } from "../html.js";

export function Menu({ label, children }) {
  const box = useRef(null);
  useEffect(() => {
    const outside = (event) => {
      if (!box.current.contains(event.target)) box.current.open = false;
    };
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, []);
  const key = (event) => {
    if (event.key !== "Escape" || !box.current.open) return;
    event.stopPropagation();
    box.current.open = false;
    box.current.querySelector("summary").focus();
  };
  return html`<details class="menu" ref=${box} onKeyDown=${key}><summary>${label}</summary><div class="panel">${children}</div></details>`;
}
