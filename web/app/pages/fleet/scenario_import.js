// Stores a scenario: its text typed, pasted or from a file; faults with their lines.
import { ApiError } from "../../api.js";
import { html, useState } from "../../html.js";
import { act } from "../../parts/act.js";
import { Field } from "../../parts/field.js";
import { ErrorBox } from "../../parts/messages.js";

const EXAMPLE = `meta: { name: press, version: "1" }
racks: [ { name: press-1 } ]
gears:
  - { name: numbers, type: generator, deploy: press-1, config: { rate: 1 } }
`;
/** What the Mixer takes. */
const MOST = 4 * 1_024 * 1_024;

export function Import({ done }) {
  const [text, setText] = useState("");
  const [replace, setReplace] = useState(false);
  const [state, setState] = useState({ busy: false, error: null });
  const lines = state.error?.errors?.filter(({ line }) => line) || [];
  const submit = async (event) => {
    event.preventDefault();
    if (!text.trim()) return setState({ busy: false, error: new ApiError(0, { detail: "there is no text yet: paste a scenario or choose its file" }) });
    setState({ busy: true, error: null });
    return act("/api/v1/scenarios", { params: { replace: replace || null }, body: text, type: "application/yaml" }).then(({ data }) => done(data), (error) => setState({ busy: false, error }));
  };
  const pick = async (event) => {
    const [file] = event.currentTarget.files;
    if (!file) return;
    if (file.size > MOST) setState({ busy: false, error: new ApiError(413, { detail: "a scenario has 4 MiB at most" }) });
    else setText(await file.text());
  };
  const goTo = ({ line, column }) => {
    const field = document.getElementById("scenario-text")?.querySelector("textarea");
    const start = text.split("\n").slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + column - 1;
    field.focus();
    field.setSelectionRange(start, start + 1);
  };
  return html`<form class="form" onSubmit=${submit} aria-label="Import a scenario">
    <${Field} label="File" help="A YAML file of up to 4 MiB">${(attributes) => html`<input ...${attributes} type="file" accept=".yaml,.yml" onChange=${pick} />`}</${Field}>
    <div id="scenario-text"><${Field} label="Text" help=${html`Checked as by <code>platform scenario validate</code>; storing it runs nothing`} fault=${lines.length ? `${lines.length} ${lines.length === 1 ? "fault" : "faults"}, listed below` : ""}>
      ${(attributes) => html`<textarea ...${attributes} class="code" rows="12" spellcheck="false" placeholder=${EXAMPLE} value=${text} onInput=${(event) => setText(event.currentTarget.value)}></textarea>`}</${Field}></div>
    ${lines.length > 0 ? html`<ul>${lines.map((fault) => html`<li><button type="button" class="quiet bad" onClick=${() => goTo(fault)}>${fault.line}:${fault.column}</button> ${fault.detail}</li>`)}</ul>` : html`<${ErrorBox} error=${state.error} />`}
    <label><input type="checkbox" checked=${replace} onChange=${(event) => setReplace(event.currentTarget.checked)} /> Replace another text that has this name and version; what runs does not change</label>
    <p class="bar"><button class="primary" disabled=${state.busy}>Check and store</button></p>
  </form>`;
}
