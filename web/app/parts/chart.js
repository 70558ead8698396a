// Plots over time (uPlot, loaded when the first one is shown), and the simplest of them: lines and stacked bars, with a brush that zooms.
import { isUtc, time } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { ErrorBox } from "./messages.js";
import { ownStyle } from "./own_style.js";

/** Colours of series; they come again after so many. */
export const COLOURS = 8;
/** @type {Promise<any> | null} */
let loading = null;

/** The library. What could not be loaded is asked for again by the next chart. */
function load() {
  loading ??= Promise.all([ownStyle("../vendor/uplot.css"), new Promise((resolve, reject) => {
    const script = document.createElement("script");
    [script.src, script.onload, script.onerror] = [new URL("../../vendor/uplot.js", import.meta.url).href, resolve, reject];
    document.head.append(script);
  })]).then(() => globalThis.uPlot, () => {
    loading = null;
    throw new Error("charts could not be loaded: is the Mixer running? If it is another build by now, load this page anew");
  });
  return loading;
}

export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** The colour of a series by its place. */
export const placeColour = (at) => colour(`--c${(at % COLOURS) + 1}`);

/** The colour of a series, by its name where that has one of its own. */
export const colourOf = (name, at) => colour(`--level-${name}`) || placeColour(at);

/**
 * A plot in a box: made anew when `shape` changes, given what is in `data` when that is another.
 * @param {{ current: HTMLElement }} box @param {any[]} shape @param {number} height @param {(number | null)[][]} data times in seconds, then values
 * @param {(UPlot: any, axis: any) => any} options of uPlot, of which size, zone and legend are known
 * @returns {[{ current: any }, any]} the plot, and why there is none
 */
export function usePlot(box, shape, height, data, options) {
  /** @type {any} */
  const [plot, latest] = [useRef(null), useRef(null)];
  const [failed, setFailed] = useState(null);
  const [round, setRound] = useState(0);
  latest.current = data;
  useEffect(() => {
    /** @type {any} */
    let [watched, gone] = [null, false];
    load().then((UPlot) => {
      if (gone || !box.current) return;
      const size = () => ({ width: Math.max(200, box.current.clientWidth), height });
      const axis = { stroke: colour("--ink-2"), grid: { stroke: colour("--line"), width: 1 }, font: "11px system-ui", ticks: { show: false } };
      const tzDate = isUtc() ? (at) => UPlot.tzDate(new Date(at * 1_000), "Etc/UTC") : undefined;
      plot.current = new UPlot({ ...size(), tzDate, legend: { show: false }, ...options(UPlot, axis) }, latest.current, box.current);
      watched = new ResizeObserver(() => box.current && plot.current.setSize(size()));
      watched.observe(box.current);
      setFailed(null);
    }, (error) => gone || setFailed(error));
    return () => {
      gone = true;
      watched?.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [JSON.stringify([shape, height, document.documentElement.dataset.theme, isUtc()]), round]);
  useEffect(() => plot.current?.setData(data), [data]);
  return [plot, failed && html`<${ErrorBox} error=${failed} again=${() => setRound(round + 1)} />`];
}

/** Times as all of the page writes them, with the day where it begins. */
function timeTicks(ticks, step) {
  let before = "";
  return ticks.map((at) => {
    const text = time(at * 1_000);
    const day = text.slice(5, 10);
    const clock = step >= 86_400 ? "" : text.slice(11, step < 1 ? 23 : step < 60 ? 19 : 16);
    const shown = day === before ? clock : [clock, day].filter(Boolean).join("\n");
    before = day;
    return shown;
  });
}

/** The axis of times. */
export const timeAxis = (axis) => ({ ...axis, space: 70, values: (_, ticks, __, ___, step) => timeTicks(ticks, step) });

/** Tells which times a brush has chosen, in milliseconds. */
export const brushed = (zoom) => (plot) => {
  const { left, width } = plot.select;
  const at = (pixel) => Math.round(plot.posToVal(pixel, "x") * 1_000);
  if (width >= 4) zoom(at(left), at(left + width));
};

/**
 * @param {{ times: number[], series: { name: string, values: (number | null)[] }[], stacked?: boolean, height?: number, label: string,
 *   unit: (value: number) => string, zoom?: (from: number, to: number) => void }} props times in seconds; `zoom` in milliseconds
 */
export function Chart({ times, series, stacked = false, height = 140, label, unit, zoom }) {
  const box = useRef(null);
  const now = useRef(null);
  now.current = { unit, zoom };
  // Stacked bars stand in front of those that are higher by them.
  const order = stacked ? [...series.keys()].reverse() : [...series.keys()];
  const data = useMemo(() => {
    const sums = times.map(() => 0);
    const drawn = series.map(({ values }) => (stacked ? values.map((value, at) => (sums[at] += value || 0)) : values));
    return [times, ...order.map((at) => drawn[at])];
  }, [times, series, stacked]);
  const few = !stacked && times.length < 40;
  const [, failed] = usePlot(box, [series.map(({ name }) => name), stacked, few, Boolean(zoom)], height, data, (UPlot, axis) => {
    const paths = stacked ? UPlot.paths.bars({ size: [0.9, 60], gap: 0 }) : undefined;
    return {
      cursor: { drag: { x: Boolean(zoom), y: false, setScale: false }, sync: { key: "time" } },
      scales: stacked ? { y: { range: (_, __, most) => [0, most || 1] } } : {},
      axes: [timeAxis(axis), { ...axis, size: 64, space: 20, values: (_, ticks) => ticks.map(now.current.unit) }],
      series: [{}, ...order.map((at) => {
        const { name } = series[at];
        return { label: name, stroke: colourOf(name, at), fill: stacked ? colourOf(name, at) : undefined, width: stacked ? 0 : 1.5, paths, points: { show: few } };
      })],
      hooks: { setSelect: [brushed((...range) => now.current.zoom?.(...range))] },
    };
  });
  return html`<figure class="chart" aria-label=${label}>${failed}
    <div ref=${box} style=${{ minHeight: `${height}px` }}></div>
    <figcaption>${series.slice(0, 20).map(({ name }, at) => html`<span><i style=${{ background: colourOf(name, at) }}></i>${name}</span>`)}</figcaption>
  </figure>`;
}
