// Asks before something is done that others notice, and shows how it went if it failed. The dialog keeps the focus; Esc closes it.
import { html, useEffect, useRef, useState } from "../html.js";
import { ErrorBox, Waiting } from "./messages.js";

/**
 * @param {{ title: string, action: string, danger?: boolean, typed?: string, ready?: boolean, run: (signal: AbortSignal) => Promise<any>,
 *   done: (result: any) => void, close: () => void, children?: any }} props `typed` has to be typed back first
 */
export function Confirm({ title, action, danger = false, typed, ready = true, run, done, close, children }) {
  const box = useRef(null);
  const cancel = useRef(null);
  const [state, setState] = useState({ busy: false, error: null, text: "" });
  useEffect(() => {
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
      setState({ ...state, busy: false, error: error.name === "AbortError" ? null : error });
    }
  };
  const wrong = typed && state.text !== typed;
  return html`<dialog class="confirm" ref=${box} aria-label=${title} onKeyDown=${(event) => event.stopPropagation()}
    onCancel=${(event) => {
      event.preventDefault();
      close();
    }}>
    <form onSubmit=${submit}>
      <h2>${title}</h2>
      ${children}
      ${typed && html`<label class="field"><span>Type <code>${typed}</code> to confirm</span>
        <input autocomplete="off" spellcheck="false" value=${state.text} onInput=${(event) => setState({ ...state, text: event.currentTarget.value })} /></label>`}
      <${ErrorBox} error=${state.error} />
      ${state.busy && html`<${Waiting} what=${`${action} …`} cancel=${() => cancel.current?.abort()} />`}
      <p class="bar"><button class=${danger ? "danger" : "primary"} disabled=${state.busy || wrong || !ready}>${action}</button>
        <button type="button" onClick=${close}>Cancel</button></p>
    </form>
  </dialog>`;
}
