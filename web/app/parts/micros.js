// Microseconds: the precision of stored times, which `Date` lacks, and lengths of spans as people read them.
import { duration } from "../format.js";

/** Microseconds since 1970, of a time as the API has it (RFC 3339, UTC). */
export function micros(text) {
  const fraction = text[19] === "." ? Number(text.slice(20, -1).padEnd(6, "0").slice(0, 6)) : 0;
  return Date.parse(`${text.slice(0, 19)}Z`) * 1_000 + fraction;
}

/** A time for the API, of microseconds since 1970. */
export function timeOf(at) {
  const seconds = Math.floor(at / 1e6);
  return `${new Date(seconds * 1_000).toISOString().slice(0, 19)}.${String(Math.floor(at - seconds * 1e6)).padStart(6, "0")}Z`;
}

/** The microsecond of a time, for the API. */
export const moment = (at) => ({ since: timeOf(at), until: timeOf(at + 1) });

/** `8.11 µs`, `43.7 ms`, `1.2 s`, of milliseconds. */
export function precise(ms) {
  if (ms === null || ms === undefined || Number.isNaN(Number(ms))) return "";
  if (Number(ms) === 0) return "0";
  if (ms < 1) return `${Number((ms * 1_000).toPrecision(3))} µs`;
  if (ms < 1_000) return `${Number(Number(ms).toPrecision(3))} ms`;
  return ms < 60_000 ? `${Number((ms / 1_000).toPrecision(3))} s` : duration(ms);
}

/** The part of a time that is shown: `zoom=from..to` of the address, in µs since it began. */
export function zoomOf(params, { start, end }) {
  const [, from, to] = /^(\d+)\.\.(\d+)$/.exec(params.get("zoom") || "") || [];
  return Number(to) > Number(from) ? { start, from: start + Number(from), to: start + Number(to), zoomed: true } : { start, from: start, to: end, zoomed: false };
}

/** The value of `zoom` for a part. */
export const zoomText = (start, from, to) => `${Math.max(0, Math.floor(from - start))}..${Math.ceil(to - start)}`;

/** Round marks from one number to another, about so many. */
export function marks(from, to, about) {
  const raw = (to - from) / about;
  if (!(raw > 0)) return [from];
  const power = 10 ** Math.floor(Math.log10(raw));
  // @ts-expect-error one of them fits
  const step = [1, 2, 5, 10].find((times) => times * power >= raw) * power;
  const found = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}
