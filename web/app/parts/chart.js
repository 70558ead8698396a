// What all drawings over time are made with (uPlot, loaded when a view first needs it): axes, size, themes, presses, a brush that zooms; and
// the simplest of them: lines and stacked bars.
import { isUtc, time } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { ErrorBox } from "./messages.js";
import { ownStyle } from "./own_style.js";

/** Colours of series; they come again after so many. */
export const COLOURS = 8;
/** How near to a point a press means it, how much of the time a brush chooses at least, and of the values, px. */
const [NEAR, BRUSH, TALL] = [10, 4, 24];

const theme = () => document.documentElement.dataset.theme || String(matchMedia("(prefers-color-scheme: dark)").matches);

/** @type {Promise<any> | null} */
let loading = null;

/** Loads the library, which a view that is sure to draw begins while it asks for its rows. What could not be loaded is asked for again by the next chart. */
export function loadPlots() {
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

/** The variable of a series' colour, by its place; and the colour. */
export const placeName = (at) => `--c${(at % COLOURS) + 1}`;
export const placeColour = (at) => colour(placeName(at));

/** The colour of a series, by its name where that has one of its own. */
export const colourOf = (name, at) => colour(`--level-${name}`) || placeColour(at);

/** Where a point of a time and a value is, px: at the edge if its value is beyond it, at the bottom without a value. */
export function placeOf(plot, { at, value }) {
  const { min, max } = plot.scales.y;
  return [plot.valToPos(at, "x"), plot.valToPos(Math.min(max, Math.max(min, value ?? min)), "y")];
}

/** The point that is near a place, or null. */
export function nearest(plot, points, left, top) {
  const [from, to] = [plot.posToVal(left - NEAR, "x"), plot.posToVal(left + NEAR, "x")];
  /** @type {any} */
  let [found, best] = [null, NEAR];
  for (const point of points) {
    if (point.at < from || point.at > to) continue;
    const [x, y] = placeOf(plot, point);
    const away = Math.hypot(x - left, y - top);
    if (away <= best) [found, best] = [point, away];
  }
  return found;
}

/** Calls a function of the props to paint within the axes, in pixels of the page. */
const painter = (now, name) => (plot) => {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.translate(bbox.left, bbox.top);
  ctx.scale(devicePixelRatio, devicePixelRatio);
  now.current[name]?.(ctx, plot);
  ctx.restore();
};

const clearSelection = (plot) => plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);

/** A drag that leaves the plot goes on; what it chooses ends at the edge. */
function holdPointer(plot) {
  const { over } = plot;
  over.addEventListener("pointerdown", ({ isPrimary, button, pointerId }) => {
    if (!isPrimary || button !== 0) return;
    // What stands above it may have grown.
    plot.syncRect(true);
    plot.isHeld = true;
    over.setPointerCapture(pointerId);
  });
  for (const kind of ["pointerup", "pointercancel"]) over.addEventListener(kind, ({ isPrimary }) => isPrimary && (plot.isHeld = false));
}

/** The place of the pointer, within the plot while it is held. */
function placeOfPointer(plot, left, top) {
  const { isHeld, over } = plot;
  return isHeld ? [Math.max(0, Math.min(over.clientWidth, left)), Math.max(0, Math.min(over.clientHeight, top))] : [left, top];
}

/** The first finger drags as a mouse does: the library knows mice only, and of one that is dragged only what moves it. */
function touchAsMouse(plot) {
  const { over } = plot;
  over.style.touchAction = "pan-y pinch-zoom";
  const tell = (...kinds) => ({ pointerType, isPrimary, clientX, clientY }) => {
    if (pointerType !== "touch" || !isPrimary) return;
    for (const kind of kinds) over.dispatchEvent(new MouseEvent(kind, { clientX, clientY, movementX: 1, bubbles: true }));
  };
  over.addEventListener("pointerdown", tell("mousedown"));
  over.addEventListener("pointermove", tell("mousemove"));
  over.addEventListener("pointercancel", () => clearSelection(plot));
  for (const kind of ["pointerup", "pointercancel"]) over.addEventListener(kind, tell("mouseup", "mouseleave"));
}

/** What a plot says of the pointer: where it is, what it presses, which part it has chosen. */
function hooksOf(now) {
  return {
    drawClear: [painter(now, "under")],
    draw: [painter(now, "paint")],
    setCursor: [(plot) => {
      const { left, top, idx } = plot.cursor;
      const { point, find, tip, zoom } = now.current;
      const item = plot.isHeld ? null : find?.(plot, left, top);
      point?.(idx ?? null);
      plot.over.style.cursor = item ? "pointer" : zoom ? "crosshair" : "";
      plot.over.title = (item && tip?.(item)) || "";
    }],
    setSelect: [(plot) => {
      const { left, width, top, height } = plot.select;
      const values = height >= TALL && height < plot.over.clientHeight ? [plot.posToVal(top + height, "y"), plot.posToVal(top, "y")] : [];
      if (width >= BRUSH) now.current.zoom?.(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"), ...values);
      clearSelection(plot);
    }],
    ready: [(plot) => {
      if (now.current.zoom) {
        holdPointer(plot);
        touchAsMouse(plot);
      }
      let from = { clientX: NaN, clientY: NaN };
      plot.over.addEventListener("mousedown", (event) => (from = event));
      plot.over.addEventListener("click", ({ offsetX, offsetY, clientX, clientY }) => {
        if (Math.hypot(clientX - from.clientX, clientY - from.clientY) >= BRUSH) return;
        const item = now.current.find?.(plot, offsetX, offsetY);
        if (item) now.current.press?.(item);
      });
    }],
  };
}

/**
 * A plot: made anew when `shape`, its height, the theme or the zone of times changes, given `data` when that is another, drawn again when one
 * of `drawn` is. It is an image to a screen reader; whoever uses it shows the same as rows.
 * @param {{ shape?: any[], height: number, label?: string, data: (number | null)[][], drawn?: any[], options: (UPlot: any, axis: any, now: { current: any }) => any,
 *   zoom?: (from: number, to: number, low?: number, high?: number) => void, point?: (index: number | null) => void,
 *   find?: (plot: any, left: number, top: number) => any, press?: (item: any) => void, tip?: (item: any) => string,
 *   under?: (context: CanvasRenderingContext2D, plot: any) => void, paint?: (context: CanvasRenderingContext2D, plot: any) => void, [more: string]: any }} props
 *   `options`: those of the library; `now` has the props as they are by then. A part that is dragged over goes to `zoom`, with values if it
 *   is a box that has not all of them. `find` tells what is at a place, for `press` and `tip`; `under` and `paint` draw below and above all else.
 */
export function Plot({ shape, height, label, data, drawn = [], options, ...props }) {
  /** @type {any} */
  const [box, plot, now] = [useRef(null), useRef(null), useRef(null)];
  const [failed, setFailed] = useState(null);
  const [round, setRound] = useState(0);
  now.current = { data, ...props };
  useEffect(() => {
    /** @type {any} */
    let [watched, gone] = [null, false];
    loadPlots().then((UPlot) => {
      if (gone || !box.current) return;
      const size = () => ({ width: Math.max(200, box.current.clientWidth), height });
      const axis = { stroke: colour("--ink-2"), grid: { stroke: colour("--line"), width: 1 }, font: "11px system-ui", ticks: { show: false } };
      const tzDate = isUtc() ? (at) => UPlot.tzDate(new Date(at), "Etc/UTC") : undefined;
      const { cursor, ...own } = options(UPlot, axis, now);
      // A press that moves a little is a press: the library would keep it to itself.
      const drag = { x: Boolean(props.zoom), y: false, dist: BRUSH, setScale: false, click: () => {}, ...cursor?.drag };
      plot.current = new UPlot({ ...size(), ms: 1, tzDate, legend: { show: false }, ...own, cursor: { move: placeOfPointer, ...cursor, drag }, hooks: hooksOf(now) }, now.current.data, box.current);
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
  }, [JSON.stringify([shape, height, theme(), isUtc(), Boolean(props.zoom)]), round]);
  useEffect(() => plot.current?.setData(data), [data]);
  useEffect(() => plot.current?.redraw(false), drawn);
  return html`${failed && html`<${ErrorBox} error=${failed} again=${() => setRound(round + 1)} />`}
    <div class="plot" role=${label && "img"} aria-label=${label} ref=${box} style=${{ minHeight: `${height}px` }}></div>`;
}

/** Options of a plot that paints by itself over numbers, from the first to the last of `data`. */
export const bare = { cursor: { y: false }, scales: { x: { time: false, range: (_, first, last) => [first, last] } }, series: [{}] };

/** Times as all of the page writes them, with the day where it begins. */
function timeTicks(ticks, step) {
  let before = "";
  return ticks.map((at) => {
    const text = time(at);
    const day = text.slice(5, 10);
    const clock = step >= 86_400_000 ? "" : text.slice(11, step < 1_000 ? 23 : step < 60_000 ? 19 : 16);
    const shown = day === before ? clock : [clock, day].filter(Boolean).join("\n");
    before = day;
    return shown;
  });
}

/** The axis of times. */
export const timeAxis = (axis) => ({ ...axis, space: 70, values: (_, ticks, __, ___, step) => timeTicks(ticks, step) });

/**
 * @param {{ times: number[], series: { name: string, values: (number | null)[] }[], stacked?: boolean, height: number, label: string,
 *   unit: (value: number) => string, zoom?: (from: number, to: number) => void }} props times in milliseconds
 */
export function Chart({ times, series, stacked = false, height, label, unit, zoom }) {
  // Stacked bars stand in front of those that are higher by them.
  const order = stacked ? [...series.keys()].reverse() : [...series.keys()];
  const data = useMemo(() => {
    const sums = times.map(() => 0);
    const drawn = series.map(({ values }) => (stacked ? values.map((value, at) => (sums[at] += value || 0)) : values));
    return [times, ...order.map((at) => drawn[at])];
  }, [times, series, stacked]);
  const few = !stacked && times.length < 40;
  const options = (UPlot, axis, now) => {
    const paths = stacked ? UPlot.paths.bars({ size: [0.9, 60], gap: 0 }) : undefined;
    return {
      cursor: { sync: { key: "time" } },
      scales: stacked ? { y: { range: (_, __, most) => [0, most || 1] } } : {},
      axes: [timeAxis(axis), { ...axis, size: 64, space: 20, values: (_, ticks) => ticks.map(now.current.unit) }],
      series: [{}, ...order.map((at) => {
        const { name } = series[at];
        return { label: name, stroke: colourOf(name, at), fill: stacked ? colourOf(name, at) : undefined, width: stacked ? 0 : 1.5, paths, points: { show: few } };
      })],
    };
  };
  return html`<figure class="chart" aria-label=${label}>
    <${Plot} shape=${[series.map(({ name }) => name), stacked, few]} height=${height} data=${data} options=${options} unit=${unit} zoom=${zoom} />
    <figcaption>${series.slice(0, 20).map(({ name }, at) => html`<span><i style=${{ background: colourOf(name, at) }}></i>${name}</span>`)}</figcaption>
  </figure>`;
}
