// A scenario's text as a drawing: reads the YAML that scenarios are written in (maps, lists, both in flow style, quoted, plain and block
// texts; anchors and tags are refused; the Mixer has checked the text before), and lays out one lane for each Rack or group, gears from
// left to right as messages go.

/** @returns {any} maps, lists and texts; throws an Error that names the line */
export function readYaml(text) {
  const lines = [];
  text.split(/\r?\n/).forEach((raw, number) => {
    lines.push({ raw, number: number + 1, indent: raw.search(/\S|$/), empty: /^\s*(#.*)?$/.test(raw) || /^(---|%)/.test(raw) });
  });
  const reader = new Reader(lines);
  const value = reader.block(0);
  if (reader.peek()) reader.fail("what follows is not understood");
  return value;
}

class Reader {
  constructor(lines) {
    this.lines = lines;
    this.at = 0;
  }

  fail(why) {
    throw new Error(`line ${this.lines[Math.min(this.at, this.lines.length - 1)].number}: ${why}`);
  }

  /** The next line that says something. */
  peek() {
    while (this.at < this.lines.length && this.lines[this.at].empty) this.at += 1;
    return this.lines[this.at];
  }

  /** A value whose lines begin at this column or further right. */
  block(least) {
    const line = this.peek();
    if (!line || line.indent < least) return null;
    const text = line.raw.slice(line.indent);
    if (/^-(\s|$)/.test(text)) return this.list(line.indent);
    if (/^[^\s"'[{&*!|>#][^#]*?:(\s|$)/.test(text) || /^("[^"]*"|'[^']*')\s*:(\s|$)/.test(text)) return this.map(line.indent);
    this.at += 1;
    return this.inline(text, line.indent - 1);
  }

  list(indent) {
    const items = [];
    for (let line = this.peek(); line && line.indent === indent && /^-(\s|$)/.test(line.raw.slice(indent)); line = this.peek()) {
      const rest = line.raw.slice(indent + 1);
      if (!rest.trim() || /^\s*#/.test(rest)) {
        this.at += 1;
        items.push(this.block(indent + 1));
      } else {
        // What follows the dash is a block of its own, further right.
        const raw = `${" ".repeat(indent + 1)}${rest}`;
        this.lines[this.at] = { ...line, raw, indent: raw.search(/\S/) };
        items.push(this.block(indent + 1));
      }
    }
    return items;
  }

  map(indent) {
    const found = {};
    for (let line = this.peek(); line && line.indent === indent; line = this.peek()) {
      /** @type {any} */
      const parts = /^("(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'[{&*!|>#][^#]*?)\s*:(?:\s+(.*))?$/.exec(line.raw.slice(indent));
      if (!parts) this.fail("a key and a colon are expected");
      this.at += 1;
      const rest = (parts[2] || "").trim();
      const key = String(scalar(parts[1]));
      if (rest && !rest.startsWith("#")) found[key] = this.inline(rest, indent);
      else found[key] = this.nested(indent);
    }
    return found;
  }

  /** What a key has in the lines below; a list may begin at the key's own column. */
  nested(indent) {
    const next = this.peek();
    if (next && next.indent === indent && /^-(\s|$)/.test(next.raw.slice(indent))) return this.list(indent);
    return this.block(indent + 1);
  }

  /** A value that begins in a line, and may go on in those that are further right. */
  inline(text, indent) {
    if (/^[&*!]/.test(text)) this.fail("anchors and tags are not read here");
    if (/^[|>]/.test(text)) return this.blockText(text, indent);
    let all = text;
    if (/^[[{"']/.test(text)) {
      for (let flow = readFlow(all); ; flow = readFlow(all)) {
        if (flow.done) return flow.value;
        if (this.at >= this.lines.length) this.fail("it is not closed");
        all += `\n${this.lines[this.at].raw.trim()}`;
        this.at += 1;
      }
    }
    for (let line = this.peek(); line && line.indent > indent && !/^-(\s|$)|:(\s|$)/.test(line.raw.trim()); line = this.peek()) {
      all += ` ${line.raw.trim()}`;
      this.at += 1;
    }
    return scalar(all.replace(/\s#.*$/, "").trim());
  }

  blockText(head, indent) {
    const taken = [];
    while (this.at < this.lines.length && (this.lines[this.at].indent > indent || !this.lines[this.at].raw.trim())) taken.push(this.lines[this.at++].raw);
    const inner = Math.min(...taken.filter((raw) => raw.trim()).map((raw) => raw.search(/\S/)));
    return taken.map((raw) => raw.slice(inner)).join(head[0] === "|" ? "\n" : " ").trimEnd();
  }
}

/** A plain or quoted text. */
function scalar(text) {
  if (/^".*"$/s.test(text)) return text.slice(1, -1).replace(/\\(.)/g, (_, one) => ({ n: "\n", t: "\t" })[one] || one);
  if (/^'.*'$/s.test(text)) return text.slice(1, -1).replaceAll("''", "'");
  return text === "" || text === "~" || text === "null" ? null : text;
}

/** Reads `{…}`, `[…]` or a quoted text from the beginning; not `done` while it is not closed. */
function readFlow(text) {
  let at = 0;
  const open = new Error("open");
  const skip = () => {
    for (;;) {
      if (/\s/.test(text[at] || "")) at += 1;
      else if (text[at] === "#" && /[\s,[{]/.test(text[at - 1] || " ")) while (at < text.length && text[at] !== "\n") at += 1;
      else return;
    }
  };
  const quoted = () => {
    const [from, mark] = [at, text[at++]];
    for (; at < text.length; at += 1) {
      if (mark === '"' && text[at] === "\\") at += 1;
      else if (text[at] === mark && mark === "'" && text[at + 1] === "'") at += 1;
      else if (text[at] === mark) return scalar(text.slice(from, ++at));
    }
    throw open;
  };
  const plain = () => {
    const from = at;
    while (at < text.length && !/[,\]}]/.test(text[at]) && !(text[at] === ":" && /[\s,\]}]|^$/.test(text[at + 1] || ""))) at += 1;
    return scalar(text.slice(from, at).trim());
  };
  const value = () => {
    skip();
    if (at >= text.length) throw open;
    if (text[at] === '"' || text[at] === "'") return quoted();
    if (text[at] !== "{" && text[at] !== "[") return plain();
    /** @type {any} */
    const [end, map, items] = text[at] === "{" ? ["}", {}, null] : ["]", null, []];
    at += 1;
    for (;;) {
      skip();
      if (at >= text.length) throw open;
      if (text[at] === end) break;
      const key = value();
      skip();
      let held = key;
      if (text[at] === ":") {
        at += 1;
        skip();
        held = /[,\]}]/.test(text[at] || "") ? null : value();
        if (!map) held = { [String(key)]: held };
      } else if (map) held = null;
      if (map) map[String(key)] = held;
      else items.push(held);
      skip();
      if (text[at] === ",") at += 1;
      else if (at < text.length && text[at] !== end) throw new Error(`"${text.slice(at, at + 20)}" is not understood`);
    }
    at += 1;
    return map || items;
  };
  try {
    return { value: value(), done: true };
  } catch (error) {
    if (error === open) return { done: false };
    throw error;
  }
}

/** @typedef {{ id: string, name: string, type: string, place: string, x: number, y: number }} GearBox */
export const BOX = { width: 150, height: 38, gapX: 70, gapY: 12, head: 24, pad: 12 };

/** The gears and wires of a scenario's text, as it was read. */
export function graphOf(scenario) {
  const gears = (scenario.gears || []).map(({ name, type, deploy }) => ({ id: String(name), name: String(name), type: String(type), place: String(deploy) }));
  const groups = new Set((scenario.racks || []).filter(({ group }) => group).map(({ group }) => String(group)));
  const places = new Map(gears.map(({ id, place }) => [id, place]));
  const end = (text) => {
    const parts = String(text).split(".");
    return { gear: parts.at(-2), port: parts.at(-1) };
  };
  const wires = (scenario.wires || []).map(({ from, to, lane, max_bytes, max_age, overflow }) => {
    const [source, target] = [end(from), end(to)];
    const same = places.get(source.gear) === places.get(target.gear);
    return { from: source, to: target, lane: lane || (same ? "hot" : "guaranteed"), limits: [max_bytes && `${max_bytes} bytes`, max_age, overflow].filter(Boolean).join(", ") };
  });
  return { gears, wires, groups };
}

/** How many gears a message has passed before each, at most; wires that go back do not count. */
function depths(gears, wires) {
  const next = Map.groupBy(wires, ({ from }) => from.gear);
  const depth = new Map(gears.map(({ id }) => [id, 0]));
  const state = new Map();
  const order = [];
  for (const { id } of gears) {
    const stack = state.has(id) ? [] : [[id, 0]];
    if (stack.length) state.set(id, "open");
    while (stack.length) {
      const top = stack.at(-1);
      const wire = (next.get(top[0]) || [])[top[1]];
      if (!wire) {
        state.set(top[0], "done");
        order.push(stack.pop()[0]);
      } else {
        top[1] += 1;
        if (state.get(wire.to.gear) === "open") wire.back = true;
        else if (depth.has(wire.to.gear) && !state.has(wire.to.gear)) {
          state.set(wire.to.gear, "open");
          stack.push([wire.to.gear, 0]);
        }
      }
    }
  }
  for (const id of order.reverse()) {
    for (const { to, back } of next.get(id) || []) if (!back && depth.has(to.gear)) depth.set(to.gear, Math.max(depth.get(to.gear), depth.get(id) + 1));
  }
  return depth;
}

/** @returns {{ gears: GearBox[], places: any[], wires: any[], width: number, height: number }} */
export function layOut({ gears, wires, groups }) {
  const depth = depths(gears, wires);
  const byPlace = [...Map.groupBy(gears, ({ place }) => place)];
  const first = (of) => Math.min(...of.map(({ id }) => depth.get(id)));
  byPlace.sort((one, other) => first(one[1]) - first(other[1]));
  const boxes = new Map();
  let y = 0;
  const places = byPlace.map(([name, of]) => {
    const columns = Map.groupBy(of, ({ id }) => depth.get(id));
    const rows = Math.max(...[...columns.values()].map((column) => column.length));
    for (const [at, column] of columns) {
      column.forEach((gear, row) => boxes.set(gear.id, { ...gear, x: BOX.pad + at * (BOX.width + BOX.gapX), y: y + BOX.head + row * (BOX.height + BOX.gapY) }));
    }
    const height = BOX.head + rows * (BOX.height + BOX.gapY) + BOX.pad - BOX.gapY;
    const place = { name, isGroup: groups.has(name), y, height };
    y += height + BOX.gapY;
    return place;
  });
  const width = 2 * BOX.pad + (Math.max(0, ...depth.values()) + 1) * (BOX.width + BOX.gapX) - BOX.gapX;
  return { gears: [...boxes.values()], places, wires: wires.flatMap((wire) => drawn(wire, boxes)), width, height: y };
}

/** The curve of a wire. */
function drawn(wire, boxes) {
  const [from, to] = [boxes.get(wire.from.gear), boxes.get(wire.to.gear)];
  if (!from || !to) return [];
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = Math.max(36, Math.abs(x2 - x1) / 2);
  return [{ ...wire, path: `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 5} ${y2}` }];
}
