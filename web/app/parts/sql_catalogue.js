// What a statement can name, as the Mixer lists it: tables with their columns, and functions; and what of it fits before the caret.
import { useAnswer } from "../api.js";
import { useMemo, useState } from "../html.js";
import { KEYWORDS, tablesOf } from "./sql_tokens.js";

/** How long a catalogue is believed, ms. */
const FRESH = 60_000;
/** So many are offered at most. */
const MOST = 50;
const COMMON = new Set(["count", "avg", "sum", "min", "max", "now", "time_bucket"]);
const SCHEMA = ["tables", "columns", "routines"].map((name) => `information_schema.${name}`);
const COLUMNS = "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns";
const FUNCTIONS = "SELECT DISTINCT routine_name FROM information_schema.routines";

/** @typedef {{ tables: Map<string, { name: string, type: string }[]>, functions: string[] }} Catalogue */

/** @type {{ at: number, catalogue: Catalogue | null }} */
let known = { at: -Infinity, catalogue: null };

/** The names of types as answers have them. */
function typeName(arrow) {
  const names = { Utf8: "text", Float64: "double", Float32: "real", Int64: "bigint", Int32: "integer", Boolean: "boolean", Binary: "blob" };
  if (arrow.startsWith("Timestamp")) return arrow.includes(",") ? "timestamptz" : "timestamp";
  return arrow.startsWith("FixedSizeBinary(16") ? "uuid" : names[arrow] || arrow;
}

/** @returns {Catalogue} */
function catalogueOf(columns, functions) {
  /** @type {Map<string, any>} */
  const tables = new Map(SCHEMA.map((name) => [name, []]));
  for (const { table_schema: schema, table_name: table, column_name: name, data_type: type } of columns) {
    const key = schema === "public" ? table : `${schema}.${table}`;
    if (!tables.has(key)) tables.set(key, []);
    tables.get(key).push({ name, type: typeName(type) });
  }
  return { tables, functions: functions.map(({ routine_name: name }) => name).sort() };
}

/** The catalogue, the last one while it is asked again; null while none is known. Without it, keywords are offered. @returns {Catalogue | null} */
export function useCatalogue() {
  const [path] = useState(Date.now() - known.at < FRESH ? null : "/api/v1/sql");
  const [columns, functions] = [COLUMNS, FUNCTIONS].map((query) => useAnswer(path, {}, { method: "POST", body: { query } }).data?.data);
  return useMemo(() => {
    if (columns && functions) known = { at: Date.now(), catalogue: catalogueOf(columns, functions) };
    return known.catalogue;
  }, [columns, functions]);
}

/** How well a name fits what is typed: 0 not at all, more is better. */
function fit(name, typed) {
  const lower = name.toLowerCase();
  if (lower.startsWith(typed)) return COMMON.has(lower) ? 3 : 2;
  return typed.length > 1 && lower.includes(`_${typed}`) ? 1 : 0;
}

function columnsOf(catalogue, names) {
  const seen = new Map();
  for (const table of names) {
    for (const { name, type } of catalogue.tables.get(table) || []) if (!seen.has(name)) seen.set(name, { name, kind: "column", note: `${type} · ${table}` });
  }
  return [...seen.values()];
}

function candidates(catalogue, all, before, qualifier) {
  const named = tablesOf(all);
  const tables = [...(catalogue?.tables.keys() || [])].map((name) => ({ name, kind: "table", note: "table" }));
  if (qualifier) {
    const inside = tables.filter(({ name }) => name.startsWith(`${qualifier}.`)).map((table) => ({ ...table, name: table.name.slice(qualifier.length + 1) }));
    return catalogue ? [...columnsOf(catalogue, [named.get(qualifier) || qualifier]), ...inside] : [];
  }
  const keywords = KEYWORDS.map((name) => ({ name, kind: "keyword", note: "keyword" }));
  if (/^(FROM|JOIN)$/i.test(before)) return [...tables, ...keywords];
  const used = [...named.values()];
  const columns = catalogue ? columnsOf(catalogue, used.length ? used : [...catalogue.tables.keys()]) : [];
  const functions = (catalogue?.functions || []).map((name) => ({ name, kind: "function", note: "function" }));
  return [...columns, ...tables, ...keywords, ...functions];
}

/**
 * What can stand at the caret.
 * @param {import("./sql_tokens.js").Token[]} all the tokens of the statement  @param {boolean} asked by a key: nothing must be typed yet
 * @returns {{ from: number, to: number, offers: { name: string, kind: string, note: string }[] } | null}
 */
export function complete(catalogue, all, caret, asked) {
  const at = all.findIndex((token) => token.at < caret && caret <= token.at + token.text.length);
  const here = all[at];
  if (here && ["string", "comment", "param", "number", "name"].includes(here.kind)) return null;
  const inWord = here && ["word", "keyword", "function"].includes(here.kind);
  const typed = inWord ? here.text.slice(0, caret - here.at) : "";
  const earlier = all.slice(0, inWord ? at : at + 1);
  const dotted = earlier.at(-1)?.text === ".";
  if (!typed && !asked && !dotted) return null;
  const qualifier = dotted ? earlier.at(-2)?.text : "";
  const before = earlier.filter(({ kind }) => kind !== "space").at(-1)?.text || "";
  const offers = candidates(catalogue, all, before, qualifier)
    .map((offer) => ({ ...offer, fit: fit(offer.name, typed.toLowerCase()) }))
    .filter((offer) => offer.fit)
    .sort((a, b) => b.fit - a.fit)
    .slice(0, MOST);
  const lower = typed && typed === typed.toLowerCase();
  for (const offer of offers) if (offer.kind === "keyword" && lower) offer.name = offer.name.toLowerCase();
  if (!offers.length || (!asked && offers[0].name.toLowerCase() === typed.toLowerCase())) return null;
  return { from: caret - typed.length, to: caret, offers };
}
