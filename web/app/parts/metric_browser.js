// The names of metrics to choose from, with their types and how many points they have, and the labels of one of them.
import { useAnswer } from "../api.js";
import { count } from "../format.js";
import { html, useMemo } from "../html.js";
import { change } from "../location.js";
import { Answering, EmptyState } from "./messages.js";
import { addChart } from "./metric_board.js";
import { metricPath, usualAggregate } from "./metric_question.js";
import { useRowKeys } from "../keys.js";
import { VirtualList } from "./virtual_list.js";

/** Values of a label that are shown. */
const MOST_VALUES = 200;

/** A chart of a metric as is usual for its type. */
export const usualChart = ({ name, type }, more = {}) => ({ name, agg: usualAggregate(type), panels: type === "histogram" ? "e" : "", ...more });

function LabelValues({ metric, label, bounds }) {
  const answer = useAnswer(metricPath(metric.name, `/labels/${encodeURIComponent(label)}`), { ...bounds, limit: MOST_VALUES });
  const values = answer.data?.data;
  if (!values) return html`<${Answering} answer=${answer} what="Asking for values" />`;
  return html`<ul>${values.map(({ value, count: points }) => html`<li>
    <button class="quiet" title="Add a chart of this one" onClick=${() => addChart(usualChart(metric, { filters: [[`labels.${label}`, String(value)]] }))}>${String(value)}</button>
    <span class="dim">${count(points, true)}</span></li>`)}
    ${values.length === MOST_VALUES && html`<li class="dim">the first ${MOST_VALUES}</li>`}</ul>`;
}

function Labels({ metric, open, bounds }) {
  const answer = useAnswer(metricPath(metric.name, "/labels"), bounds);
  const keys = answer.data?.data || [];
  return html`<section class="metric-labels" aria-label=${`Labels of ${metric.name}`}>
    <div class="bar"><h3>${metric.name}</h3><button onClick=${() => addChart(usualChart(metric))}>Add chart</button></div>
    ${answer.error?.status !== 404 && html`<${Answering} answer=${answer} what="Asking for labels" />`}
    ${answer.data && !keys.length && html`<p class="dim">It has no labels.</p>`}
    <ul>${keys.map(({ key, values }) => html`<li key=${key}>
      <button class="quiet" aria-expanded=${open === key} onClick=${() => change({ label: open === key ? null : key }, true)}>${open === key ? "▾" : "▸"} ${key}</button>
      <span class="dim">${values === 1 ? "1 value" : `${count(values)} values`}</span>
      ${!key.startsWith("otel.") && html`<button class="quiet" aria-label=${`Add a chart by ${key}`} onClick=${() => addChart(usualChart(metric, { group: key }))}>by</button>`}
      ${open === key && html`<${LabelValues} metric=${metric} label=${key} bounds=${bounds} />`}</li>`)}</ul>
  </section>`;
}

/** @param {{ params: URLSearchParams, names: any, bounds: any }} props `names`: the answer with all names */
export function MetricBrowser({ params, names, bounds }) {
  const [wanted, chosen] = [params.get("q") || "", params.get("metric")];
  const all = names.data?.data || [];
  const shown = useMemo(() => {
    const words = wanted.toLowerCase().split(/\s+/);
    return all.filter(({ name, type }) => words.every((word) => `${name} ${type}`.toLowerCase().includes(word)));
  }, [all, wanted]);
  const selected = shown.findIndex(({ name }) => name === chosen);
  useRowKeys({
    count: shown.length, selected, open: (at) => addChart(usualChart(shown[at])),
    select: (at) => change({ metric: shown[at].name, label: null }, true),
  });
  const row = (metric, index) => html`<div role="row" key=${metric.name + metric.type} aria-rowindex=${index + 1} aria-selected=${index === selected} onClick=${() => change({ metric: metric.name, label: null }, true)} onDblClick=${() => addChart(usualChart(metric))}>
    <span role="cell" class="name" title=${metric.name}>${metric.name}</span><span role="cell" class="dim type">${metric.type}</span><span role="cell" class="dim number points">${count(metric.count, true)}</span>
    <span role="cell" class="add"><button class="quiet" tabindex="-1" aria-label=${`Add a chart of ${metric.name}`} onClick=${(event) => {
      event.stopPropagation();
      addChart(usualChart(metric));
    }}>+</button></span></div>`;
  const head = html`<div role="row" class="head"><span role="columnheader" class="name">${count(shown.length)} ${shown.length === all.length ? "names" : `of ${count(all.length)} names`}</span><span role="columnheader" class="type">type</span><span role="columnheader" class="number points">points</span><span role="columnheader" class="add"><span class="hidden">chart</span></span></div>`;
  const metric = shown[selected] || all.find(({ name }) => name === chosen);
  return html`<aside class="side metric-side" aria-label="Names of metrics">
    <h2 class="hidden">Names</h2>
    <input data-search type="search" aria-label="Filter the names" placeholder="Filter the names ( / )" spellcheck="false" value=${wanted} onInput=${(event) => change({ q: event.target.value }, true)} />
    <${Answering} answer=${names} what="Asking for names" />
    ${names.data && !all.length && html`<${EmptyState} command=${`export OTEL_EXPORTER_OTLP_ENDPOINT=${location.origin} OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf`}>No metrics in this range. Choose a longer one, let a Rack run the gear host_metrics, or send those of OpenTelemetry here:</${EmptyState}>`}
    ${all.length > 0 && (shown.length > 0 ? html`<${VirtualList} rows=${shown} row=${row} selected=${selected} label="Names of metrics" head=${head} />` : html`<p class="dim">No name has “${wanted}”. <button onClick=${() => change({ q: null }, true)}>All names</button></p>`)}
    ${names.data?.partial && html`<p class="dim">Not all names: ${names.data.partial}</p>`}
    ${metric && html`<${Labels} key=${metric.name} metric=${metric} open=${params.get("label")} bounds=${bounds} />`}
  </aside>`;
}
