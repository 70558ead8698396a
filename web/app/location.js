// What is shown, as it stands in the address behind `#`: `#/logs?since=1h&entity=press-1`. So every view is a link, back and forward work,
// and nothing of a question reaches a server's log of addresses.
import { useLayoutEffect, useState } from "./html.js";

/** @typedef {{ page: string, params: URLSearchParams }} Location */

/** @returns {Location} what the address says */
export function current() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { page: path || "overview", params: new URLSearchParams(query || "") };
}

/**
 * The address of a view.
 * @param {string} page @param {AddressParameters | URLSearchParams} [params]
 */
export function href(page, params = {}) {
  const query = params instanceof URLSearchParams ? params : new URLSearchParams();
  if (!(params instanceof URLSearchParams)) {
    for (const [key, value] of Object.entries(params)) {
      for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") query.append(key, one);
    }
  }
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

/** Goes to what `href` has made, at once; `replace` leaves no step to go back to, for what changes while somebody types. */
export function visit(to, replace = false) {
  if (to === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Goes to a view. */
export const go = (page, params, replace) => visit(href(page, params), replace);

/** Changes some parameters of the view that is shown; null removes one. */
export function change(changes, replace = false) {
  const { page, params } = current();
  for (const [key, value] of Object.entries(changes)) {
    params.delete(key);
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") params.append(key, one);
  }
  go(page, params, replace);
}

/** The location, as it changes. */
export function useLocation() {
  const [at, setAt] = useState(current);
  useLayoutEffect(() => {
    const changed = () => setAt(current());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return at;
}
