// What is shown, as it stands in the address behind `#`: `#/logs?since=1h&entity=press-1`. So every view is a link, back and forward work,
// and nothing of a question reaches a server's log of addresses.
import { useLayoutEffect, useState } from "./html.js";

/** @typedef {{ page: string, params: URLSearchParams }} Location */

/** @returns {Location} what the address says */
export function current() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  return { page: path || "overview", params: new URLSearchParams(query || "") };
}

/** Sets parameters; what is empty is removed. @param {URLSearchParams} params @param {Record<string, any>} changes */
export function withChanges(params, changes) {
  for (const [key, value] of Object.entries(changes)) {
    params.delete(key);
    for (const one of [value].flat()) if (one !== null && one !== undefined && one !== "") params.append(key, String(one));
  }
  return params;
}

/**
 * The address of a view.
 * @param {string} page @param {AddressParameters | URLSearchParams} [params]
 */
export function href(page, params = {}) {
  const text = String(params instanceof URLSearchParams ? params : withChanges(new URLSearchParams(), params));
  return `#/${page}${text ? `?${text}` : ""}`;
}

/** The address of the view that is shown, with some parameters changed; null removes one. */
export function hrefHere(changes) {
  const { page, params } = current();
  return href(page, withChanges(params, changes));
}

/** Goes to what `href` has made, at once; `replace` leaves no step to go back to, for what changes while somebody types. */
export function visit(to, replace = false) {
  if (to === location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", to);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** Goes to a view. */
export const go = (page, params, replace) => visit(href(page, params), replace);

/** Changes some parameters of the view that is shown. */
export const change = (changes, replace = false) => visit(hrefHere(changes), replace);

/** What an input does that stands for a parameter. */
export const changeBy = (key, replace = false) => (event) => change({ [key]: event.currentTarget.value }, replace);

/** Values with one more, or without it if it is among them. */
export const toggled = (values, one) => (values.includes(one) ? values.filter((other) => other !== one) : [...values, one]);

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
