// Invites, by which a Rack joins at once: made for one name and some time, their text shown once, revoked while they are open.
import { useAnswer } from "../../api.js";
import { age, time } from "../../format.js";
import { html, useState } from "../../html.js";
import { act, at, Awaited } from "../../parts/act.js";
import { Confirm } from "../../parts/confirm.js";
import { Field } from "../../parts/field.js";
import { EmptyState, ErrorBox, Waiting } from "../../parts/messages.js";
import { Question } from "../../parts/question.js";
import { Secret } from "../../parts/secret.js";

const NAME = /^[A-Za-z0-9_-]{1,64}$/;
const AGE = /^[1-9][0-9]{0,5}(s|m|h|d)$/;

function Create({ done, close }) {
  const [form, setForm] = useState({ name: "", expires_in: "1h" });
  const set = (key) => (event) => setForm({ ...form, [key]: event.currentTarget.value.trim() });
  const name = !form.name || NAME.test(form.name) ? "" : "1 to 64 letters, digits, _ and -";
  const expires = AGE.test(form.expires_in) ? "" : "write it like 30m, 1h or 7d; 30 days at most";
  return html`<${Confirm} title="Invite a Rack" action="Make the invite" ready=${form.name && !name && !expires} run=${(signal) => act("/api/v1/invites", { body: form, signal })} done=${done} close=${close}>
    <p>Whoever has its text may admit one Rack under this name, with no approval. It takes the place of an open invite for the name.</p>
    <${Field} label="Name of the Rack" help="Its name in scenarios" fault=${name}>${(attributes) => html`<input ...${attributes} required spellcheck="false" autocomplete="off" value=${form.name} onInput=${set("name")} />`}</${Field}>
    <${Field} label="Good for" help="30 days at most" fault=${expires}>${(attributes) => html`<input ...${attributes} value=${form.expires_in} onInput=${set("expires_in")} />`}</${Field}>
  </${Confirm}>`;
}

export function Invites({ say }) {
  const answer = useAnswer("/api/v1/invites");
  const [doing, setDoing] = useState(null);
  const [made, setMade] = useState(null);
  const invites = answer.data?.data;
  const end = (text) => {
    setDoing(null);
    answer.again();
    say(text);
  };
  const created = ({ data, awaited }) => {
    if (!awaited) setMade(data);
    end(awaited ? html`<${Awaited} awaited=${awaited} />` : html`<p>An invite for ${data.name} is made.</p>`);
  };
  return html`<p class="bar"><button onClick=${() => setDoing({ create: true })}>Invite a Rack…</button><${Question} path="/api/v1/invites" params=${{}} command="platform racks invites" /></p>
    ${made && html`<${Secret} secret=${made.invite} what=${`The invite for ${made.name}`} clear=${() => setMade(null)}>On the machine of the Rack: <code>platform join</code> with this text, then <code>platform</code>.</${Secret}>`}
    <${ErrorBox} error=${answer.error} again=${answer.again} />
    ${!invites ? answer.loading && html`<${Waiting} what="Asking for the invites" />` : !invites.length ? html`<${EmptyState} command="platform racks invite press-1">No invite was made. With one, a Rack joins at once:</${EmptyState}>`
      : html`<div class="scroll" tabindex="0"><table><thead><tr><th>Rack</th><th>State</th><th>Made</th><th>Expires</th><th>Used by</th><th><span class="hidden">Action</span></th></tr></thead><tbody>
        ${invites.slice(0, 500).map((invite) => html`<tr key=${invite.id}><td>${invite.name}</td><td>${invite.state}</td><td>${age(invite.created)} by ${invite.created_by}</td><td>${time(invite.expires)}</td>
          <td>${invite.used_by && html`<code>${invite.used_by}</code> ${age(invite.used)}`}</td>
          <td>${invite.state === "open" && html`<button aria-label=${`Revoke the invite for ${invite.name}`} onClick=${() => setDoing({ revoke: invite })}>Revoke…</button>`}</td></tr>`)}</tbody></table></div>`}
    ${doing?.create && html`<${Create} done=${created} close=${() => setDoing(null)} />`}
    ${doing?.revoke && html`<${Confirm} title=${`Revoke the invite for ${doing.revoke.name}`} action="Revoke" danger run=${(signal) => act(at("/api/v1/invites", doing.revoke.id, "revoke"), { signal })} close=${() => setDoing(null)} done=${() => end(html`<p>The invite for ${doing.revoke.name} is revoked.</p>`)}><p>Nobody can join with it any more.</p></${Confirm}>`}`;
}
