// The lines in which two texts differ, with a few lines around them.

/** Lines around a difference that are shown. */
const AROUND = 3;
/** Pairs of lines that are compared at most; more would hold up the page. */
const MOST = 4_000_000;

/**
 * @returns {{ sign: "+" | "-" | " " | "…", text: string }[] | null} nothing if the texts are too different and too long to compare here
 */
export function lineDiff(before, after) {
  const [one, other] = [before.split("\n"), after.split("\n")];
  let [start, end] = [0, 0];
  while (start < one.length && start < other.length && one[start] === other[start]) start += 1;
  while (end < one.length - start && end < other.length - start && one.at(-1 - end) === other.at(-1 - end)) end += 1;
  const [left, right] = [one.slice(start, one.length - end), other.slice(start, other.length - end)];
  if (left.length * right.length > MOST) return null;
  const same = (text) => ({ sign: " ", text });
  return shorten([...one.slice(0, start).map(same), ...changed(left, right), ...one.slice(one.length - end).map(same)]);
}

/** The longest common subsequence of what is between, walked from its beginning. */
function changed(left, right) {
  const width = right.length + 1;
  const longest = new Uint32Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      longest[i * width + j] = left[i] === right[j] ? longest[(i + 1) * width + j + 1] + 1 : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const lines = [];
  let [i, j] = [0, 0];
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) [i, j] = [i + 1, j + 1, lines.push({ sign: " ", text: left[i] })];
    else if (j >= right.length || (i < left.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) lines.push({ sign: "-", text: left[i++] });
    else lines.push({ sign: "+", text: right[j++] });
  }
  return lines;
}

/** Leaves out lines that are far from every difference. */
function shorten(lines) {
  const near = new Uint8Array(lines.length);
  lines.forEach(({ sign }, at) => sign !== " " && near.fill(1, Math.max(0, at - AROUND), at + AROUND + 1));
  const shown = [];
  lines.forEach((line, at) => {
    if (near[at]) shown.push(line);
    else if (shown.at(-1)?.sign !== "…") shown.push({ sign: "…", text: "" });
  });
  return shown;
}
