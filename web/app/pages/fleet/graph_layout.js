// Where gears and wires of a scenario are drawn: one lane for each Rack or group, gears from left to right as messages go.

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
