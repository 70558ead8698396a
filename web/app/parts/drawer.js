// What is known of one row, beside the list; Esc closes it.
import { html, useEffect, useRef } from "../html.js";

export function Drawer({ title, close, children }) {
  const box = useRef(null);
  useEffect(() => {
    const before = document.activeElement;
    box.current.focus();
    return () => before?.focus?.();
  }, []);
  const key = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  };
  return html`<aside class="drawer" ref=${box} tabindex="-1" aria-label=${title} onKeyDown=${key}>
    <header><h2>${title}</h2><button class="quiet" aria-label="Close" onClick=${close}>×</button></header>
    ${children}
  </aside>`;
}
