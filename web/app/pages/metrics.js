// Metrics: names to choose from, and a board of charts on one time axis. The board stands in the address, as parts/metric_board.js says.
import { useAnswer } from "../api.js";
import { html, useEffect, useMemo, useState } from "../html.js";
import { change } from "../location.js";
import { EmptyState } from "../parts/messages.js";
import { addChart, chartsOf, decode, useChartKeys } from "../parts/metric_board.js";
import { MetricBrowser, usualChart } from "../parts/metric_browser.js";
import { Choice, MetricCard } from "../parts/metric_card.js";
import { ownStyle } from "../parts/own_style.js";
import { SavedViews } from "../parts/saved_views.js";
import { TimePicker } from "../parts/time_picker.js";
import { ageOf, bounds as boundsOf, interval as intervalOf, range as rangeOf } from "../time_range.js";

await ownStyle("metrics.css");

const INTERVALS = ["1s", "10s", "30s", "1m", "5m", "15m", "1h", "6h", "1d"];
/** About how many buckets of time a chart has, unless an interval is chosen. */
const BUCKETS = 90;
const REFRESHES = ["5s", "10s", "30s", "1m", "5m"];
/** Charts that a first board can have, of those metrics that there are. */
const STARTS = [["http.server.request.duration", "resource.service.name"], ["http.server.requests", "entity_name"], ["system.cpu.utilization", "cpu.mode"], ["system.memory.utilization", ""], ["system.network.io", "entity_name"], ["gear.messages.in", "entity_name"]];

/** A number that grows every so often, while the page is seen. */
function useRounds(every) {
  const [round, setRound] = useState(0);
  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => document.hidden || setRound((before) => before + 1), every);
    return () => clearInterval(timer);
  }, [every]);
  return round;
}

/** What is usual, these, and what the address has. */
const choices = (first, options, value) => [["", first], ...[...new Set([...options, value])].filter(Boolean).map((one) => [one, one])];

function FirstCharts({ names }) {
  const all = names.data?.data || [];
  const offered = STARTS.flatMap(([name, group]) => all.filter((metric) => metric.name === name).map((metric) => usualChart(metric, { group })));
  if (!names.data || !all.length) return null;
  return html`<${EmptyState}>No chart yet: press + beside a name, or choose one with <kbd>j</kbd> <kbd>k</kbd> and press <kbd>Enter</kbd>.
    ${offered.length > 0 && html` Or begin with one of these: ${offered.map((chart) => html`<button onClick=${() => addChart(chart)}>${chart.agg} of ${chart.name}${chart.group && ` by ${chart.group}`}</button> `)}`}</${EmptyState}>`;
}

/** What all charts share: the range, the width of buckets, when they ask again, and how they zoom. */
function useBoard(params, names, round) {
  const bounds = boundsOf(params);
  const at = useMemo(() => rangeOf(params), [bounds.since, bounds.until, round]);
  const zoom = (from, to) => from < to && change({ since: new Date(Math.max(0, from)).toISOString(), until: new Date(Math.ceil(to)).toISOString() });
  const zoomOut = () => {
    const half = (at.to - at.from) / 2;
    zoom(at.from - half, Math.min(at.to + half, Date.now()));
  };
  const interval = params.get("interval") || intervalOf(at, BUCKETS).text;
  return { bounds, range: [at.from, at.to], interval, round, zoom, zoomOut, known: Boolean(names.data || names.error) };
}

export default function Metrics({ params }) {
  const [interval, refresh] = ["interval", "refresh"].map((key) => params.get(key) || "");
  const round = useRounds(ageOf(refresh) || 0);
  const names = useAnswer("/api/v1/telemetry/metrics/names", boundsOf(params));
  const board = useBoard(params, names, round);
  const types = useMemo(() => new Map((names.data?.data || []).map(({ name, type }) => [name, type])), [names.data]);
  const charts = useChartKeys(chartsOf(params));
  const browsing = params.get("names") !== "off";
  return html`<div class="bar">
      <${TimePicker} params=${params} />
      <button class="quiet" onClick=${board.zoomOut} title="Twice the range; also a double press on a chart">Zoom out</button>
      <${Choice} label="interval" value=${interval} options=${choices(`automatic (${board.interval})`, INTERVALS, interval)} set=${(width) => change({ interval: width })} />
      <${Choice} label="refresh" value=${refresh} options=${choices("off", REFRESHES, refresh)} set=${(every) => change({ refresh: every }, true)} />
      <${SavedViews} page="metrics" />
      <span class="fill"></span>
      <button aria-pressed=${browsing} onClick=${() => change({ names: browsing ? "off" : null }, true)}>Names</button>
    </div>
    <div class="split metrics">
      ${browsing && html`<${MetricBrowser} params=${params} names=${names} bounds=${board.bounds} />`}
      <div class="main metric-board" role="region" aria-label="Charts" tabindex="0">
        ${charts.map(({ text, key }, at) => {
          const chart = decode(text);
          return html`<${MetricCard} key=${key} chart=${chart} at=${at} many=${charts.length} board=${{ ...board, type: types.get(chart.name) }} />`;
        })}
        ${!charts.length && html`<${FirstCharts} names=${names} />`}
      </div>
    </div>`;
}
