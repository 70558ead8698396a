// What a bench sees of the page: its long tasks, and when something is in the document and painted. It runs before the page's own scripts.
globalThis.bench = (() => {
  const tasks = [];
  const keep = (entries) => entries.forEach(({ duration }) => tasks.push(duration));
  const observer = new PerformanceObserver((list) => keep(list.getEntries()));
  observer.observe({ type: "longtask", buffered: true });

  const frame = () => new Promise((go) => requestAnimationFrame(go));
  const firstRow = () => document.querySelector('[aria-label="Log records"] [role=rowgroup] [role=cell]')?.textContent;
  const HISTOGRAM = '[aria-label="Records over time"]';
  const counted = () => document.querySelector(`${HISTOGRAM} .bar b`)?.parentElement.textContent;
  // A drawing is no change of the document: each begins with an empty canvas.
  let [draws, drawn] = [0, () => {}];
  const { clearRect } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...area) {
    clearRect.apply(this, area);
    if (!this.canvas.closest(HISTOGRAM)) return;
    draws += 1;
    // The library draws on until its microtask ends.
    queueMicrotask(() => drawn());
  };
  /** Whether the histogram is drawn anew since it says something else than `old`. */
  const redrawnSince = (old) => {
    let before = null;
    return () => {
      if ([undefined, old].includes(counted())) return false;
      before ??= draws;
      return draws > before;
    };
  };

  /** Milliseconds from `from` (at first: since the navigation began) until the mutation of the document that made `test` true, and until the frame after it was painted. */
  const until = (test, from = 0) =>
    new Promise((done, failed) => {
      const timer = setTimeout(() => failed(new Error(`waited in vain for ${test}`)), 25_000);
      const look = () => {
        if (!test()) return;
        watched.disconnect();
        drawn = () => {};
        clearTimeout(timer);
        const shown = performance.now() - from;
        requestAnimationFrame(() => {
          const { port1, port2 } = new MessageChannel();
          port1.onmessage = () => done([shown, performance.now() - from]);
          port2.postMessage(0);
        });
      };
      const watched = new MutationObserver(look);
      drawn = look;
      watched.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
      look();
    });

  /** The same from a change of the address on. */
  const go = (view, test) => {
    const shown = until(test, performance.now());
    location.hash = view;
    return shown;
  };

  /** Waits until nothing is awaited in some frames one after the other. */
  const calm = async () => {
    for (let [quiet, frames] = [0, 0]; quiet < 6; frames += 1) {
      if (frames > 1_500) throw new Error("the page still waits for something");
      await frame();
      quiet = document.querySelector(".waiting") ? 0 : quiet + 1;
    }
  };

  return {
    until,
    go,
    calm,
    /** Other rows of logs. */
    rows: (view, old = firstRow()) => go(view, () => ![undefined, old].includes(firstRow())),
    /** Another histogram of logs. */
    histogram: (view) => go(view, redrawnSince(counted())),
    /** How long the tasks of more than 50 ms took since this was last asked. */
    tasks: async () => {
      await frame();
      await frame();
      keep(observer.takeRecords());
      return tasks.splice(0);
    },
    /** Scrolls a list from its beginning to its end, a step a frame; the number of the last row and the most elements that the document had. */
    scroll: async (list, steps) => {
      const box = document.querySelector(list);
      let most = 0;
      for (let step = 0; step <= steps; step += 1) {
        box.scrollTop = (step / steps) * box.scrollHeight;
        await frame();
        most = Math.max(most, document.querySelectorAll("*").length);
      }
      await calm();
      const rows = [...box.querySelectorAll("[aria-rowindex]")];
      return [Math.max(...rows.map((row) => Number(row.ariaRowIndex))), most];
    },
    /** Asks for more of a cut value until all of it is there; how often, and how many characters are shown. */
    unfold: async (box) => {
      const more = () => [...document.querySelectorAll(`${box} button`)].find(({ textContent }) => /^show (more|all)/i.test(textContent.trim()));
      let presses = 0;
      for (; more() && presses < 60; presses += 1) {
        more().click();
        await calm();
      }
      // It is drawn piece by piece.
      const pieces = () => document.querySelectorAll(`${box} .piece`).length;
      for (let [quiet, before] = [0, 0]; quiet < 30; before = pieces()) {
        await frame();
        quiet = pieces() === before ? quiet + 1 : 0;
      }
      return [presses, document.querySelector(box).textContent.length];
    },
    /** Rows that came by live tail. */
    came: () => Number((/([\d,]+) came/.exec(document.querySelector("main").textContent) || ["", "0"])[1].replaceAll(",", "")),
  };
})();
