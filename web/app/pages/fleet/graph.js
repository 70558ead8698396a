// The layout of a scenario's graph: one lane for each Rack or group, gears from left to right as messages go.

/** @typedef {{ name: string, type: string, deploy: string, x: number, y: number }} GearBox */
export const BOX = { width: 150, height: 38, gapX: 70, gapY: 12, head: 24, pad: 12 };

/** The gear of `gear.port` or `rack.gear.port`. */
const gearOf = (port) => port.split(".").at(-2);

/** @returns {{ gears: GearBox[], places: any[], wires: any[], width: number, height: number }} */
export function layOut({ gears, wires }) {
  const byPlace = [...Map.groupBy(gears, ({ deploy }) => deploy)];
  const first = (of) => Math.min(...of.map(({ layer }) => layer));
  byPlace.sort((one, other) => first(one[1]) - first(other[1]));
  const boxes = new Map();
  let y = 0;
  const places = byPlace.map(([name, of]) => {
    const columns = Map.groupBy(of, ({ layer }) => layer);
    const rows = Math.max(...[...columns.values()].map((column) => column.length));
    for (const [at, column] of columns) {
      column.forEach((gear, row) => boxes.set(gear.name, { ...gear, x: BOX.pad + at * (BOX.width + BOX.gapX), y: y + BOX.head + row * (BOX.height + BOX.gapY) }));
    }
    const height = BOX.head + rows * (BOX.height + BOX.gapY) + BOX.pad - BOX.gapY;
    const place = { name, isGroup: of[0].is_group, y, height };
    y += height + BOX.gapY;
    return place;
  });
  const width = 2 * BOX.pad + (Math.max(0, ...gears.map(({ layer }) => layer)) + 1) * (BOX.width + BOX.gapX) - BOX.gapX;
  return { gears: [...boxes.values()], places, wires: wires.map((wire) => ({ ...wire, path: curve(boxes.get(gearOf(wire.from)), boxes.get(gearOf(wire.to))) })), width, height: y };
}

/** Of a wire, from the right side of one box to the left side of another. */
function curve(from, to) {
  const [x1, y1, x2, y2] = [from.x + BOX.width, from.y + BOX.height / 2, to.x, to.y + BOX.height / 2];
  const bend = Math.max(36, Math.abs(x2 - x1) / 2);
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 5} ${y2}`;
}
