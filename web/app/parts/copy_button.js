// Copies a text, and says so.
import { html, useState } from "../html.js";

export function CopyButton({ text, children, title }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    try {
      // Pages without TLS have no clipboard, but for those of this machine.
      await navigator.clipboard.writeText(typeof text === "function" ? text() : text);
      setSaid("copied");
    } catch {
      setSaid("the browser does not allow it: mark the text and copy it");
    }
    setTimeout(() => setSaid(""), 3_000);
  };
  return html`<button type="button" class="quiet" title=${title} onClick=${copy}>${children}<span role="status">${said && ` ${said}`}</span></button>`;
}
