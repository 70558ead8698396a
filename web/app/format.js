// Values as people read them: times, ages, durations, bytes, counts. Times are local or UTC, by one switch that all of the page obeys.
import { keep, kept } from "./kept.js";

/** Whether times are shown in UTC. */
export const isUtc = () => kept("zone") === "utc";

/** Shows times in UTC, or as the browser's machine has them. */
export function setUtc(utc) {
  keep("zone", utc ? "utc" : "local");
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** `2026-11-30 14:05:09.123`, of a time as the API has it. */
export function time(text) {
  if (!text) return "";
  const at = new Date(text);
  if (Number.isNaN(at.getTime())) return String(text);
  if (!isUtc()) at.setTime(at.getTime() - 60_000 * at.getTimezoneOffset());
  return at.toISOString().slice(0, -1).replace("T", " ");
}

/** `3 s ago`. */
export function age(text) {
  const ms = Date.now() - new Date(text).getTime();
  if (!text || Number.isNaN(ms)) return "";
  return ms < 0 ? `in ${duration(-ms)}` : `${duration(ms)} ago`;
}

/** `350 ms`, `1.2 s`, `3 min 5 s`, of milliseconds. */
export function duration(ms) {
  if (ms === null || ms === undefined || Number.isNaN(Number(ms))) return "";
  if (ms < 1) return `${Number(ms).toPrecision(3)} ms`;
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  /** @type {[number, string][]} */
  const parts = [[86_400_000, "d"], [3_600_000, "h"], [60_000, "min"], [1_000, "s"]];
  const from = parts.findIndex(([unit]) => ms >= unit);
  const [[large, name], [small, of]] = [parts[from], parts[from + 1] || [1, "ms"]];
  const rest = Math.floor((ms % large) / small);
  return `${Math.floor(ms / large)} ${name}${rest ? ` ${rest} ${of}` : ""}`;
}

/** `4.6 GiB`. */
export function bytes(number) {
  if (number === null || number === undefined) return "";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let [value, unit] = [Number(number), 0];
  while (value >= 1_024 && unit < units.length - 1) [value, unit] = [value / 1_024, unit + 1];
  return `${unit === 0 || value >= 100 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** `12,345`; `1.2 M` where there is little room. */
export function count(number, short = false) {
  if (number === null || number === undefined) return "";
  if (!short || Math.abs(number) < 10_000) return Number(number).toLocaleString("en");
  /** @type {[number, string][]} */
  const units = [[1e9, "G"], [1e6, "M"], [1e3, "k"]];
  /** @type {any} */
  const [unit, name] = units.find(([unit]) => Math.abs(number) >= 0.9995 * unit);
  return `${(number / unit).toPrecision(3)} ${name}`;
}

/** A number of a metric. */
export function number(value) {
  if (typeof value !== "number") return String(value ?? "");
  return Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(6)));
}

/** A cell of any type, as one line of text. */
export function cell(value) {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
