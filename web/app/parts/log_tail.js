// Live tail: rows as they become visible. They are gathered as text and drawn in animation frames; only the newest are kept.
import { follow, parse } from "../api.js";
import { useEffect, useRef, useState } from "../html.js";
import { filters, PATH } from "./log_query.js";

/** Rows that are kept, the characters of their JSON, and rows to begin with. */
const [MOST, MOST_SIZE, BEGIN] = [5_000, 8 << 20, 200];
/** ms between two drawings, ms of one that rows may be parsed, and the longest wait for another try, ms. */
const [EVERY, SLICE, LONGEST] = [100, 8, 30_000];
/** What is answered to a place that is not one any more. */
const REFUSED = [400, 404, 409, 410, 422];

const NONE = { rows: [], state: "connecting", total: 0, held: 0, paused: false, notice: "", gap: "", error: null, retryAt: 0 };
const sizes = new WeakMap();

/** How many of the newest are kept. @param {(at: number) => number} sizeAt of the newest for 0 */
function kept(count, sizeAt) {
  let [at, size] = [0, 0];
  while (at < Math.min(count, MOST) && ((size += sizeAt(at)) <= MOST_SIZE || at === 0)) at += 1;
  return at;
}

/** Follows one question until it is closed, and tells `show` what is to be seen. */
class LogTail {
  constructor(question, show) {
    this.question = question;
    this.show = show;
    this.place = "";
    /** @type {any} */
    this.view = NONE;
    this.total = 0;
    this.heldFrom = 0;
    this.missed = 0;
    this.unseen = 0;
    this.cancel = new AbortController();
    /** @type {(value?: any) => void} */
    this.wake = () => {};
    this.clear();
    this.run();
  }

  close() {
    this.cancel.abort();
    this.wake();
  }

  clear() {
    /** @type {any[]} */
    this.came = [];
    this.size = 0;
    this.heldFrom = this.total;
  }

  change(changes) {
    if (this.cancel.signal.aborted) return;
    this.view = { ...this.view, ...changes };
    this.show(this.view);
  }

  take(event, data, id) {
    if (id) this.place = id;
    if (event === "message") this.takeRow(data);
    else if (event === "lagged") {
      const { missed, unseen = 0 } = JSON.parse(data);
      [this.missed, this.unseen] = [this.missed + missed, this.unseen + unseen];
      const gaps = [this.missed && `${this.missed} rows were missed: this browser was too slow. A filter makes them fewer.`, this.unseen && `${this.unseen} rows went by before the filter saw them: make it simpler.`];
      this.change({ gap: gaps.filter(Boolean).join(" ") });
    } else if (event === "gap") this.change({ gap: `Rows may be missing: ${JSON.parse(data).reason}.` });
    else if (event === "error") this.change({ notice: JSON.parse(data).detail });
  }

  takeRow(text) {
    this.came.push(text);
    this.size += text.length;
    this.total += 1;
    // Rarely, since all that stay are moved.
    if (this.came.length > 2 * MOST || this.size > 1.5 * MOST_SIZE) {
      this.came = this.came.slice(-kept(this.came.length, (at) => this.came.at(-1 - at).length));
      this.size = this.came.reduce((sum, { length }) => sum + length, 0);
    }
    this.drawLater(EVERY);
  }

  drawLater(wait) {
    this.timer ||= setTimeout(() => requestAnimationFrame(() => this.draw()), wait);
  }

  draw() {
    this.timer = 0;
    const { rows, paused } = this.view;
    if (paused) return this.change({ total: this.total, held: this.total - this.heldFrom });
    this.change({ total: this.total, rows: this.merged(rows) });
    if (this.came.length) this.drawLater(0);
  }

  /** The newest rows first, those gathered before those that were shown: as many of them as can be parsed without a stop of the page. */
  merged(rows) {
    /** @type {[any[], number]} */
    const [fresh, end] = [[], performance.now() + SLICE];
    while (fresh.length < this.came.length && (!fresh.length || performance.now() < end)) {
      const text = this.came[fresh.length];
      const row = parse(text);
      sizes.set(row, text.length);
      this.size -= text.length;
      fresh.push(row);
    }
    this.came = this.came.slice(fresh.length);
    const all = [...fresh.reverse(), ...rows];
    return all.slice(0, kept(all.length, (at) => sizes.get(all[at])));
  }

  pause() {
    if (this.view.paused) return;
    this.heldFrom = this.total;
    this.change({ paused: true, held: 0 });
  }

  resume() {
    this.change({ paused: false, held: 0 });
    this.drawLater(0);
  }

  /** A place that is not known any more is given up, with the rows before it: they would come again. */
  beginAnew() {
    this.place = "";
    this.clear();
    this.change({ rows: [], held: 0, gap: "Rows may be missing: the Mixer does not know any more where this list ended, so it began anew." });
  }

  async run() {
    let wait = 1_000;
    while (!this.cancel.signal.aborted) {
      const from = this.place;
      const opened = () => this.change({ state: "following", notice: "", error: null });
      try {
        await follow(`${PATH}/tail`, { params: { ...this.question, ...(from ? { cursor: from } : { limit: BEGIN }) }, signal: this.cancel.signal, opened }, (...event) => {
          wait = 1_000;
          this.take(...event);
        });
        this.change({ notice: "The Mixer ended the stream." });
      } catch (error) {
        if (this.cancel.signal.aborted) return;
        if (from && REFUSED.includes(error.status)) {
          this.beginAnew();
          continue;
        }
        if (error.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429) return this.change({ state: "refused", error });
        this.change({ notice: error.status ? error.message : error.name === "AbortError" ? "The Mixer was silent for too long." : "The Mixer cannot be reached." });
        if (error.retryAfter) wait = Math.max(wait, Number(error.retryAfter) * 1_000 || 0);
      }
      this.change({ state: "waiting", retryAt: Date.now() + wait });
      await new Promise((done) => {
        this.wake = done;
        setTimeout(done, wait);
      });
      wait = Math.min(2 * wait, LONGEST);
    }
  }
}

/** @param {URLSearchParams} params @param {boolean} active */
export function useLogTail(params, active) {
  const [view, setView] = useState(NONE);
  const tail = useRef(null);
  const key = JSON.stringify(filters(params));
  useEffect(() => {
    if (!active) return;
    setView(NONE);
    tail.current = new LogTail(JSON.parse(key), setView);
    return () => tail.current.close();
  }, [key, active]);
  return { ...view, pause: () => tail.current?.pause(), resume: () => tail.current?.resume(), retry: () => tail.current?.wake() };
}
