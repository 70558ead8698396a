// Changes at the Mixer: asked for, done or waiting for a second person, and said.
import { open, read } from "../api.js";
import { age, time } from "../format.js";
import { html } from "../html.js";
import { href } from "../location.js";

/**
 * Has something done.
 * @param {string} path @param {RequestOptions} [options]
 * @returns {Promise<{ data: any, awaited: any }>} `awaited` is the request that waits if a second person has to ask for the same
 */
export async function act(path, { method = "POST", ...options } = {}) {
  const response = await open(path, { method, ...options });
  const data = (await read(response)).answer?.data ?? null;
  return { data, awaited: response.status === 202 ? data : null };
}

/** The path of one thing, whatever its name has in it. */
export const at = (path, ...names) => [path, ...names.map(encodeURIComponent)].join("/");

/** That nothing was changed yet, and who can do what. @param {{ awaited: any }} props */
export function Awaited({ awaited }) {
  return html`<p><strong>Nothing was changed yet.</strong> A second person has to ask for the same ${age(awaited.until)} (until ${time(awaited.until)}):
    then it is done. It <a href=${href("fleet", { view: "requests" })}>waits as request ${awaited.id}</a>; any operator can withdraw it.</p>`;
}

/** What came of the last action; goes by one press. @param {{ said: any, clear: () => void }} props */
export function Said({ said, clear }) {
  return html`<div role="status">${said && html`<div class="said"><div>${said}</div><button class="quiet" aria-label="Dismiss" onClick=${clear}>×</button></div>`}</div>`;
}
