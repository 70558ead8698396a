// Values of metrics with their units, as the label `otel.unit` names them: bytes, times, shares, and all others as they are.

/** Factors with what is written behind a number, ascending; the largest one that fits is taken. */
const BYTES = [[1, " B"], [2 ** 10, " KiB"], [2 ** 20, " MiB"], [2 ** 30, " GiB"], [2 ** 40, " TiB"]];
const SECONDS = [[1e-9, " ns"], [1e-6, " µs"], [1e-3, " ms"], [1, " s"], [60, " min"], [3_600, " h"], [86_400, " d"]];
const PLAIN = [[1, ""], [1e3, " k"], [1e6, " M"], [1e9, " G"], [1e12, " T"]];
const SHARE = [[0.01, " %"]];
const SHARES = /utili[sz]ation|ratio|share|fraction|percent/i;
/** Distances between ticks that are round in these units. */
const ROUND_BYTES = Array.from({ length: 50 }, (_, power) => 2 ** power);
const ROUND_SECONDS = [...Array.from({ length: 27 }, (_, at) => [1, 2, 5][at % 3] * 10 ** (Math.floor(at / 3) - 9)), 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 604_800];

/** Seconds in a unit of time. */
const TIMES = { s: 1, ms: 1e-3, us: 1e-6, ns: 1e-9, min: 60, h: 3_600, d: 86_400 };

/** @returns {any} */
function scaleOf(name, unit, agg) {
  if (agg === "count" || agg === "observed") return { scale: PLAIN };
  if (unit === "By") return { scale: BYTES, incrs: ROUND_BYTES };
  // Seconds per second are no time.
  if (Object.hasOwn(TIMES, unit) && agg !== "rate") return { scale: SECONDS, factor: TIMES[unit], incrs: ROUND_SECONDS.map((step) => step / TIMES[unit]) };
  if (unit === "1" && agg !== "rate" && agg !== "sum" && SHARES.test(name)) return { scale: SHARE };
  return { scale: PLAIN };
}

const digits = (value) => (Math.abs(value) >= 1_000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(4))));

/**
 * How the values of a chart are written.
 * @param {string} name @param {string | null} unit of the metric @param {string} agg
 * @returns {{ title: string, one: (value: number | null) => string, ticks: (values: number[]) => string[], incrs?: number[] }}
 */
export function unitOf(name, unit, agg) {
  const { scale, factor = 1, incrs } = scaleOf(name, unit || "", agg);
  const per = agg === "rate" || agg === "observed" ? "/s" : "";
  const pick = (value) => scale.findLast(([from]) => Math.abs(value * factor) >= from) || scale.find(([from]) => from === 1) || scale[0];
  const write = (value, [from, sign]) => digits((value * factor) / from) + sign + per;
  const said = (unit || "").replace(/^\{(.*)\}$/, "$1").replace(/^1$/, "");
  return {
    title: agg === "count" ? "points" : agg === "observed" ? "observations/s" : said && said + per,
    one: (value) => (value === null || value === undefined ? "–" : write(value, value === 0 ? pick(1 / factor) : pick(value))),
    ticks: (values) => {
      const common = pick(Math.max(...values.map(Math.abs)) || 1 / factor);
      return values.map((value) => (value === null ? "" : write(value, common)));
    },
    incrs,
  };
}
