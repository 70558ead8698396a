// An application that exports with OpenTelemetry's SDK for JavaScript, and says what it exported: for each record the row that is to be stored.
//
// usage: opentelemetry.mjs grpc|proto|json logs|traces|metrics ENDPOINT RECORDS (in a folder beside node_modules)

import { createRequire } from "node:module";
import process from "node:process";

const require = createRequire(`${process.cwd()}/`);
const [way, signal, endpoint, count] = process.argv.slice(2);
const api = require("@opentelemetry/api");
const { resourceFromAttributes } = require("@opentelemetry/resources");

const SERVICE = `node-${way}`;
const RESOURCE = { "service.name": SERVICE, "host.cpus": 4, tags: ["a", "b"], ratio: 0.5, "is.test": true };
const SCOPE = { "otel.scope.name": "sender", "otel.scope.version": "1.2" };
const BATCH = 10;
// Some minutes ago: what is old is not kept, and what is yet to come gets another time.
const BEGIN = (BigInt(Math.floor(Date.now() / 1000)) - 600n) * 1_000_000_000n + 123_456_789n;
const records = Number(count);
const resource = resourceFromAttributes(RESOURCE);

/** An exporter of the chosen package. */
function exporter(name, kind) {
  const suffix = { grpc: "grpc", proto: "proto", json: "http" }[way];
  const Exporter = require(`@opentelemetry/exporter-${name}-otlp-${suffix}`)[kind];
  const url = way === "grpc" ? endpoint : `${endpoint}/v1/${signal}`;
  return new Exporter({ url, timeoutMillis: 300_000 });
}

const hr = (nanos) => [Number(nanos / 1_000_000_000n), Number(nanos % 1_000_000_000n)];
const micros = ([seconds, nanos]) => `${new Date(seconds * 1000).toISOString().slice(0, 19)}.${String(nanos).padStart(9, "0").slice(0, 6)}Z`;
const nanosText = ([seconds, nanos]) => `${new Date(seconds * 1000).toISOString().slice(0, 19)}.${String(nanos).padStart(9, "0")}Z`;

/** Attributes as they are stored. */
function flat(attributes, prefix = "") {
  const found = {};
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value instanceof Uint8Array) found[prefix + key] = Buffer.from(value).toString("base64");
    else if (value !== null && typeof value === "object" && !Array.isArray(value)) Object.assign(found, flat(value, `${prefix}${key}.`));
    else found[prefix + key] = value;
  }
  return found;
}

const shared = () => ({ ...flat(RESOURCE, "resource."), ...SCOPE });
const say = (row) => console.log(JSON.stringify(row));
/** The shortest number that is the same with 32 bits. */
const single = (value) => {
  for (let digits = 1; ; digits++) {
    const short = Number(Math.fround(value).toPrecision(digits));
    if (Math.fround(short) === Math.fround(value)) return short;
  }
};

async function logs() {
  const { LoggerProvider, BatchLogRecordProcessor } = require("@opentelemetry/sdk-logs");
  const processor = new BatchLogRecordProcessor({ exporter: exporter("logs", "OTLPLogExporter"), maxExportBatchSize: BATCH, exportTimeoutMillis: 300_000 });
  const provider = new LoggerProvider({ resource, processors: [processor] });
  const logger = provider.getLogger("sender", "1.2");
  const levels = [[1, "debug"], [9, "info"], [13, "warn"], [21, "error"]];
  for (let number = 0; number < records; number++) {
    const [severityNumber, level] = levels[number % 4];
    const isMap = number % 2 === 1;
    const body = isMap ? { code: number, in: { a: [1, "b"] } } : `line ${number} ä\n`;
    const attributes = { number, half: number + 0.5, flag: number % 3 === 0, list: ["x", "y"], map: { k: { deep: "v" } }, bytes: new Uint8Array([1, 2, 3]) };
    const timestamp = hr(BEGIN + BigInt(number) * 1_000_001n);
    const spanContext = { traceId: (number + 1).toString(16).padStart(32, "0"), spanId: (number + 2).toString(16).padStart(16, "0"), traceFlags: 1 };
    const context = api.trace.setSpanContext(api.ROOT_CONTEXT, spanContext);
    logger.emit({ timestamp, observedTimestamp: timestamp, severityNumber, body, attributes, context, eventName: isMap ? "event.done" : undefined });
    const expected = { ...shared(), ...flat(attributes), trace_id: spanContext.traceId, span_id: spanContext.spanId };
    if ([1, 21].includes(severityNumber)) expected["otel.severity_number"] = severityNumber;
    if (isMap) Object.assign(expected, { "body.code": number, "body.in.a": [1, "b"], "otel.body.type": "map", "otel.event.name": "event.done" });
    say({ ts: micros(timestamp), entity_name: SERVICE, level, message: isMap ? "event.done" : body, attributes: expected });
    if (number % BATCH === BATCH - 1) await provider.forceFlush();
  }
  await provider.shutdown();
}

async function traces() {
  const { BasicTracerProvider, BatchSpanProcessor } = require("@opentelemetry/sdk-trace-base");
  const inner = exporter("trace", "OTLPTraceExporter");
  const processor = new BatchSpanProcessor(inner, { maxExportBatchSize: BATCH, exportTimeoutMillis: 300_000 });
  const provider = new BasicTracerProvider({ resource, spanProcessors: [processor] });
  const tracer = provider.getTracer("sender", "1.2");
  const kinds = ["internal", "server", "client", "producer", "consumer"];
  for (let number = 0; number < records; number++) {
    const begin = BEGIN + BigInt(number) * 1_000_003n;
    const end = begin + BigInt(number) * 1_234_567n;
    const links = number % 2 ? [{ context: { traceId: "7".padStart(32, "0"), spanId: "8".padStart(16, "0"), traceFlags: 1 }, attributes: { why: "batch" } }] : [];
    const span = tracer.startSpan(`step ${number % 3}`, { kind: number % 5, attributes: { number }, links, startTime: hr(begin), root: true });
    const expected = { ...shared(), number, "span.kind": kinds[number % 5] };
    if (number % 4 === 1) span.setStatus({ code: api.SpanStatusCode.ERROR, message: "broke" });
    if (number % 4 === 1) expected["otel.status_description"] = "broke";
    if (number % 4 === 2) span.setStatus({ code: api.SpanStatusCode.OK });
    if (number % 4 === 2) expected["otel.status_code"] = "OK";
    if (number % 2 === 0) {
      span.addEvent("event", { n: number }, hr(begin + 1n));
      expected["otel.events"] = [{ time: nanosText(hr(begin + 1n)), name: "event", attributes: { n: number } }];
    } else {
      expected["otel.links"] = [{ trace_id: "7".padStart(32, "0"), span_id: "8".padStart(16, "0"), attributes: { why: "batch" } }];
    }
    span.end(hr(end));
    const { traceId, spanId } = span.spanContext();
    say({
      ts: micros(hr(begin)), entity_name: SERVICE, trace_id: traceId, span_id: spanId, parent_span_id: null, span_name: `step ${number % 3}`,
      duration_ms: single(Number(end - begin) / 1e6), status: number % 4 === 1 ? "error" : "ok", attributes: expected,
    });
    // The provider does not wait for a batch that is under way.
    if (number % BATCH === BATCH - 1) await inner.forceFlush();
  }
  await provider.shutdown();
}

/** The row of a point as the SDK exports it. */
function pointRow(metric, point) {
  const { DataPointType } = require("@opentelemetry/sdk-metrics");
  const { name, unit } = metric.descriptor;
  const labels = { ...shared(), ...flat(point.attributes), "otel.start_time": nanosText(point.startTime) };
  if (unit) labels["otel.unit"] = unit;
  let [kind, value] = ["gauge", point.value];
  if (metric.dataPointType === DataPointType.SUM) {
    kind = metric.isMonotonic ? "counter" : "gauge";
    if (!metric.isMonotonic) labels["otel.monotonic"] = false;
  } else if (metric.dataPointType !== DataPointType.GAUGE) {
    kind = "histogram";
    value = point.value.sum;
    Object.assign(labels, { "otel.count": point.value.count, "otel.min": point.value.min, "otel.max": point.value.max });
  }
  if (metric.dataPointType === DataPointType.HISTOGRAM) {
    Object.assign(labels, { "otel.bounds": point.value.buckets.boundaries, "otel.buckets": point.value.buckets.counts });
  }
  if (metric.dataPointType === DataPointType.EXPONENTIAL_HISTOGRAM) {
    labels["otel.scale"] = point.value.scale;
    if (point.value.zeroCount) labels["otel.zero_count"] = point.value.zeroCount;
    for (const half of ["positive", "negative"]) {
      const { offset, bucketCounts } = point.value[half];
      if (bucketCounts.length) Object.assign(labels, { [`otel.${half}.offset`]: offset, [`otel.${half}.counts`]: bucketCounts });
    }
  }
  return { ts: micros(point.endTime), entity_name: SERVICE, name, type: kind, value, labels };
}

async function metrics() {
  const { MeterProvider, PeriodicExportingMetricReader, AggregationType } = require("@opentelemetry/sdk-metrics");
  const inner = exporter("metrics", "OTLPMetricExporter");
  const exported = inner.export.bind(inner);
  inner.export = (data, done) => {
    for (const scope of data.scopeMetrics) {
      for (const metric of scope.metrics) metric.dataPoints.forEach((point) => say(pointRow(metric, point)));
    }
    exported(data, done);
  };
  const reader = new PeriodicExportingMetricReader({ exporter: inner, exportIntervalMillis: 600_000, exportTimeoutMillis: 300_000 });
  const views = [{ instrumentName: "sizes", aggregation: { type: AggregationType.EXPONENTIAL_HISTOGRAM } }];
  const provider = new MeterProvider({ resource, readers: [reader], views });
  const meter = provider.getMeter("sender", "1.2");
  const requests = meter.createCounter("requests", { unit: "1", description: "is not stored" });
  const open = meter.createUpDownCounter("open");
  const load = meter.createGauge("load", { unit: "%" });
  const [times, sizes] = [meter.createHistogram("times", { unit: "s" }), meter.createHistogram("sizes", { unit: "By" })];
  for (let round = 0; round < Math.max(Math.floor(records / 10), 1); round++) {
    for (const zone of ["a", "b"]) {
      requests.add(round + 1, { zone });
      open.add(-round, { zone });
      load.record(round / 4, { zone });
      times.record(0.1 * round, { zone });
      sizes.record(3 ** (round % 20), { zone });
    }
    await provider.forceFlush();
  }
  await provider.shutdown();
}

await { logs, traces, metrics }[signal]();
