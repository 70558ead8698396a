// The bytes of a letter, as text, as JSON or in hexadecimal; a part of those that are many.
import { bytes as size } from "../../format.js";
import { html, useMemo, useState } from "../../html.js";
import { CopyButton } from "../../parts/copy_button.js";

/** Bytes that are shown at once; more of them would hold up the page. */
const MOST = 16_384;

const bytesOf = (hex) => Uint8Array.from({ length: hex.length / 2 }, (_, at) => parseInt(hex.slice(2 * at, 2 * at + 2), 16));

/** `00000010  6f 72 64 65 72 …  order…` */
function hexDump(octets) {
  const lines = [];
  for (let at = 0; at < octets.length; at += 16) {
    const of = [...octets.subarray(at, at + 16)];
    const hex = of.map((octet) => octet.toString(16).padStart(2, "0")).join(" ");
    const text = of.map((octet) => (octet >= 32 && octet < 127 ? String.fromCharCode(octet) : "·")).join("");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/** The forms that these bytes have. */
function forms(octets, message) {
  const found = {};
  if (message) found.message = JSON.stringify(message, null, 2);
  try {
    found.text = new TextDecoder("utf-8", { fatal: true }).decode(octets);
    found.JSON = JSON.stringify(JSON.parse(found.text), null, 2);
  } catch {
    // Bytes that are no text, or text that is no JSON, have fewer forms.
  }
  found.hex = hexDump(octets.subarray(0, MOST));
  return found;
}

/** @param {{ hex: string, message: any, type: string | null }} props */
export function Payload({ hex, message, type }) {
  const octets = useMemo(() => bytesOf(hex), [hex]);
  const shown = useMemo(() => forms(octets, message), [octets, message]);
  const [chosen, setChosen] = useState(null);
  const [whole, setWhole] = useState(false);
  const form = shown[chosen] === undefined ? ["message", "JSON", "text", "hex"].find((name) => shown[name] !== undefined) : chosen;
  const text = shown[form];
  const cut = !whole && text.length > MOST;
  const save = () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([octets]));
    link.download = "letter.bin";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
  };
  return html`<section aria-label="Payload"><h3>Payload, ${size(octets.length)}${type ? `, ${type}` : ""}</h3>
    <p class="bar">${Object.keys(shown).map((name) => html`<button aria-pressed=${name === form} onClick=${() => setChosen(name)}>${name}</button>`)}
      <${CopyButton} text=${form === "hex" ? hex : text} title="Copy">copy</${CopyButton}><button class="quiet" onClick=${save}>save bytes</button></p>
    <pre class=${form === "hex" ? "diff" : ""} tabindex="0" role="group" aria-label="Payload"><code>${cut ? text.slice(0, MOST) : text}</code></pre>
    ${cut && html`<button onClick=${() => setWhole(true)}>The first ${size(MOST)} of ${size(text.length)}: show all</button>`}
    ${form === "hex" && octets.length > MOST && html`<p class="dim">The first ${size(MOST)}; save the bytes to see all.</p>`}</section>`;
}
