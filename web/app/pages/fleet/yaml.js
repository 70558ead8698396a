// Reads the YAML that scenarios are written in: maps, lists, both in flow style, quoted and plain texts, block texts. Anchors, tags and
// several documents are refused. The Mixer has checked the text before; here it is only drawn.

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
    const from = at;
    const mark = text[at++];
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
    const [end, map] = text[at] === "{" ? ["}", {}] : ["]", null];
    const items = [];
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
