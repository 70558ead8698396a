// One letter: where it came from, why it failed, what became of it, its bytes; given back or dropped from here.
import { useAnswer } from "../../api.js";
import { age, cell, time } from "../../format.js";
import { html } from "../../html.js";
import { href } from "../../location.js";
import { at } from "../../parts/act.js";
import { Drawer } from "../../parts/drawer.js";
import { ErrorBox, Waiting } from "../../parts/messages.js";
import { Question } from "../../parts/question.js";
import { Payload } from "./payload.js";

const STATE = { open: "nobody has acted on it", waiting: "on its way back to its gear", replayed: "its gear has taken it", dropped: "discarded by an operator" };
const KIND = { gear: "a message that a gear could not handle", message: "bytes on a wire that are no message", telemetry: "telemetry that cannot be decoded", export: "what a collector refused", unknown: "not known" };

function Facts({ letter }) {
  const facts = [
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
    ["Trace", letter.trace_id && html`<a href=${href("traces", { trace: letter.trace_id })}><code>${letter.trace_id}</code></a>`],
  ];
  return html`<dl class="facts">${facts.filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
}

/** @param {{ id: string, offers: boolean, act: (action: any) => void, close: () => void }} props */
export function LetterDrawer({ id, offers, act, close }) {
  const answer = useAnswer(at("/api/v1/dlq", id));
  const letter = answer.data?.data;
  const again = letter && (letter.state === "replayed" || letter.state === "dropped");
  const headers = Object.entries(letter?.headers || {});
  return html`<${Drawer} title=${`Letter ${id.slice(0, 12)}`} close=${close}>
    <${ErrorBox} error=${answer.error} again=${answer.again} />
    ${!letter ? answer.loading && html`<${Waiting} what="Asking for the letter" cancel=${close} />` : html`
      ${offers && html`<p class="bar"><button disabled=${!letter.replayable} onClick=${() => act({ verb: "replay", ids: [id], again })}>${again ? "Replay again…" : "Replay…"}</button>
        ${letter.state !== "dropped" && html`<button class="danger" onClick=${() => act({ verb: "drop", ids: [id] })}>Drop…</button>`}
        ${!letter.replayable && html`<span class="dim">It cannot be replayed: ${letter.why_not}</span>`}</p>`}
      <${Facts} letter=${letter} />
      <${Payload} hex=${letter.payload} message=${letter.message} type=${letter.content_type} />
      ${headers.length > 0 && html`<section aria-label="Headers"><h3>What came with it</h3><dl class="facts">${headers.map(([name, value]) => html`<dt><code>${name}</code></dt><dd>${cell(value)}</dd>`)}</dl></section>`}
      <${Question} path=${at("/api/v1/dlq", id)} params=${{}} command=${`platform dlq show ${id}`} />`}
  </${Drawer}>`;
}
