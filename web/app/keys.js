// Keys. Handlers stand before what they act on can be seen, so that no key of a quick hand meets the view before it.
import { useLayoutEffect, useRef } from "./html.js";

/** Whether somebody types where a key was pressed. */
export const isTyping = ({ target }) => Boolean(target.closest?.("input:not([type=checkbox]), textarea, select"));

/** Obeys keys that are pressed anywhere, without Ctrl, Meta or Alt, and while no dialog has the page. @param {(event: any) => void} handler */
export function useKeys(handler) {
  const latest = useRef(null);
  latest.current = handler;
  useLayoutEffect(() => {
    const key = (event) => event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog:modal") || latest.current(event);
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}

/** What Esc closes, the topmost last. */
const opened = [];

addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || event.isComposing || !opened.length) return;
  event.preventDefault();
  event.stopPropagation();
  opened.at(-1).current();
}, true);

/** While it is open, Esc closes it, wherever the focus is; of several, the one that was opened last. */
export function useEscape(close, isOpen = true) {
  const latest = useRef(null);
  latest.current = close;
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    opened.push(latest);
    return () => opened.splice(opened.indexOf(latest), 1);
  }, [isOpen]);
}
