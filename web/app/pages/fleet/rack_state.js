// How a Rack stands: what it should run and runs, and why the two differ.

/** press-2 before press-10. */
const ORDER = new Intl.Collator("en", { numeric: true });

/** The beginning of a hash, by which commands name a scenario too. */
export const short = (hash) => (hash ? hash.slice(0, 8) : "");

/** `press:1 3e5ff14c`. */
export const named = (scenario) => (scenario ? `${scenario.reference || "?"} ${short(scenario.hash)}` : "nothing");

/** Racks with what the status of the active scenario says of each, those that wait for admission first. */
export function withStatus(racks, status) {
  const known = new Map((status?.racks || []).filter(({ id }) => id).map((rack) => [rack.id, rack]));
  const rank = (rack) => (rack.state === "pending" ? 0 : rack.behind ? 1 : 2);
  return racks
    .map((rack) => ({ ...rack, gears: known.get(rack.id)?.gears || [], behind: whyBehind(rack, known.get(rack.id)) }))
    .sort((one, other) => rank(one) - rank(other) || ORDER.compare(one.name, other.name));
}

/** Why a Rack does not run what it should; empty if it does. */
export function whyBehind(rack, status) {
  if (rack.state === "removed" || rack.state === "pending") return "";
  if (rack.error) return rack.error;
  if (status && !status.converged) return status.reason || "it has not applied it yet";
  const { wanted, running } = rack.scenario || {};
  return wanted?.hash === running?.hash || rack.state === "suspended" ? "" : `it runs ${named(running)}, not ${named(wanted)}`;
}

/** `12 %`, of a fact in a Rack's heartbeat. */
export const share = (part, whole) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : "");

/** Whether a Rack meets a filter: `key=value` for a label, `key` for any value. */
export function hasLabel(rack, label) {
  const [key, value] = label.split(/=(.*)/s);
  return key in rack.labels && (value === undefined || rack.labels[key] === value);
}

/** Labels as `key=value`. */
export const labelList = (labels) => Object.entries(labels).map(([key, value]) => `${key}=${value}`);
