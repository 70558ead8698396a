// What is known of one row, beside the list. It takes the focus, and gives it back.
import { html, useLayoutEffect, useRef } from "../html.js";
import { useEscape } from "../keys.js";

export function Drawer({ title, close, children }) {
  const box = useRef(null);
  useEscape(close);
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.focus();
    return () => before?.focus?.();
  }, []);
  return html`<aside class="drawer" ref=${box} tabindex="-1" aria-label=${title}>
    <header><h2>${title}</h2><button class="quiet" aria-label="Close" onClick=${close}>×</button></header>
    ${children}
  </aside>`;
}
