// Keys that move through rows: j, k, arrows, Home, End and Enter, and more that a list adds. They do nothing while somebody types.
// They are listened to from the moment on at which the rows are in the document: a key that comes within the first frame counts.
import { useLayoutEffect, useRef } from "../html.js";

/** j and k through a table whose rows begin with a link: the link has the focus, so Enter follows it. */
export function useTableKeys() {
  useLayoutEffect(() => {
    const key = (event) => {
      if (!["j", "k"].includes(event.key) || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select")) return;
      /** @type {any} */
      const links = [...document.querySelectorAll("main table tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
      const at = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
      links[Math.max(0, Math.min(links.length - 1, at + (event.key === "j" ? 1 : -1)))]?.focus();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}

const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };

/**
 * @param {{ count: number, selected: number, select: (index: number) => void, open: (index: number) => void,
 *   more?: Record<string, (index: number) => void> }} list
 */
export function useRowKeys(list) {
  const latest = useRef(list);
  latest.current = list;
  useLayoutEffect(() => {
    const key = (event) => {
      const { count, selected, select, open, more = {} } = latest.current;
      const scrolls = event.key.length > 1 && event.target.closest?.(".drawer, .side");
      const target = event.target.closest?.("input, textarea, select, button, a, summary, [contenteditable]");
      const typing = target && !target.matches("button, a, summary, [type=checkbox]");
      if (typing || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.key in STEPS && scrolls) return;
      if (event.key in STEPS && count) {
        // Whoever moves has left the button: Enter is for the row from now on.
        if (target && !target.closest(".drawer")) document.querySelector("main .virtual")?.focus({ preventScroll: true });
        const to = Math.max(0, Math.min(count - 1, (selected < 0 && STEPS[event.key] > 0 ? -1 : selected) + STEPS[event.key]));
        // The next key may come before the list is drawn anew.
        latest.current = { ...latest.current, selected: to };
        select(to);
      } else if (event.key === "Enter" && !target?.matches("button, a, summary") && selected >= 0 && selected < count) open(selected);
      else if (more[event.key]) more[event.key](selected);
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
}
