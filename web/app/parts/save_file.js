// Gives the browser a file to save: parts that are there, or a list of the API, asked for page by page, so that no answer is too large.
import { open } from "../api.js";

/** @param {BlobPart[]} parts @param {string} name @param {string} [type] */
export function saveFile(parts, name, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name.replace(/[^\w.-]+/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

const PAGE = 10_000;

/** What is asked for, and how an answer becomes a part of the file. */
export const FORMATS = {
  csv: { type: "text/csv", part: (text, at) => (at ? text.slice(text.indexOf("\n") + 1) : text), end: "" },
  ndjson: { type: "application/x-ndjson", part: (text) => text, end: "" },
  json: { type: "application/json", asked: "ndjson", part: (text, at) => (at ? ",\n" : "[\n") + text.trimEnd().replaceAll("\n", ",\n"), end: "\n]\n" },
};

/**
 * Has all rows of a question saved, but for those after `most`.
 * @param {{ path: string, params: Record<string, any> }} question @param {{ name: string, format: string, most?: number }} file
 * @param {AbortSignal} signal @param {(rows: number) => void} tell how many rows have come
 * @returns {Promise<{ rows: number, isCut: boolean, partial: string }>} `partial`: why rows are missing
 */
export async function savePages({ path, params }, { name, format, most = Infinity }, signal, tell) {
  const { type, asked = format, part, end } = FORMATS[format];
  /** @type {[any[], Set<any>]} */
  const [parts, partial] = [[], new Set()];
  let [cursor, rows] = [null, 0];
  do {
    const response = await open(path, { params: { ...params, limit: PAGE, cursor, format: asked }, accept: "*/*", signal });
    const told = (header) => response.headers.get(header);
    // The browser may put a blob aside; texts stay in memory.
    parts.push(new Blob([part(await response.text(), parts.length)]));
    if (told("x-partial")) partial.add(told("x-partial"));
    cursor = told("x-next-cursor");
    rows += JSON.parse(told("x-query-stats")).rows;
    tell(rows);
  } while (cursor && rows < most);
  saveFile([...parts, end], `${name}.${format}`, type);
  return { rows, isCut: Boolean(cursor), partial: [...partial].join("; ") };
}
