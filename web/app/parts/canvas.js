// A drawing of many points or bars, sharp on every screen and in both themes: a press picks what is there, a drag zooms into a part.
// It is an image to a screen reader; whoever uses it shows the same as rows beside it.
import { html, useEffect, useRef, useState } from "../html.js";

/** What a press may move before it is a drag, px. */
const STILL = 4;

const theme = () => document.documentElement.dataset.theme || String(matchMedia("(prefers-color-scheme: dark)").matches);

function paint(canvas, height, draw) {
  const width = canvas.clientWidth;
  const scale = devicePixelRatio || 1;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  context.font = "11px system-ui";
  const style = getComputedStyle(document.documentElement);
  draw(context, { width, height, colour: (name) => style.getPropertyValue(name).trim() });
}

/**
 * @param {{ draw: (context: CanvasRenderingContext2D, area: { width: number, height: number, colour: (name: string) => string }) => void,
 *   height: number, label: string, drawn: any[], pick?: (x: number, y: number, width: number) => void,
 *   brush?: (box: { left: number, right: number, top: number, bottom: number, width: number }) => void,
 *   tip?: (x: number, y: number, width: number) => string }} props `drawn`: it is drawn again when one of these changes
 */
export function Canvas({ draw, height, label, drawn, pick, brush, tip }) {
  const canvas = useRef(null);
  const from = useRef(null);
  /** @type {any} */
  const latest = useRef(draw);
  latest.current = draw;
  const [box, setBox] = useState(null);
  const again = () => canvas.current && paint(canvas.current, height, (...all) => latest.current(...all));
  useEffect(again, [...drawn, height, theme()]);
  useEffect(() => {
    const watched = new ResizeObserver(again);
    watched.observe(canvas.current);
    return () => watched.disconnect();
  }, [height]);
  const at = (event) => {
    const { left, top, width } = canvas.current.getBoundingClientRect();
    return { x: Math.max(0, Math.min(width, event.clientX - left)), y: Math.max(0, Math.min(height, event.clientY - top)), width };
  };
  const boxTo = ({ x, y, width }) => ({ left: Math.min(x, from.current.x), right: Math.max(x, from.current.x), top: Math.min(y, from.current.y), bottom: Math.max(y, from.current.y), width });
  const down = (event) => {
    if (event.button !== 0) return;
    from.current = at(event);
    canvas.current.setPointerCapture(event.pointerId);
  };
  const move = (event) => {
    const here = at(event);
    if (from.current && brush) setBox(boxTo(here));
    else if (tip) canvas.current.title = tip(here.x, here.y, here.width);
  };
  const up = (event) => {
    if (!from.current) return;
    const here = at(event);
    const drag = boxTo(here);
    from.current = null;
    setBox(null);
    if (drag.right - drag.left > STILL) brush?.(drag);
    else pick?.(here.x, here.y, here.width);
  };
  const cancel = () => {
    from.current = null;
    setBox(null);
  };
  return html`<div class="drawing" style=${{ height: `${height}px` }}>
    <canvas ref=${canvas} role="img" aria-label=${label} onPointerDown=${down} onPointerMove=${move} onPointerUp=${up} onPointerCancel=${cancel}></canvas>
    ${box && box.right - box.left > STILL && html`<div class="brush" style=${{ left: `${box.left}px`, width: `${box.right - box.left}px` }}></div>`}
  </div>`;
}
