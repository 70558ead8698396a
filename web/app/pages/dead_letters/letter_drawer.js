// One letter: where it came from, why it failed, what became of it, its bytes as text, JSON or in hexadecimal; given back or dropped from here.
import { useAnswer } from "../../api.js";
import { age, bytes as size, cell, time } from "../../format.js";
import { html, useMemo, useState } from "../../html.js";
import { href } from "../../location.js";
import { at } from "../../parts/act.js";
import { CopyButton } from "../../parts/copy_button.js";
import { Drawer, Facts, SlicedText } from "../../parts/drawer.js";
import { Answering } from "../../parts/messages.js";
import { Question } from "../../parts/question.js";
import { saveFile } from "../../parts/save_file.js";

/** Bytes in hexadecimal; more of them would hold up the page. */
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

/** A number with its digits, where the browser can. */
const asWritten = (_, value, context) => (typeof value === "number" && JSON.rawJSON && String(value) !== context.source ? JSON.rawJSON(context.source) : value);

/** The forms that these bytes have. */
function forms(octets, message) {
  const found = {};
  if (message) found.message = JSON.stringify(message, null, 2);
  try {
    found.text = new TextDecoder("utf-8", { fatal: true }).decode(octets);
    // Without raw numbers, those of so many digits would be other ones.
    if (JSON.rawJSON || !/\d{16}/.test(found.text)) found.JSON = JSON.stringify(JSON.parse(found.text, asWritten), null, 2);
  } catch {
    // Bytes that are no text, or text that is no JSON, have fewer forms.
  }
  found.hex = hexDump(octets.subarray(0, MOST));
  return found;
}

/** @param {{ hex: string, message: any, type: string | null }} props */
function Payload({ hex, message, type }) {
  const octets = useMemo(() => bytesOf(hex), [hex]);
  const shown = useMemo(() => forms(octets, message), [octets, message]);
  const [chosen, setChosen] = useState(null);
  const form = shown[chosen] === undefined ? ["message", "JSON", "text", "hex"].find((name) => shown[name] !== undefined) : chosen;
  const text = shown[form];
  return html`<section aria-label="Payload"><h3>Payload, ${size(octets.length)}${type ? `, ${type}` : ""}</h3>
    <p class="bar">${Object.keys(shown).map((name) => html`<button aria-pressed=${name === form} onClick=${() => setChosen(name)}>${name}</button>`)}
      <${CopyButton} text=${form === "hex" ? hex : text} title="Copy">copy</${CopyButton}><button class="quiet" onClick=${() => saveFile([octets], "letter.bin")}>save bytes</button></p>
    <${SlicedText} key=${form} text=${text} tag="pre" box=${{ role: "group", "aria-label": "Payload", ...(form === "hex" && { class: "diff" }) }} />
    ${form === "hex" && octets.length > MOST && html`<p class="dim">The first ${size(MOST)}; save the bytes to see all.</p>`}</section>`;
}

const STATE = { open: "nobody has acted on it", waiting: "on its way back to its gear", replayed: "its gear has taken it", dropped: "discarded by an operator" };
const KIND = { gear: "a message that a gear could not handle", message: "bytes on a wire that are no message", telemetry: "telemetry that cannot be decoded", export: "what a collector refused", unknown: "none of the others, such as a row that was refused over HTTP" };

function factsOf(letter) {
  return [
    ["State", html`<strong>${letter.state}</strong>: ${STATE[letter.state]}`],
    ["Reason", html`<span class="bad">${letter.reason}</span>`],
    ["Can go back", letter.replayable ? "yes" : html`no: ${letter.why_not}`],
    ["Note", letter.note],
    ["Kind", `${letter.kind}: ${KIND[letter.kind] || ""}`],
    ["Place", [letter.rack, letter.gear, letter.port].filter(Boolean).join(".") + (letter.way ? `, ${letter.way === "in" ? "as it arrived" : "as it was to leave"}` : "")],
    ["Came by", letter.from && html`<code>${letter.from}</code>`],
    ["Subject", html`<code>${letter.subject}</code>`],
    ["Stored", `${time(letter.ts)}, ${age(letter.ts)}`],
    ["Tries", [letter.attempts, letter.replays ? `replayed ${letter.replays} times before` : ""].filter(Boolean).join(", ")],
    ["Before, it was", letter.replay_of && html`<a href=${href("dead-letters", { letter: letter.replay_of, state: "all" })}><code>${letter.replay_of}</code></a>`],
    ["Acted on", letter.changed && `${time(letter.changed)} by ${letter.changed_by || "?"}`],
    ["Signal", letter.flux_id && html`<a href=${href("signal", { flux_id: letter.flux_id })}><code>${letter.flux_id}</code></a>`],
    ["Trace", letter.trace_id && html`<a href=${href("traces", { trace_id: letter.trace_id })}><code>${letter.trace_id}</code></a>`],
  ];
}

/** @param {{ id: string, offers: boolean, act: (action: any) => void, close: () => void }} props */
export function LetterDrawer({ id, offers, act, close }) {
  const answer = useAnswer(at("/api/v1/dlq", id));
  const letter = answer.data?.data;
  const again = letter && (letter.state === "replayed" || letter.state === "dropped");
  const headers = Object.entries(letter?.headers || {});
  return html`<${Drawer} title=${`Letter ${id.slice(0, 12)}`} close=${close}>
    <${Answering} answer=${answer} what="Asking for the letter" />
    ${letter && html`
      ${offers && html`<p class="bar"><button disabled=${!letter.replayable} onClick=${() => act({ verb: "replay", ids: [id], again })}>${again ? "Replay again…" : "Replay…"}</button>
        ${letter.state !== "dropped" && html`<button class="danger" onClick=${() => act({ verb: "drop", ids: [id] })}>Drop…</button>`}
        ${!letter.replayable && html`<span class="dim">It cannot be replayed: ${letter.why_not}</span>`}</p>`}
      <${Facts} facts=${factsOf(letter)} />
      <${Payload} hex=${letter.payload} message=${letter.message} type=${letter.content_type} />
      ${headers.length > 0 && html`<section aria-label="Headers"><h3>What came with it</h3><${Facts} facts=${headers.map(([name, value]) => [html`<code>${name}</code>`, cell(value)])} /></section>`}
      <${Question} path=${at("/api/v1/dlq", id)} command=${`platform dlq show ${id}`} />`}
  </${Drawer}>`;
}
