// Live tail: rows as they become visible. They are gathered as text and drawn a few times a second; only the newest are kept.
import { follow } from "../api.js";
import { useEffect, useRef, useState } from "../html.js";
import { filters, PATH } from "./log_query.js";

/** Rows kept, ms between two drawings, rows to begin with, and the longest wait for another try, ms. */
const [MOST, EVERY, BEGIN, LONGEST] = [5_000, 200, 200, 30_000];

const NONE = { rows: [], state: "connecting", total: 0, held: 0, paused: false, notice: "", error: null, retryAt: 0 };

/** Follows one question until it is closed, and tells `show` what is to be seen. */
class LogTail {
  constructor(question, show) {
    this.question = question;
    this.show = show;
    this.came = [];
    this.place = "";
    this.view = NONE;
    this.cancel = new AbortController();
    /** @type {(value?: any) => void} */
    this.wake = () => {};
    this.timer = setInterval(() => this.draw(), EVERY);
    this.run();
  }

  close() {
    this.cancel.abort();
    clearInterval(this.timer);
    this.wake();
  }

  change(changes) {
    if (this.cancel.signal.aborted) return;
    this.view = { ...this.view, ...changes };
    this.show(this.view);
  }

  take(event, data, id) {
    if (id) this.place = id;
    if (event === "message") {
      this.came.push(data);
      this.count = (this.count || 0) + 1;
      if (this.came.length > 2 * MOST) this.came = this.came.slice(-MOST);
    } else if (event === "lagged") {
      this.change({ notice: `${JSON.parse(data).missed} rows were missed: this browser was too slow. A filter makes them fewer.` });
    } else if (event === "gap") {
      this.change({ notice: `Rows may be missing: ${JSON.parse(data).reason}` });
    } else if (event === "error") {
      this.change({ notice: JSON.parse(data).detail });
    }
  }

  draw() {
    const came = this.count || 0;
    if (!came) return;
    this.count = 0;
    const { rows, total, held, paused } = this.view;
    if (paused) return this.change({ total: total + came, held: held + came });
    this.change({ rows: this.merged(rows), total: total + came });
  }

  /** The newest rows first, those gathered before those that were shown. Rows that would be dropped are not even read. */
  merged(rows) {
    const fresh = this.came.slice(-MOST).map((text) => JSON.parse(text)).reverse();
    this.came = [];
    return [...fresh, ...rows.slice(0, MOST - fresh.length)];
  }

  pause() {
    if (!this.view.paused) this.change({ paused: true, held: 0 });
  }

  resume() {
    this.change({ paused: false, held: 0, rows: this.merged(this.view.rows) });
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
        const refused = error.status >= 400 && error.status < 500 && error.status !== 408 && error.status !== 429;
        // A place that is not known any more is given up; a question that is refused stays refused.
        if (refused && from) this.place = "";
        else if (refused) return this.change({ state: "refused", error });
        else this.change({ notice: error.status ? error.message : "The Mixer cannot be reached." });
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
