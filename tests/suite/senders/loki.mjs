// An application that logs with a client of Loki for JavaScript, and says for each record the row that is to be stored.
//
// usage: loki.mjs winston-proto|winston-json|pino URL RECORDS (in a folder beside node_modules)

import { createRequire } from "node:module";
import process from "node:process";

const require = createRequire(`${process.cwd()}/`);
const [way, host, count] = process.argv.slice(2);
const records = Number(count);
const HOST = way;
const TRACE = "0af7651916cd43dd8448eb211c80319c";
const micros = (millis) => new Date(millis).toISOString().replace("Z", "000Z");
const say = (row) => console.log(JSON.stringify(row));

/** Records as winston-loki sends them; in JSON with what is not a label as structured metadata. */
async function winston(json) {
  const { createLogger, format } = require("winston");
  const LokiTransport = require("winston-loki");
  let failed;
  const transport = new LokiTransport({
    host, json, interval: 1, labels: { host: HOST, plant: "nörth" }, format: format.printf((entry) => entry.message), replaceTimestamp: false, gracefulShutdown: false,
    onConnectionError: (error) => { failed = error; },
  });
  const logger = createLogger({ level: "debug", transports: [transport] });
  const begin = Date.now() - 600_000;
  const levels = ["debug", "info", "warn", "error"];
  for (let number = 0; number < records; number++) {
    const level = levels[number % 4];
    const entry = { level, message: `line ${number} ä`, timestamp: begin + number, number, nested: { list: [1, "b"] }, labels: { zone: `z${number % 2}`, trace_id: TRACE } };
    const attributes = { level, host: HOST, plant: "nörth", ...entry.labels };
    if (json) Object.assign(attributes, { number: `${number}`, nested: JSON.stringify(entry.nested) });
    logger.log(entry);
    say({ ts: micros(entry.timestamp), entity_name: HOST, level, message: entry.message, attributes });
  }
  await new Promise((done) => logger.on("finish", done).end());
  await transport.close();
  if (failed) throw failed;
  if (transport.batcher.options.json !== json) throw new Error("it fell back to JSON");
}

/** Records as pino-loki sends them: the whole line, with labels and structured metadata out of it. */
async function pino() {
  const { pinoLoki } = require("pino-loki");
  const pino = require("pino");
  const options = { host, labels: { host: HOST }, batching: { interval: 1 }, propsToLabels: ["zone"], structuredMetaKey: "meta", silenceErrors: false };
  const transport = pinoLoki(options);
  // pino's own time, which is at the same place in the line that it writes.
  const lines = { write: (line) => { written.push(JSON.parse(line)); transport.write(line); } };
  const written = [];
  const logger = pino({ level: "trace", base: undefined }, lines);
  const levels = [["trace", "debug", "debug"], ["info", "info", "info"], ["warn", "warning", "warn"], ["fatal", "critical", "error"]];
  for (let number = 0; number < records; number++) {
    const [said, label, level] = levels[number % 4];
    logger[said]({ number, zone: `z${number % 2}`, meta: { trace_id: TRACE } }, `line ${number} ä`);
    const line = written.at(-1);
    const attributes = { level: label, host: HOST, zone: `z${number % 2}`, trace_id: TRACE };
    say({ ts: micros(line.time), entity_name: HOST, level, message: JSON.stringify(line), attributes });
  }
  await new Promise((done) => transport.on("close", done).end());
}

await { "winston-proto": () => winston(false), "winston-json": () => winston(true), pino }[way]();
