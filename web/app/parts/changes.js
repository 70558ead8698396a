// Changes at the Mixer: asked for, done or waiting for a second person, and said; stopped when somebody wants it, or looks no more, with what
// may have become of them; and the dialog that asks before. It keeps the focus; Esc closes it.
import { open, read, refresh } from "../api.js";
import { age, time } from "../format.js";
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { useEscape } from "../keys.js";
import { href } from "../location.js";
import { ErrorBox, Waiting } from "./messages.js";

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

/** Of a change that was not answered, or by a proxy alone: it may have been done. */
export const isUnknown = (error) => Boolean(error) && (!error.status || ([502, 503, 504].includes(error.status) && !error.code));

/** Says so, and shows how things are by now. */
function Unknown({ error }) {
  useLayoutEffect(refresh, [error]);
  return html`<p class="bad" role="alert">${error.name === "AbortError" ? "It was asked to stop, and may be done all the same" : "No answer came, and it may be done all the same"}: look whether it was, before you ask again.</p>`;
}

/** Why a change was not done, or that nobody knows. */
export function Failed({ error }) {
  return html`${error?.name !== "AbortError" && html`<${ErrorBox} error=${error} />`}${isUnknown(error) && html`<${Unknown} error=${error} />`}`;
}

/** One change at a time: `run` asks for it, `leave` stops it first, so that somebody sees what may have become of it, and closes else. */
export function useChange(close) {
  const [state, setState] = useState({ busy: false, error: null });
  const asked = useRef(null);
  useLayoutEffect(() => () => asked.current?.abort(), []);
  /** @param {(signal: AbortSignal) => Promise<any>} change @param {(came: any) => void} done @param {(error: any) => void} [failed] */
  const run = async (change, done, failed) => {
    if (state.busy) return;
    const { signal } = (asked.current = new AbortController());
    setState({ busy: true, error: null });
    let came;
    try {
      came = await change(signal);
      // Stopped while it looked at what came of it: done, but nobody was told.
      signal.throwIfAborted();
    } catch (error) {
      setState({ busy: false, error });
      return failed?.(error);
    }
    setState({ busy: false, error: null });
    done(came);
  };
  return { ...state, run, leave: () => (state.busy ? asked.current.abort() : close?.()) };
}

/**
 * @param {{ title: string, action: string, danger?: boolean, typed?: string, ready?: boolean, run: (signal: AbortSignal) => Promise<any>,
 *   done: (result: any) => void, close: () => void, children?: any }} props `typed` has to be typed back first;
 *   `done` is told what came of it once the dialog is closed
 */
export function Confirm({ title, action, danger = false, typed, ready = true, run, done, close, children }) {
  const box = useRef(null);
  const change = useChange(close);
  const { busy, error, leave } = change;
  const [text, setText] = useState("");
  useEscape(leave);
  useLayoutEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    // It gives the focus back.
    return () => dialog.close();
  }, []);
  const wrong = Boolean(typed) && text !== typed;
  const submit = (event) => {
    event.preventDefault();
    if (wrong || !ready) return;
    change.run(run, (came) => {
      close();
      done(came);
    });
  };
  return html`<dialog class="confirm" ref=${box} aria-label=${title} onCancel=${(event) => {
    event.preventDefault();
    leave();
  }}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${children}
      ${typed && html`<label class="field"><span>Type <code>${typed}</code> to confirm</span>
        <input autocomplete="off" spellcheck="false" value=${text} onInput=${(event) => setText(event.currentTarget.value)} /></label>`}
      <${Failed} error=${error} />
      ${busy && html`<${Waiting} what=${`${action} …`} cancel=${leave} />`}
      <p class="bar"><button class=${danger ? "danger" : "primary"} disabled=${busy || wrong || !ready}>${action}</button>
        <button type="button" onClick=${leave}>${error ? "Close" : "Cancel"}</button></p>
    </form>
  </dialog>`;
}
