// The form of a new token: name, roles, what it is limited to, how long it opens anything.
import { html, useState } from "../../html.js";
import { act } from "../../parts/act.js";
import { Confirm } from "../../parts/confirm.js";
import { Field } from "../../parts/field.js";

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
    expires: !expires || /^[1-9][0-9]{0,5}(s|m|h|d)$/.test(expires) ? "" : "write it like 12h or 90d; leave it empty for no end",
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
  const toggle = (name) => set(chosen.includes(name) ? chosen.filter((other) => other !== name) : [...chosen, name]);
  return html`<fieldset><legend>${legend}</legend>
    ${choices.map(([name, title]) => html`<label title=${title}><input type="checkbox" checked=${chosen.includes(name)} onChange=${() => toggle(name)} /> ${name}${title ? html` <span class="dim">${title}</span>` : ""}</label>`)}
    ${fault && html`<span class="bad" role="alert">${fault}</span>`}</fieldset>`;
}

export function NewToken({ done, close }) {
  const [form, setForm] = useState(EMPTY);
  const faults = faultsOf(form);
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const text = (key, label, help, more = {}) => html`<${Field} label=${label} help=${help} fault=${faults[key]}>
    ${(attributes) => html`<input ...${attributes} ...${more} autocomplete="off" spellcheck="false" value=${form[key]} onInput=${(event) => set(key)(event.currentTarget.value.trimStart())} />`}</${Field}>`;
  const ready = form.name !== "" && Object.values(faults).every((fault) => !fault);
  return html`<${Confirm} title="New token" action="Make the token" ready=${ready} run=${(signal) => act("/api/v1/tokens", { body: bodyOf(form), signal })} done=${done} close=${close}>
    ${text("name", "Name", "What or who uses it: grafana, anna", { required: true })}
    <${Choices} legend="Roles" choices=${ROLES} chosen=${form.roles} set=${set("roles")} fault=${faults.roles} />
    <${Choices} legend="Only these tables" choices=${TABLES.map((name) => [name, ""])} chosen=${form.tables} set=${set("tables")} />
    ${text("entities", "Only these entities", "Names or ids, with spaces between; empty for all")}
    ${text("rack", "Only Racks with the label", "site=lyon; empty for all. Nothing that concerns the whole fleet may be done then")}
    ${text("expires", "Expires after", form.expires ? "Then it opens nothing" : "It never ends: somebody has to revoke it")}
  </${Confirm}>`;
}
