// A statement taken elsewhere: its whole answer as a file, and the statement as a link, curl and a command.
import { open } from "../api.js";
import { bytes } from "../format.js";
import { html } from "../html.js";
import { ErrorBox, Waiting } from "./messages.js";
import { Question, quoted } from "./question.js";
import { saveFile } from "./save_file.js";
import { bodyOf, valueOf } from "./sql_statement.js";
import { useJob } from "./work.js";

/** Bytes that are put aside together, and of a file. */
const [PART, MOST] = [8 << 20, 1 << 30];
const FORMATS = [["CSV", "text/csv", "csv"], ["NDJSON", "application/x-ndjson", "ndjson"], ["Arrow", "application/vnd.apache.arrow.stream", "arrows"]];

/** The command; it takes no lists as parameters, so a statement with one has none. */
function commandOf(asked) {
  const given = Object.entries(asked.given);
  if (given.some(([, typed]) => Array.isArray(valueOf(typed)))) return null;
  const { query } = bodyOf(asked);
  return ["platform sql", `--limit ${asked.limit}`, ...given.map(([name, typed]) => `-p ${quoted(`${name}=${typed}`)}`), query.startsWith("-") ? "--" : "", quoted(query)].filter(Boolean).join(" ");
}

/** The question of this page as text, and the ways to ask it elsewhere. @param {{ asked: import("./sql_statement.js").Asked }} props */
export function SqlQuestion({ asked }) {
  const body = bodyOf(asked, asked.limit);
  return html`<${Question} path="/api/v1/sql" body=${body} text=${`POST /api/v1/sql ${JSON.stringify(body).slice(0, 400)}`} command=${commandOf(asked)} />`;
}

async function download(asked, [, accept, ending], signal, progress) {
  const response = await open("/api/v1/sql", { method: "POST", body: bodyOf(asked), accept, signal });
  /** @type {[any[], any]} */
  let [parts, reader] = [[], response.body.getReader()];
  // The browser may put a blob aside; bytes stay in memory.
  const files = [];
  for (let [total, put] = [0, 0]; ; ) {
    const { value, done } = await reader.read();
    if (done) break;
    parts.push(value);
    progress((total += value.length));
    if (total > MOST) {
      reader.cancel().catch(() => {});
      throw new Error("the answer is larger than 1 GiB, and was not saved: bound ts to fewer rows, or take the command");
    }
    if (total - put < PART) continue;
    files.push(new Blob(parts));
    [parts, put] = [[], total];
  }
  saveFile([...files, ...parts], `platform-${new Date().toISOString().slice(0, 19).replace(/\D/g, "")}.${ending}`, accept);
  return response.headers.get("x-partial");
}

/** Buttons that save all rows, not only those that are shown. @param {{ asked: import("./sql_statement.js").Asked }} props */
export function SqlExport({ asked }) {
  const { run, stop, value: partial, progress, error } = useJob();
  const broken = error instanceof TypeError && { message: "the answer broke off before its end, and was not saved: run the export again, or bound ts to fewer rows" };
  return html`<span class="bar" role="group" aria-label="Export all rows">
      ${progress !== null ? html`<${Waiting} what=${`Export, ${bytes(progress)}`} cancel=${stop} />`
        : html`export ${FORMATS.map((/** @type {any} */ format) => html`<button title=${`Save all rows as ${format[0]}`} onClick=${() => run((signal, tell) => download(asked, format, signal, tell))}>${format[0]}</button>`)}`}
    </span>
    ${partial && html`<p class="bad" role="alert">The file has not all rows: ${partial}</p>`}
    <${ErrorBox} error=${broken || error} />`;
}
