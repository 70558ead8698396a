// Traces: a search for spans, one trace as a waterfall, the services, and which calls which.
import { html } from "../html.js";
import { hrefHere } from "../location.js";
import { loadPlots } from "../parts/chart.js";
import { ownStyle } from "../parts/own_style.js";
import { Dependencies, Services } from "../parts/service_views.js";
import { SpanList } from "../parts/span_search.js";
import { TimePicker } from "../parts/time_picker.js";
import { TraceView } from "../parts/trace_view.js";

// A chart says itself that it could not be loaded.
loadPlots().catch(() => {});
await ownStyle("traces.css");

const VIEWS = [["search", "Spans", SpanList], ["services", "Services", Services], ["map", "Service map", Dependencies]];

/** The same question in another view. */
const other = (name) => hrefHere({ sort: null, view: name === "search" ? null : name });

export default function Traces({ params }) {
  const trace = params.get("trace_id");
  if (trace) return html`<div class="spans-page"><${TraceView} params=${params} trace=${trace} /></div>`;
  const chosen = VIEWS.find(([name]) => name === params.get("view")) || VIEWS[0];
  const [name, , View] = chosen;
  return html`<div class="spans-page"><div class="bar"><nav class="views" aria-label="Views of traces">${VIEWS.map(([one, title]) => html`<a href=${other(one)} aria-current=${one === name ? "page" : undefined}>${title}</a>`)}</nav>
      <${TimePicker} params=${params} /></div>
    <${View} key=${name} params=${params} /></div>`;
}
