// Keys that move through rows: j, k, arrows, page keys, Home, End and Enter, and more that a list adds.
import { isTyping, useKeys } from "../keys.js";

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

const STEPS = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity };

/**
 * @param {{ count: number, selected: number, select: (index: number) => void, open?: (index: number) => void,
 *   more?: Record<string, (index: number) => void> }} list
 */
export function useRowKeys(list) {
  useKeys((event) => {
    const { count, selected, select, open, more = {} } = list;
    const { key, target } = event;
    // Beside the list, only letters are its own: the others scroll what is there.
    if (isTyping(event) || event.defaultPrevented || (key !== "j" && key !== "k" && target.closest?.(".drawer, .facets, .metric-board"))) return;
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
