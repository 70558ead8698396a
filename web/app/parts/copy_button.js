// Copies a text, and says so.
import { html, useState } from "../html.js";

export function CopyButton({ text, children, title }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    await navigator.clipboard.writeText(typeof text === "function" ? text() : text).then(
      () => setSaid("copied"),
      () => setSaid("the browser does not allow it"),
    );
    setTimeout(() => setSaid(""), 1_500);
  };
  return html`<button class="quiet" title=${title} onClick=${copy}>${children}<span role="status">${said && ` ${said}`}</span></button>`;
}
