// A secret that is shown once, in memory of this view only, with a way to copy it.
import { html, useLayoutEffect, useRef } from "../html.js";
import { CopyButton } from "./copy_button.js";

/** @param {{ secret: string, what: string, clear: () => void, children?: any }} props */
export function Secret({ secret, what, clear, children }) {
  const box = useRef(null);
  useLayoutEffect(() => box.current.focus(), []);
  return html`<div class="said" role="group" aria-label=${what} tabindex="-1" ref=${box}><div>
    <p><strong>${what}: shown now and never again.</strong> ${children}</p>
    <pre><code>${secret}</code></pre><${CopyButton} text=${secret} title="Copy the secret">Copy</${CopyButton}>
    <button onClick=${clear}>I have it: forget it</button></div></div>`;
}
