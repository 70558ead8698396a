// Lines and stacked bars over time (uPlot, loaded when the first chart is shown), with a brush that zooms the view.
import { html, useEffect, useRef } from "../html.js";
import { isUtc } from "../format.js";

const COLOURS = ["--c1", "--c2", "--c3", "--c4", "--c5", "--c6", "--c7", "--c8"];
/** @type {any} */
let loading = null;

export function load() {
  loading ??= new Promise((resolve, reject) => {
    const style = document.createElement("link");
    [style.rel, style.href] = ["stylesheet", new URL("../../vendor/uplot.css", import.meta.url).href];
    const script = document.createElement("script");
    script.src = new URL("../../vendor/uplot.js", import.meta.url).href;
    script.onload = () => resolve(globalThis.uPlot);
    script.onerror = () => reject(new Error("the chart could not be loaded"));
    document.head.append(style, script);
  });
  return loading;
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The colour of a series, by its name where that has one of its own. */
export function colourOf(name, index) {
  const own = colour(`--level-${name}`);
  return own || colour(COLOURS[index % COLOURS.length]);
}

/**
 * @param {{ times: number[], series: { name: string, values: (number | null)[] }[], stacked?: boolean, height?: number, label: string,
 *   unit?: (value: number) => string, zoom?: (from: number, to: number) => void }} props times in seconds; `zoom` in milliseconds
 */
export function Chart({ times, series, stacked = false, height = 140, label, unit, zoom }) {
  const box = useRef(null);
  useEffect(() => {
    /** @type {any} */
    let [plot, watched, gone] = [null, null, false];
    load().then((UPlot) => {
      if (gone || !box.current) return;
      const sums = times.map(() => 0);
      const drawn = series.map(({ values }) => (stacked ? values.map((value, at) => (sums[at] += value || 0)) : values));
      const order = stacked ? [...series.keys()].reverse() : [...series.keys()];
      const bars = stacked ? UPlot.paths.bars({ size: [0.9, 60], gap: 0 }) : undefined;
      const axis = { stroke: colour("--ink-2"), grid: { stroke: colour("--line"), width: 1 }, font: "11px system-ui", ticks: { show: false } };
      const options = {
        width: Math.max(200, box.current.clientWidth),
        height,
        tzDate: isUtc() ? (at) => UPlot.tzDate(new Date(at * 1_000), "Etc/UTC") : undefined,
        cursor: { drag: { x: Boolean(zoom), y: false, setScale: false }, sync: { key: "time" } },
        legend: { show: false },
        scales: stacked ? { y: { range: (_, __, most) => [0, most || 1] } } : {},
        axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map((tick) => (unit ? unit(tick) : tick.toLocaleString("en"))) }],
        series: [{}, ...order.map((at) => ({ label: series[at].name, stroke: colourOf(series[at].name, at), fill: stacked ? colourOf(series[at].name, at) : undefined, width: stacked ? 0 : 1.5, paths: bars, points: { show: !stacked && times.length < 40 } }))],
        hooks: {
          setSelect: [(chart) => {
            const { left, width } = chart.select;
            if (!zoom || width < 4) return;
            zoom(chart.posToVal(left, "x") * 1_000, chart.posToVal(left + width, "x") * 1_000);
          }],
        },
      };
      plot = new UPlot(options, [times, ...order.map((at) => drawn[at])], box.current);
      watched = new ResizeObserver(([{ contentRect }]) => plot.setSize({ width: Math.max(200, contentRect.width), height }));
      watched.observe(box.current);
    });
    return () => {
      gone = true;
      watched?.disconnect();
      plot?.destroy();
    };
  }, [times, series, stacked, height]);
  return html`<figure class="chart" aria-label=${label}>
    <div ref=${box} style=${{ minHeight: `${height}px` }}></div>
    <figcaption>${series.slice(0, 20).map(({ name }, at) => html`<span><i style=${{ background: colourOf(name, at) }}></i>${name}</span>`)}</figcaption>
  </figure>`;
}
