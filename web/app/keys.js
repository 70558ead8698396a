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

/** j and k through a table whose rows begin with a link: the link has the focus, so Enter follows it. */
export function useTableKeys() {
  useKeys((event) => {
    if (!["j", "k"].includes(event.key) || isTyping(event)) return;
    /** @type {any} */
    const links = [...document.querySelectorAll("main table tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
    const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
    links[Math.max(0, Math.min(links.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
  });
}

/** How many rows further a key goes. */
const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };

/** What has keys of its own beside a list: drawers, the side, and all that scrolls by itself. */
const BESIDE = ".drawer, .facets, [tabindex='0']:not(.virtual, .virtual *)";

/**
 * Keys that move through rows: j, k, arrows, page keys, Home, End and Enter, and more that a list adds.
 * @param {{ count: number, selected: number, select: (index: number) => void, open?: (index: number) => void,
 *   more?: Record<string, (index: number) => void> }} list
 */
export function useRowKeys(list) {
  useKeys((event) => {
    const { count, selected, select, open, more = {} } = list;
    const { key, target } = event;
    // Beside the list, only letters are its own: the others scroll what is there.
    if (isTyping(event) || event.defaultPrevented || (key !== "j" && key !== "k" && target.closest?.(BESIDE))) return;
    const presses = (key === "Enter" || key === " ") && target.closest?.("button, a, summary, input");
    const chosen = selected >= 0 && selected < count;
    if (key in STEPS && count) {
      // Whoever moves has left the button: Enter is for the row from now on.
      if (target.closest?.("button, a, summary, input") && !target.closest(".drawer")) document.querySelector("main .virtual")?.focus({ preventScroll: true });
      // The next key may come before the list is drawn anew.
      list.selected = Math.max(0, Math.min(count - 1, (selected < 0 && STEPS[key] > 0 ? -1 : selected) + STEPS[key]));
      select(list.selected);
    } else if (key === "Enter" && open && chosen && !presses) open(selected);
    else if (more[key] && !presses) more[key](selected);
    else return;
    event.preventDefault();
  });
}
