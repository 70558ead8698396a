// Asks before something is done that others notice, and shows how it went if it failed. The dialog keeps the focus; Esc closes it.
import { refresh } from "../api.js";
import { html, useLayoutEffect, useRef, useState } from "../html.js";
import { useEscape } from "../keys.js";
import { ErrorBox, Waiting } from "./messages.js";

/** Of a change that was not answered, or by a proxy alone: it may have been done. */
export const isUnknown = (error) => Boolean(error) && (!error.status || [502, 504].includes(error.status));

/** Says so, and shows how things are by now. */
export function Unknown({ error }) {
  useLayoutEffect(refresh, [error]);
  return html`<p class="bad" role="alert">${error.name === "AbortError" ? "It was asked to stop, and may be done all the same" : "No answer came, and it may be done all the same"}: look whether it was, before you ask again.</p>`;
}

/**
 * @param {{ title: string, action: string, danger?: boolean, typed?: string, ready?: boolean, run: (signal: AbortSignal) => Promise<any>,
 *   done: (result: any) => void, close: () => void, children?: any }} props `typed` has to be typed back first
 */
export function Confirm({ title, action, danger = false, typed, ready = true, run, done, close, children }) {
  const box = useRef(null);
  const cancel = useRef(null);
  const [state, setState] = useState({ busy: false, error: null, text: "" });
  // What goes on is stopped first, so that somebody sees what may have become of it.
  const leave = () => (state.busy ? cancel.current.abort() : close());
  useEscape(leave);
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => {
      cancel.current?.abort();
      before?.focus?.();
    };
  }, []);
  const submit = async (event) => {
    event.preventDefault();
    if (state.busy) return;
    cancel.current = new AbortController();
    setState({ ...state, busy: true, error: null });
    try {
      done(await run(cancel.current.signal));
    } catch (error) {
      setState({ ...state, busy: false, error });
    }
  };
  const wrong = typed && state.text !== typed;
  return html`<dialog class="confirm" ref=${box} aria-label=${title} onCancel=${(event) => {
    event.preventDefault();
    leave();
  }}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${children}
      ${typed && html`<label class="field"><span>Type <code>${typed}</code> to confirm</span>
        <input autocomplete="off" spellcheck="false" value=${state.text} onInput=${(event) => setState({ ...state, text: event.currentTarget.value })} /></label>`}
      ${state.error?.name !== "AbortError" && html`<${ErrorBox} error=${state.error} />`}
      ${isUnknown(state.error) && html`<${Unknown} error=${state.error} />`}
      ${state.busy && html`<${Waiting} what=${`${action} …`} cancel=${leave} />`}
      <p class="bar"><button class=${danger ? "danger" : "primary"} disabled=${state.busy || wrong || !ready}>${action}</button>
        <button type="button" onClick=${leave}>${state.error ? "Close" : "Cancel"}</button></p>
    </form>
  </dialog>`;
}
