// API tokens: who has which roles and until when; made with the secret shown once, revoked at once.
import { useAnswer } from "../../api.js";
import { age, time } from "../../format.js";
import { html, useLayoutEffect, useRef, useState } from "../../html.js";
import { change, changeBy, href, hrefHere, toggled } from "../../location.js";
import { act, at, Confirm, Said } from "../../parts/act.js";
import { ColumnList } from "../../parts/column_list.js";
import { CopyButton } from "../../parts/copy_button.js";
import { Drawer, Facts } from "../../parts/drawer.js";
import { Field } from "../../parts/field.js";
import { Answering, EmptyState } from "../../parts/messages.js";
import { Question } from "../../parts/question.js";
import { ageOf } from "../../time_range.js";

const ROLES = [
  ["monitor", "reads metrics and health"],
  ["reader", "reads telemetry, Racks, scenarios by name"],
  ["ingester", "stores telemetry, nothing else"],
  ["author", "imports and deletes scenarios"],
  ["operator", "admits and operates Racks, activates, handles letters"],
  ["auditor", "reads the audit log"],
  ["admin", "everything"],
];
const TABLES = ["logs", "traces", "metrics", "messages", "dead_letters"];
const EMPTY = { name: "", roles: ["reader"], tables: [], entities: "", rack: "", expires: "90d" };

/** What is wrong, by field. */
function faultsOf({ name, roles, entities, rack, expires }) {
  const listed = words(entities);
  return {
    name: !name || /^[A-Za-z0-9_-]{1,64}$/.test(name) ? "" : "1 to 64 letters, digits, _ and -",
    roles: roles.length ? "" : "choose a role at least",
    entities: listed.length > 256 ? "256 at most" : listed.some((one) => one.length > 255) ? "255 characters each at most" : "",
    rack: !rack || /^[A-Za-z0-9_-]{1,64}=.*$/.test(rack) ? "" : "one label, written key=value",
    expires: !expires || ageOf(expires) > 0 ? "" : "write it like 90m, 1h30m or 90d; leave it empty for no end",
  };
}

const words = (text) => text.split(/[\s,]+/).filter(Boolean);

function bodyOf({ name, roles, tables, entities, rack, expires }) {
  const [key, value] = rack.split(/=(.*)/s);
  const scope = {};
  if (tables.length) scope.tables = tables;
  if (words(entities).length) scope.entities = words(entities);
  if (rack) scope.racks = { [key]: value };
  return { name, roles, scope, expires_in: expires || null };
}

function Choices({ legend, choices, chosen, set, fault }) {
  return html`<fieldset><legend>${legend}</legend>
    ${choices.map(([name, title]) => html`<label title=${title}><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => set(toggled(chosen, name))} /> ${name}${title ? html` <span class="dim">${title}</span>` : ""}</label>`)}
    ${fault && html`<span class="bad" role="alert">${fault}</span>`}</fieldset>`;
}

function NewToken({ done, close }) {
  const [form, setForm] = useState(EMPTY);
  const faults = faultsOf(form);
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const text = (key, label, help, required = false) => html`<${Field} label=${label} help=${help} fault=${faults[key]} required=${required} value=${form[key]} onInput=${(event) => set(key)(event.currentTarget.value.trimStart())} />`;
  const ready = form.name !== "" && Object.values(faults).every((fault) => !fault);
  return html`<${Confirm} title="New token" action="Make the token" ready=${ready} run=${(signal) => act("/api/v1/tokens", { body: bodyOf(form), signal })} done=${done} close=${close}>
    ${text("name", "Name", "What or who uses it: grafana, anna", true)}
    <${Choices} legend="Roles" choices=${ROLES} chosen=${form.roles} set=${set("roles")} fault=${faults.roles} />
    <${Choices} legend="Only these tables" choices=${TABLES.map((name) => [name, ""])} chosen=${form.tables} set=${set("tables")} />
    ${text("entities", "Only these entities", "Names or ids, with spaces between; empty for all")}
    ${text("rack", "Only Racks with the label", "site=lyon; empty for all. Nothing that concerns the whole fleet may be done then")}
    ${text("expires", "Expires after", form.expires ? "Then it opens nothing" : "It never ends: somebody has to revoke it")}
  </${Confirm}>`;
}

/** A secret that is shown once, in memory of this view only, with a way to copy it. @param {{ secret: string, what: string, clear: () => void, children?: any }} props */
function Secret({ secret, what, clear, children }) {
  const box = useRef(null);
  useLayoutEffect(() => box.current.focus(), []);
  return html`<div class="said" role="group" aria-label=${what} tabindex="-1" ref=${box}><div>
    <p><strong>${what}: shown now and never again.</strong> ${children}</p>
    <pre><code>${secret}</code></pre><${CopyButton} text=${secret} title="Copy the secret">Copy</${CopyButton}>
    <button onClick=${clear}>I have it: forget it</button></div></div>`;
}

/** `press-1 press-2, tables logs`. */
function scopeText({ entities = [], tables = [], racks = {} }) {
  const parts = [tables.length && `tables ${tables.join(" ")}`, entities.length && `entities ${entities.join(" ")}`, Object.keys(racks).length && `Racks ${Object.entries(racks).map(([key, value]) => `${key}=${value}`).join(" ")}`];
  return parts.filter(Boolean).join(", ") || "everything";
}

const ends = ({ expires }) => !expires ? "never" : Date.parse(expires) < Date.now() ? "expired" : age(expires);

const COLUMNS = [
  { field: "name", title: "Token", width: 170 },
  { title: "Roles", width: 170, cell: ({ roles }) => roles.join(", ") },
  { title: "Limited to", width: 240, cell: ({ scope }) => scopeText(scope) },
  { title: "Expires", width: 120, cell: (token) => html`<span class=${token.expires ? "" : "bad"}>${ends(token)}</span>`, hint: ({ expires }) => time(expires) },
  { title: "Last used", width: 120, cell: ({ last_used }) => (last_used ? age(last_used) : "never"), hint: ({ last_used }) => time(last_used) },
  { field: "created_by", title: "Made by", width: 280 },
  { title: "Made", width: 120, cell: ({ created }) => age(created), hint: ({ created }) => time(created) },
  { field: "id", title: "Id", width: 140 },
];

function TokenDrawer({ token, wanted, close, revoke }) {
  if (!token) return html`<${Drawer} title="Not found" close=${close}><p>There is no token ${wanted}: it was revoked, or has another name.</p></${Drawer}>`;
  const quotas = Object.entries(token.quotas || {}).filter(([, value]) => value !== null);
  const ofFile = token.created_by === "api.tokens_file";
  return html`<${Drawer} title=${token.name} close=${close}>
    <p class="bar">${ofFile ? html`<span class="dim">It stands in <code>api.tokens_file</code>: take it out of there.</span>` : html`<button class="danger" onClick=${revoke}>Revoke…</button>`}
      <a href=${href("security", { view: "audit", q: token.id })}>what was done with it</a></p>
    <${Facts} facts=${[
      ["Id", html`<code>${token.id}</code>`], ["Roles", token.roles.join(", ")], ["Limited to", scopeText(token.scope)],
      ["Quotas", quotas.map(([name, value]) => `${name}=${value}`).join(", ") || "those of the Mixer"],
      ["Expires", token.expires ? `${time(token.expires)}, ${ends(token)}` : "never: give tokens an end"],
      ["Last used", token.last_used ? `${time(token.last_used)}, ${age(token.last_used)}` : "never"],
      ["Made", `${time(token.created)} by ${token.created_by}`],
    ]} /></${Drawer}>`;
}

export function Tokens({ params }) {
  const answer = useAnswer("/api/v1/tokens");
  const [doing, setDoing] = useState(null);
  const [made, setMade] = useState(null);
  const [said, setSaid] = useState(null);
  const text = (params.get("q") || "").toLowerCase();
  const tokens = answer.data?.data;
  const rows = (tokens || []).filter((token) => !text || [token.name, token.id, token.created_by, ...token.roles].some((value) => value.toLowerCase().includes(text)));
  const wanted = params.get("token");
  const open = tokens?.find(({ id, name }) => id === wanted || name === wanted);
  const end = (what) => {
    setSaid(what);
    answer.again();
  };
  return html`<div class="bar"><button onClick=${() => setDoing("create")}>New token…</button>
      <input type="search" data-search aria-label="Text" placeholder="name, role, who made it" value=${params.get("q") || ""} onInput=${changeBy("q", true)} />
      <${Question} path="/api/v1/tokens" command="platform token list" /></div>
    ${made && html`<${Secret} secret=${made.token} what=${`The secret of ${made.name}`} clear=${() => setMade(null)}>It goes into <code>Authorization: Bearer</code>, or into the password of a PostgreSQL client with the user ${made.name}.</${Secret}>`}
    <${Said} said=${said} clear=${() => setSaid(null)} />
    <${Answering} answer=${answer} what="Asking for the tokens" />
    ${!tokens ? "" : !tokens.length ? html`<${EmptyState} command="platform token create grafana --role reader --expires-in 90d">No token was made. Local users need none where api.auth is "auto"; everybody else does:</${EmptyState}>`
      : html`<div class="list"><${ColumnList} label="Tokens" columns=${COLUMNS} rows=${rows} keyOf=${({ id }) => id} to=${({ id }) => hrefHere({ token: id })} opened=${open?.id} /></div>`}
    ${wanted && tokens && html`<${TokenDrawer} key=${wanted} token=${open} wanted=${wanted} close=${() => change({ token: null })} revoke=${() => setDoing(open)} />`}
    ${doing === "create" && html`<${NewToken} close=${() => setDoing(null)} done=${({ data }) => {
      setMade(data);
      end(null);
    }} />`}
    ${doing?.id && html`<${Confirm} title=${`Revoke ${doing.name}`} action="Revoke" danger typed=${doing.name} run=${(signal) => act(at("/api/v1/tokens", doing.id, "revoke"), { signal })} close=${() => setDoing(null)} done=${() => {
      change({ token: null });
      end(html`<p>${doing.name} is revoked: it opens nothing any more.</p>`);
    }}><p>For ever, and at once: its requests, live tails, taps and PostgreSQL sessions end. It was last used ${doing.last_used ? age(doing.last_used) : "never"}.</p></${Confirm}>`}`;
}
