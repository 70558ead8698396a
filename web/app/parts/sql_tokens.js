// The tokens of an SQL statement, for its colours, its parameters and its completion. What a statement means, the Mixer decides.

export const KEYWORDS = `SELECT FROM WHERE GROUP BY ORDER LIMIT OFFSET AS AND OR NOT IN IS NULL LIKE ILIKE BETWEEN EXISTS ANY ALL DISTINCT ON
  JOIN LEFT RIGHT FULL INNER OUTER CROSS USING LATERAL UNION INTERSECT EXCEPT HAVING WITH RECURSIVE VALUES CASE WHEN THEN ELSE END CAST INTERVAL
  DESC ASC NULLS FIRST LAST OVER PARTITION ROWS RANGE UNBOUNDED PRECEDING FOLLOWING CURRENT ROW FILTER WITHIN WINDOW EXTRACT AT TIME ZONE
  TIMESTAMP DATE TRUE FALSE SIMILAR TO ESCAPE ARRAY EXPLAIN ANALYZE DESCRIBE SHOW TABLES FETCH QUALIFY`.split(/\s+/);
const KEYWORD_SET = new Set(KEYWORDS);

const TOKEN = new RegExp(
  [
    String.raw`(?<comment>--[^\n]*|/\*[^]*?(?:\*/|$))`,
    String.raw`(?<string>[eExX]?'(?:[^']|'')*(?:'|$)|\$(?<tag>[A-Za-z_]*)\$[^]*?(?:\$\k<tag>\$|$))`,
    String.raw`(?<name>"(?:[^"]|"")*(?:"|$))`,
    String.raw`(?<param>\$[A-Za-z_0-9]+)`,
    String.raw`(?<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)`,
    String.raw`(?<word>[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)`,
    String.raw`(?<space>\s+)`,
    String.raw`(?<sign>[^])`,
  ].join("|"),
  "g",
);
const KINDS = ["space", "word", "sign", "string", "number", "comment", "name", "param"];

/** @typedef {{ text: string, at: number, kind: string }} Token */

/** @returns {Token[]} all of a text, in order; a word is a `keyword`, a `function` before a parenthesis, or else a `word` */
export function tokens(text) {
  const found = [];
  for (const match of text.matchAll(TOKEN)) {
    let kind = KINDS.find((kind) => match.groups[kind] !== undefined);
    if (kind === "word" && KEYWORD_SET.has(match[0].toUpperCase())) kind = "keyword";
    else if (kind === "word" && text[match.index + match[0].length] === "(") kind = "function";
    found.push({ text: match[0], at: match.index, kind });
  }
  return found;
}

/** @returns {string[]} the names of a statement's parameters without their `$`, in the order in which they first stand there */
export function parametersOf(text) {
  return [...new Set(tokens(text).filter(({ kind }) => kind === "param").map(({ text }) => text.slice(1)))];
}

/** The tables that a statement names after FROM, JOIN and commas, by their aliases and names. @returns {Map<string, string>} */
export function tablesOf(all) {
  const found = new Map();
  const words = all.filter(({ kind }) => kind !== "space" && kind !== "comment");
  let lists = false;
  words.forEach(({ text, kind }, at) => {
    const upper = text.toUpperCase();
    if (kind === "keyword" && !["AS", "JOIN"].includes(upper)) lists = upper === "FROM";
    const begins = (kind === "keyword" && ["FROM", "JOIN"].includes(upper)) || (lists && text === ",");
    if (!begins || !["word", "name"].includes(words[at + 1]?.kind)) return;
    let next = at + 2;
    let table = words[at + 1].text;
    if (words[next]?.text === "." && words[next + 1]) [table, next] = [`${table}.${words[next + 1].text}`, next + 2];
    if (words[next]?.text.toUpperCase() === "AS") next += 1;
    found.set(table, table);
    if (words[next]?.kind === "word") found.set(words[next].text, table);
  });
  return found;
}

/** The index in a text of a line and a column that count from 1, columns in characters. */
export function offsetOf(text, { line, column }) {
  const lines = text.split("\n");
  const before = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
  return Math.min(text.length, before + [...(lines[line - 1] || "")].slice(0, column - 1).join("").length);
}
