// One chart of a board: what is asked and how, the lines, the values at the cursor; beside them the table and the exemplars.
import { count } from "../format.js";
import { html, useMemo, useState } from "../html.js";
import { change } from "../location.js";
import { LineChart, swatch } from "./line_chart.js";
import { Answering, EmptyState } from "./messages.js";
import { moveChart, setChart } from "./metric_board.js";
import { FilterChips, filterKey, FilterForm, withFilter } from "./metric_filters.js";
import { aggregates, MOST_SERIES, PAGES, questionOf, ROWS, seriesOf, summary, useRoundAnswer, usualAggregate } from "./metric_question.js";
import { CsvButton, ExemplarList, MetricTable, SeriesName, useExemplars } from "./metric_table.js";
import { unitOf } from "./metric_units.js";
import { Question, quoted } from "./question.js";

const QUANTILE = /^p\d/;

/** What a chart asks, what it was answered, and how that is written. */
function useChart(chart, { type, known, bounds, interval, round }) {
  // What is usual depends on the type, which the names say; a chart that names its aggregate does not wait for them.
  const agg = chart.agg || (known ? usualAggregate(type) : "");
  const question = questionOf(chart, agg, bounds, interval);
  const answer = useRoundAnswer(round, agg ? question.path : null, question.params, { pages: agg === "observed" ? PAGES : 1 });
  const metric = answer.data?.metric || {};
  // The lines are drawn as they were asked for, until there is another answer.
  const drawn = useMemo(() => (answer.data ? { ...seriesOf(answer.data, chart.group, agg, interval), unit: unitOf(chart.name, metric.unit, agg) } : null), [answer.data]);
  return { agg, question, answer, metric, drawn, type: metric.type || type };
}

/** One of several, each a value and its text. */
export function Choice({ label, value, options, set }) {
  return html`<label class="choice"><span class="dim">${label}</span>
    <select value=${value} onChange=${(event) => set(event.target.value)}>${options.map(([one, text]) => html`<option value=${one}>${text}</option>`)}</select></label>`;
}

function Controls({ chart, at, many, agg, type, keys, set, filtering, question, title }) {
  const groups = [...new Set(["", "entity_name", ...keys, chart.group])].map((key) => [key, key || "nothing"]);
  const panel = (letter, name) => {
    const shown = chart.panels.includes(letter);
    const panels = shown ? chart.panels.replace(letter, "") : chart.panels + letter;
    return html`<button class="quiet" aria-pressed=${shown} onClick=${() => set({ ...chart, panels })}>${name}</button>`;
  };
  const move = (by, sign, name, never) => html`<button class="quiet" disabled=${never} aria-label=${`Move ${chart.name} ${name}`} onClick=${(event) => {
    // A button that is moved in the document loses the focus.
    const { currentTarget } = event;
    moveChart(at, by);
    requestAnimationFrame(() => requestAnimationFrame(() => currentTarget.focus()));
  }}>${sign}</button>`;
  return html`<header class="bar"><h2>${chart.name} <small class="dim">${title}</small></h2>
    <${Choice} label="as" value=${agg} options=${aggregates(type, agg)} set=${(value) => set({ ...chart, agg: value })} />
    <${Choice} label="by" value=${chart.group} options=${groups} set=${(group) => set({ ...chart, group })} />
    <span>${many > 1 && html`${move(-1, "↑", "up", at === 0)}${move(1, "↓", "down", at === many - 1)}`}
      <button class="quiet" aria-label=${`Remove ${chart.name}`} onClick=${() => setChart(at, null)}>×</button></span>
  </header>
  <div class="bar"><button class="quiet" aria-expanded=${filtering.shown} onClick=${() => filtering.show(!filtering.shown)}>Filter</button>
    ${panel("t", "Table")}${panel("e", "Exemplars")}
    <${CsvButton} question=${question} name=${`${chart.name}-${agg}`} />
    <${FilterChips} chart=${chart} set=${set} />
  </div>`;
}

/** The series with their values at the cursor, or their last ones. */
function Legend({ drawn: { times, series, unit }, index, only }) {
  return html`<ul class="metric-legend">${series.map(({ name, group, values }, at) => {
    const value = index === null || index >= times.length ? summary(values).last : values[index];
    return html`<li key=${name}><i style=${swatch(at)}></i>
      <${SeriesName} name=${name} group=${group} only=${only} />
      <b>${unit.one(value)}</b></li>`;
  })}</ul>`;
}

/** Why there are no lines. */
function Nothing({ chart, agg, type, set, bounds }) {
  if (QUANTILE.test(agg) && type && type !== "histogram") {
    const usual = usualAggregate(type);
    return html`<${EmptyState}>${agg} is of histograms, and ${chart.name} is a ${type}. <button onClick=${() => set({ ...chart, agg: usual })}>Show ${usual}</button></${EmptyState}>`;
  }
  return html`<${EmptyState} command=${`platform metrics --name ${quoted(chart.name)} --since 7d --limit 1`}>No points of ${chart.name} ${chart.filters.length ? "with these filters " : ""}since ${bounds.since}${bounds.until ? ` until ${bounds.until}` : ""}.
    ${chart.filters.length > 0 && html` <button onClick=${() => set({ ...chart, filters: [] })}>Without filters</button>`}
    ${" "}<button onClick=${() => change({ since: "7d", until: null })}>The last 7 days</button></${EmptyState}>`;
}

/** What is said of the chart beneath it. */
function Notes({ drawn, partial, group, agg }) {
  const cut = agg === "observed" ? html`<p class="bad">It is cut: these are the newest ${count(ROWS * PAGES)} buckets of all series. Choose a shorter time, a longer interval, or filter.</p>` : html`<p class="dim">Only the first ${MOST_SERIES} of ${group}, by name: filter, or group by another label.</p>`;
  return html`${drawn.more && cut}
    ${partial && html`<p class="bad" role="status">Rows are missing: ${partial}</p>`}`;
}

/** @param {{ chart: import("./metric_board.js").ChartSpec, at: number, many: number, board: any }} props `board`: what all charts share */
export function MetricCard({ chart, at, many, board }) {
  const { agg, question, answer, metric, drawn, type } = useChart(chart, board);
  const [shown, show] = useState(false);
  const [index, point] = useState(null);
  const sameUnit = !["rate", "observed", "count", "sum"].includes(agg);
  const exemplars = useExemplars(chart.panels.includes("e") ? chart : null, board.bounds, board.round, sameUnit);
  const set = (changed) => setChart(at, changed);
  const keys = (metric.label_keys || []).filter((key) => !key.startsWith("otel."));
  const only = filterKey(chart.group) && chart.group ? (value) => set(withFilter(chart, filterKey(chart.group), value)) : undefined;
  const label = `${agg} of ${chart.name}${chart.group ? ` by ${chart.group}` : ""}`;
  const none = answer.error?.status === 404 || (drawn && drawn.series.every(({ values }) => values.every((value) => value === null)));
  const title = [type, drawn?.unit.title].filter(Boolean).join(" · ");
  return html`<section class="metric-card" aria-label=${label} aria-busy=${answer.loading}>
    <${Controls} chart=${chart} at=${at} many=${many} agg=${agg} type=${type} keys=${keys} set=${set} filtering=${{ shown, show }} question=${question} title=${title} />
    ${shown && html`<${FilterForm} chart=${chart} keys=${keys} bounds=${board.bounds} set=${set} close=${() => show(false)} />`}
    <${Question} ...${question} />
    ${answer.error?.status !== 404 && html`<${Answering} answer=${agg ? answer : { ...answer, loading: true }} what=${`Asking for ${chart.name}`} />`}
    ${none && html`<${Nothing} chart=${chart} agg=${agg} type=${type} set=${set} bounds=${board.bounds} />`}
    ${drawn && !none && html`<div class="metric-body">
      <div class=${answer.loading ? "lines stale" : "lines"}>
        <${LineChart} ...${drawn} range=${board.range} marks=${exemplars.marks} label=${`${label}: ${drawn.series.length} series. Table shows the values.`} zoom=${board.zoom} zoomOut=${board.zoomOut} point=${point} />
        <${Legend} drawn=${drawn} index=${index} only=${only} />
        <${Notes} drawn=${drawn} partial=${answer.data?.partial} group=${chart.group} agg=${agg} />
      </div>
      ${chart.panels.includes("t") && html`<${MetricTable} ...${drawn} label=${label} only=${only} />`}
    </div>`}
    ${chart.panels.includes("e") && html`<${ExemplarList} exemplars=${exemplars} unit=${unitOf(chart.name, metric.unit, "last")} label=${`Exemplars of ${chart.name}`} />`}
  </section>`;
}
