// The time range of a view: ages (`since=1h`) or times (`since=2026-11-30T14:00:00Z&until=…`), in the address; and how people write them.
import { isUtc, time } from "./format.js";

const UNITS = { ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
const WORDS = { ns: "nanoseconds", us: "microseconds", µs: "microseconds", ms: "milliseconds", s: "seconds", m: "minutes", h: "hours", d: "days" };
const TERM = "(\\d+(?:\\.\\d*)?|\\.\\d+)(ns|us|µs|ms|s|m|h|d)";
const AGE = new RegExp(`^(${TERM})+$`);

/** The numbers of a duration with their units. */
const termsOf = (text) => [...text.matchAll(new RegExp(TERM, "g"))].map(([, many, unit]) => [Number(many), unit]);

/** What the picker offers. */
export const AGES = ["5m", "15m", "1h", "6h", "24h", "48h", "7d", "30d"];

/** Milliseconds of a duration as the API has them (`5s`, `1h30m`, `1.5h`, `0`); NaN if it is none. */
export function ageOf(text) {
  if (text === "0") return 0;
  return AGE.test(text || "") ? termsOf(text).reduce((sum, [many, unit]) => sum + many * UNITS[unit], 0) : NaN;
}

/** A time of a range in SQL. @param {(text: string) => string} bind how a time that is no age stands in it */
function sqlTime(text, bind) {
  if (Number.isNaN(ageOf(text))) return bind(text);
  return `now() - INTERVAL '${termsOf(text).map(([many, unit]) => `${many} ${WORDS[unit]}`).join(" ") || "0 seconds"}'`;
}

/** The time of a question as conditions of SQL; the last hour, if it has none. @param {(text: string) => string} bind */
export function timeConditions(params, bind) {
  const { since, until } = bounds(params);
  return [`ts >= ${sqlTime(since, bind)}`, ...(until ? [`ts < ${sqlTime(until, bind)}`] : [])];
}

/** The range as times, now. @param {URLSearchParams} params @returns {TimeSpan} */
export function range(params) {
  const now = Date.now();
  const moment = (text) => {
    const age = ageOf(text);
    return Number.isNaN(age) ? Date.parse(text) : now - age;
  };
  const from = moment(params.get("since") || "1h");
  const to = params.get("until") ? moment(params.get("until")) : now;
  return { from, to };
}

/** A time of the address as people read it: `2026-11-30 14:05:00`. All else stays as it is: a browser takes 30 February for 2 March. */
export const written = (text) => (/(Z|[+-]\d\d:\d\d)$/i.test(text) ? time(text).replace(/(:00)?\.000$/, "") : text);

/** A day, a clock, or both, without a zone: they are those of the switch. */
const MOMENT = /^(?:(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))?(?:[ T]*([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d(?:\.\d{1,3})?))?)?$/;

/**
 * What somebody wrote, as a time of the address: `14:05` is the last one, or the first one after `since`. All else stays as it is: an age, a time with its zone, a mistake that the Mixer names.
 * @param {string} text @param {string} since what the range begins with, as this gave it, or nothing
 */
export function asked(text, since = "") {
  const [found, year, month, day, hour = 0, minute = 0, second = 0] = MOMENT.exec(text) || [];
  if (!found) return text;
  const now = new Date();
  const today = isUtc() ? [now.getUTCFullYear(), now.getUTCMonth(), now.getUTCDate()] : [now.getFullYear(), now.getMonth(), now.getDate()];
  const [y, m, d] = day ? [Number(year), Number(month) - 1, Number(day)] : today;
  /** @param {number} later days */
  const at = (later) => {
    const [hours, minutes, ms] = [Number(hour), Number(minute), Math.round(1_000 * Number(second))];
    return isUtc() ? Date.UTC(y, m, d + later, hours, minutes, 0, ms) : new Date(y, m, d + later, hours, minutes, 0, ms).getTime();
  };
  const first = new Date(at(0));
  if (day && (isUtc() ? first.getUTCDate() : first.getDate()) !== d) return text;
  const from = Date.parse(since);
  const last = at(0) <= now.getTime() ? 0 : -1;
  const shift = day ? 0 : [last, last + 1].find((days) => !(at(days) <= from)) ?? last;
  return new Date(at(shift)).toISOString();
}

/** A range in the name of a file: `2026-11-30T13-05-00Z_2026-11-30T14-05-00Z`; an invalid time is left empty. @param {TimeSpan} range */
export const rangeName = ({ from, to }) => [from, to].map((at) => new Date(at).toJSON()?.replace(/\.\d+/, "").replaceAll(":", "-")).join("_");

/** `since` and `until` for the API. @param {URLSearchParams} params */
export function bounds(params) {
  return { since: params.get("since") || "1h", until: params.get("until") };
}

/** A round width of buckets, as the API takes it, so that about so many are in the range. @param {TimeSpan} range */
export function interval({ from, to }, buckets = 60) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800, 2_592_000, 7_776_000, 31_536_000];
  const wanted = (to - from) / 1_000 / buckets;
  const seconds = steps.find((step) => step >= wanted) || steps.at(-1);
  return { text: `${seconds}s`, ms: seconds * 1_000 };
}
