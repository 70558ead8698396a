// Replays or drops letters: first what it would do, then the confirmation, then what became of each.
import { ApiError, request, useAnswer } from "../../api.js";
import { count } from "../../format.js";
import { html } from "../../html.js";
import { href } from "../../location.js";
import { act, at, Confirm } from "../../parts/act.js";
import { ErrorBox, Waiting } from "../../parts/messages.js";

/** How long the Mixer waits for the gears. */
const WAIT = "10s";
/** Letters of which each is looked at afterwards. */
const EACH = 20;

/** Some letters, with what is said of each. */
const listed = (letters, say) => html`<ul>${letters.map((letter) => html`<li><a href=${href("dead-letters", { letter: letter.id, state: "all" })}><code>${letter.id.slice(0, 16)}</code></a> ${say(letter)}</li>`)}</ul>`;

function Refused({ came }) {
  if (!came.refused_total) return null;
  return html`<p class="bad">${count(came.refused_total)} cannot be:</p>${listed(came.refused.slice(0, EACH), ({ reason }) => reason)}`;
}

function Counts({ came, verb }) {
  const parts = [`${count(came.matched)} meant`, `${count(came.changed)} ${came.dry_run ? "would change" : "changed"}`];
  if (came.already) parts.push(`${count(came.already)} ${verb === "drop" ? "dropped" : "replayed"} already`);
  if (came.replayed) parts.push(`${count(came.replayed)} taken by their gear`);
  if (came.waiting) parts.push(`${count(came.waiting)} wait for their gear`);
  if (came.dropped && verb === "drop") parts.push(`${count(came.dropped)} dropped`);
  return html`<p>${parts.join(", ")}.</p>${came.partial && html`<p class="bad">There may be more: ${came.partial}</p>`}`;
}

/** @param {{ verb: "replay" | "drop", ids: string[] | null, filter?: any, by: string, again?: boolean, done: (said: any) => void, close: () => void }} props */
export function LettersAction({ verb, ids, filter, by, again, done, close }) {
  /** @type {any} */
  const wish = { ...(ids ? { ids } : { filter }), by: by.slice(0, 128) };
  if (verb === "replay" && again) wish.again = true;
  const path = `/api/v1/dlq/${verb}`;
  const dry = useAnswer(path, {}, { method: "POST", body: { ...wish, dry_run: true } });
  const would = dry.data?.data;
  const run = async (signal) => {
    // Letters that came late, from a Rack that was away, were not rehearsed.
    const { data: now } = await request(path, { method: "POST", body: { ...wish, dry_run: true }, signal });
    if (now.changed !== would.changed || now.matched !== would.matched) {
      dry.again();
      throw new ApiError(409, { detail: `other letters are meant by now: it would change ${count(now.changed)}, not ${count(would.changed)}. Nothing was changed; look again` });
    }
    const { data } = await act(path, { signal, body: verb === "replay" ? { ...wish, wait: WAIT } : wish });
    const looked = (ids || []).slice(0, EACH).map((id) => request(at("/api/v1/dlq", id), { signal }).then((answer) => answer.data, () => null));
    return { came: data, letters: (await Promise.all(looked)).filter(Boolean) };
  };
  const action = verb === "replay" ? "Replay" : "Drop";
  const means = verb === "replay" ? "Each goes back to the gear and port where it failed, and nowhere else, in the order in which they failed. Mend the cause first, or they come back as new letters."
    : "They are marked as dropped, and stay as rows until rotation removes them.";
  const end = ({ came, letters }) => done(html`<strong>${action}:</strong><${Counts} came=${came} verb=${verb} /><${Refused} came=${came} />${letters.length > 0 && listed(letters, ({ state, note }) => `${state}${note ? `: ${note}` : ""}`)}`);
  return html`<${Confirm} title=${ids ? `${action} ${ids.length === 1 ? "a letter" : `${ids.length} letters`}` : `${action} all letters that the filters mean`} action=${would ? `${action} ${count(would.changed)}` : action}
    danger=${verb === "drop"} typed=${!ids && verb === "drop" && would ? String(would.changed) : undefined} ready=${would?.changed > 0} run=${run} done=${end} close=${close}>
    <p>${means}</p>
    ${!ids && html`<p>Filters: ${Object.entries(filter).map(([key, value]) => html`<code>${key}=${value}</code> `)}</p>`}
    <${ErrorBox} error=${dry.error} again=${dry.again} />
    ${dry.loading && html`<${Waiting} what="Asking what it would do" />`}
    ${would && html`<${Counts} came=${would} verb=${verb} /><${Refused} came=${would} />`}
  </${Confirm}>`;
}
