//! Schemas of bodies and answers. Rows are made of the tables' columns.

use model::{
    ColumnType, Level, MessageDirection, MetricType, SpanId, SpanStatus, Table, TableColumn, TraceId, inline_schema,
};
use serde_json::{Map, Value, json};

use super::{control_schemas, dlq_schemas, iceberg_schemas, jaeger_schemas};

/// Every schema of the document.
pub(super) fn all() -> Map<String, Value> {
    let mut all = Map::new();
    let parts = [
        basics(),
        rows(),
        lists(),
        events(),
        sent(),
        sql(),
        control_schemas::control(),
        control_schemas::change_requests(),
        dlq_schemas::all(),
        jaeger_schemas::all(),
        iceberg_schemas::all(),
        control_schemas::operation(),
    ];
    for part in parts {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    all
}

/// The schema of a record that is sent.
pub(super) const fn record_name(table: Table) -> &'static str {
    match table {
        Table::Traces => "SpanSent",
        Table::Metrics => "PointSent",
        _ => "LogSent",
    }
}

pub(super) fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

pub(super) fn text() -> Value {
    json!({ "type": "string" })
}

pub(super) fn time() -> Value {
    json!({ "type": "string", "format": "date-time" })
}

pub(super) fn count() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

pub(super) fn counts(names: &[&str]) -> Map<String, Value> {
    names.iter().map(|name| ((*name).to_owned(), count())).collect()
}

pub(super) fn or_null(mut schema: Value) -> Value {
    if let Some(kind) = schema.get("type").cloned() {
        schema["type"] = json!([kind, "null"]);
        return schema;
    }
    json!({ "anyOf": [schema, { "type": "null" }] })
}

/// An object that has all of these properties.
pub(super) fn object(properties: Value) -> Value {
    let required: Vec<_> = properties
        .as_object()
        .into_iter()
        .flat_map(Map::keys)
        .cloned()
        .collect();
    json!({ "type": "object", "required": required, "properties": properties })
}

/// An answer that is one thing.
pub(super) fn one(of: &Value) -> Value {
    object(json!({ "data": of }))
}

pub(super) fn list(of: Value) -> Value {
    json!({ "type": "array", "items": of })
}

fn basics() -> Value {
    let mut stats = counts(&[
        "files_considered",
        "files_pruned",
        "files_read",
        "bytes_read",
        "cache_hits",
        "hot_rows",
        "rows_scanned",
        "rows",
        "ms",
    ]);
    let required: Vec<_> = stats.keys().cloned().collect();
    stats.insert("partial".to_owned(), text());
    let bad = json!({ "anyOf": [
        object(json!({ "parameter": text(), "detail": text() })),
        object(json!({ "row": count(), "reason": text() })),
        object(json!({ "line": count(), "column": count(), "detail": text() })),
        object(json!({ "code": count(), "msg": text() })),
    ] });
    let problem = json!({
        "type": { "const": "about:blank" },
        "title": text(),
        "status": { "type": "integer", "minimum": 207, "maximum": 599 },
        "code": { "type": "string", "description": "A stable code for programs." },
        "detail": text(),
    });
    let mut problem = object(problem);
    problem["properties"]["errors"] = list(bad);
    // Where a statement went wrong, counted from 1.
    let at = json!({ "type": "integer", "minimum": 1 });
    problem["properties"]["position"] = object(json!({ "line": at, "column": at }));
    // What became of a body's rows.
    for (name, schema) in row_counts() {
        problem["properties"][name] = schema;
    }
    json!({
        "Problem": problem,
        "Stats": {
            "description": "What the answer cost; `partial` says why rows are missing.",
            "type": "object", "required": required, "properties": stats,
        },
        "Any": {},
        "Number": { "description": "Numbers that JSON lacks are their names.",
                    "anyOf": [{ "type": "number" }, { "enum": ["NaN", "inf", "-inf"] }] },
        "Fields": { "description": "A flat JSON object with dotted keys.", "type": "object" },
    })
}

/// A text, or the words of a column that has few.
fn words(column: &str) -> Value {
    match column {
        "level" => inline_schema::<Level>(),
        "status" => inline_schema::<SpanStatus>(),
        "type" => inline_schema::<MetricType>(),
        "direction" => inline_schema::<MessageDirection>(),
        _ => text(),
    }
}

fn value(column: &TableColumn) -> Value {
    let value = match column.kind {
        ColumnType::Time => time(),
        ColumnType::Uuid => json!({ "type": "string", "format": "uuid" }),
        ColumnType::Json => reference("Fields"),
        ColumnType::Float | ColumnType::Double => reference("Number"),
        ColumnType::Blob => json!({ "type": "string", "contentEncoding": "base16" }),
        ColumnType::Text | ColumnType::Word => words(column.name),
    };
    if column.nullable { or_null(value) } else { value }
}

fn row(table: Table) -> Value {
    let columns = table.columns().iter();
    let properties: Map<_, _> = columns.map(|column| (column.name.to_owned(), value(column))).collect();
    object(properties.into())
}

/// What rows of lists have where it is asked for: their positions, and what was cut of them.
fn add_shown(row: &mut Value) {
    row["properties"]["position"] = text();
    row["properties"]["cut"] = cut();
}

/// The sizes of cut cells.
fn cut() -> Value {
    json!({ "description": "The whole sizes of cells that `cells` cut, in bytes.", "type": "object", "additionalProperties": count() })
}

/// A row of a list.
fn listed_row(table: Table) -> Value {
    let mut row = row(table);
    add_shown(&mut row);
    row
}

/// A message's bytes as they are shown.
fn raw() -> Value {
    json!({ "description": "As `raw` says: a text, with `json` an object; absent with `none`.", "type": ["string", "object"] })
}

/// What a signal has, of any kind: the columns of all of them, those that a row may lack not required.
fn item() -> Value {
    let mut properties = Map::from_iter([("kind".to_owned(), json!({ "enum": ["message", "span", "log"] }))]);
    for table in [Table::Messages, Table::Traces, Table::Logs] {
        let columns = table.columns().iter().map(|column| TableColumn {
            nullable: false,
            ..*column
        });
        properties.extend(columns.map(|column| (column.name.to_owned(), value(&column))));
    }
    properties.insert("raw_msg".to_owned(), raw());
    properties.insert("cut".to_owned(), cut());
    json!({
        "description": "What it lacks, and what is null, is left out.",
        "type": "object", "required": ["kind", "ts", "entity_id", "entity_name"], "properties": properties, "additionalProperties": false,
    })
}

fn rows() -> Value {
    let mut message = row(Table::Messages);
    message["properties"]["raw_msg"] = raw();
    if let Some(required) = message["required"].as_array_mut() {
        required.retain(|name| name != "raw_msg");
    }
    let mut summed = json!({
        "ts": time(), "name": text(), "type": inline_schema::<MetricType>(), "value": or_null(reference("Number")), "samples": count(),
    });
    let bucket = {
        let mut bucket = object(summed.clone());
        for name in ["entity_name", "entity_id"] {
            bucket["properties"][name] = or_null(text());
        }
        for name in ["count", "sum", "p50", "p90", "p99"] {
            bucket["properties"][name] = or_null(reference("Number"));
        }
        bucket["properties"]["labels"] = reference("Fields");
        bucket
    };
    if let Some(summed) = summed.as_object_mut() {
        summed.remove("value");
        summed.insert("interval".to_owned(), text());
        summed.insert("values".to_owned(), list(or_null(reference("Number"))));
        summed.insert("samples".to_owned(), list(count()));
    }
    let mut counted = object(json!({ "ts": time(), "count": count() }));
    counted["properties"]["level"] = inline_schema::<Level>();
    counted["properties"]["entity_name"] = text();
    add_shown(&mut message);
    json!({
        "Log": listed_row(Table::Logs),
        "Span": listed_row(Table::Traces),
        "Node": { "description": "A span, with 0 for a root and for one whose parent is not stored, else one more than its parent has.",
                  "allOf": [reference("Span"), object(json!({ "depth": count() }))] },
        "Point": row(Table::Metrics),
        "Bucket": bucket,
        "Line": object(summed),
        "Message": message,
        "Item": item(),
        "DeadLetter": listed_row(Table::DeadLetters),
        "Count": counted,
        "Value": object(json!({ "value": reference("Any"), "count": count() })),
        "FieldCount": object(json!({ "field": text(), "count": count() })),
        "Service": object(json!({ "service": text(), "spans": count(), "errors": count(), "p50_ms": reference("Number"),
                                  "p99_ms": reference("Number"), "last_seen": time() })),
        "Dependency": object(json!({ "caller": text(), "callee": text(), "calls": count(), "errors": count() })),
        "Name": object(json!({ "name": text(), "type": inline_schema::<MetricType>(), "count": count() })),
        "Key": object(json!({ "key": text(), "values": count(), "count": count() })),
        "Exemplar": object(json!({ "ts": time(), "value": or_null(reference("Number")), "trace_id": or_null(text()), "span_id": or_null(text()),
                                   "entity_name": text(), "labels": reference("Fields"), "attributes": reference("Fields") })),
    })
}

/// A list, with more beside it.
pub(super) fn answer(of: Value, beside: &Value) -> Value {
    let mut properties = json!({ "data": list(of), "next_cursor": or_null(text()), "stats": reference("Stats") });
    if let (Some(properties), Some(beside)) = (properties.as_object_mut(), beside.as_object()) {
        properties.extend(beside.clone());
    }
    let mut answer = object(properties);
    answer["properties"]["partial"] = text();
    answer
}

/// A list of rows, or those around one of them.
fn page(of: &str) -> Value {
    let mut page = answer(reference(of), &json!({}));
    let flag = json!({ "type": "boolean" });
    page["properties"]["around"] = object(json!({
        "position": text(), "row": or_null(count()), "more_before": flag, "more_after": flag,
    }));
    page
}

fn lists() -> Value {
    let none = json!({});
    let metric = object(json!({
        "name": text(), "type": inline_schema::<MetricType>(), "unit": or_null(text()), "label_keys": list(text()),
    }));
    let flag = || json!({ "type": "boolean" });
    let trace = object(json!({
        "trace_id": text(), "spans": count(), "truncated": flag(), "logs": count(), "logs_truncated": flag(),
    }));
    let signal = object(json!({
        "flux_id": { "type": "string", "format": "uuid" }, "trace_ids": list(text()), "trace_ids_truncated": flag(),
    }));
    let points = || json!({ "anyOf": [reference("Point"), reference("Bucket"), reference("Line")] });
    json!({
        "Logs": page("Log"),
        "Spans": page("Span"),
        "Trace": answer(reference("Node"), &json!({ "trace": trace, "logs": list(reference("Log")) })),
        "Points": answer(points(), &none),
        "Metric": answer(points(), &json!({ "metric": metric })),
        "Messages": page("Message"),
        "Signal": answer(reference("Item"), &json!({ "flux": signal })),
        "DeadLetters": page("DeadLetter"),
        "Histogram": answer(reference("Count"), &json!({ "histogram": object(json!({ "interval": text() })) })),
        "Values": answer(reference("Value"), &none),
        "FieldCounts": answer(reference("FieldCount"), &none),
        "Services": answer(reference("Service"), &none),
        "Dependencies": answer(reference("Dependency"), &none),
        "Names": answer(reference("Name"), &none),
        "Keys": answer(reference("Key"), &none),
        "Exemplars": answer(reference("Exemplar"), &none),
    })
}

/// The events of the tails: rows, and what all tails say beside them.
fn events() -> Value {
    json!({ "LogEvent": event("Log"), "MessageEvent": event("Message"), "TapEvent": tap_event() })
}

/// The data of an event.
fn event_data(of: &Value) -> Value {
    json!({ "type": "string", "contentMediaType": "application/json", "contentSchema": of })
}

/// An event of a tap.
fn tap_event() -> Value {
    let row = object(json!({
        "ts": time(),
        "flux_id": { "type": "string", "format": "uuid" },
        "message_id": { "type": "string", "format": "uuid" },
        "content_type": {},
        "meta": reference("Fields"),
        "meta_cut": { "type": "boolean" },
        "encoding": { "enum": ["json", "text", "hex"] },
        "body": {},
        "bytes": or_null(count()),
        "cut": { "type": "boolean" },
    }));
    let named = |name: &str, of: &Value| json!({ "required": ["event"], "properties": { "event": { "const": name }, "data": event_data(of) } });
    json!({
        "description": "An event without a name, or `message`, is a message.",
        "type": "object",
        "required": ["data"],
        "anyOf": [
            { "properties": { "event": { "const": "message" }, "data": event_data(&row) } },
            named("lagged", &object(json!({ "missed": count() }))),
            named("error", &object(json!({ "detail": text() }))),
        ],
    })
}

/// An event of a tail of rows of a schema.
fn event(row: &str) -> Value {
    let named = |name: &str, required: &[&str], of: Value| json!({ "required": required, "properties": { "event": { "const": name }, "data": event_data(&of) } });
    let mut lagged = object(json!({ "missed": count(), "resume": text() }));
    lagged["properties"]["unseen"] = count();
    let gap = object(json!({ "from": or_null(text()), "since": time(), "reason": text() }));
    json!({
        "description": "An event without a name, or `message`, is a row. Comments carry an `id` too.",
        "type": "object",
        "required": ["data"],
        "properties": { "id": text(), "retry": count() },
        "anyOf": [
            named("message", &["id"], reference(row)),
            named("lagged", &["id", "event"], lagged),
            named("gap", &["id", "event"], gap),
            named("error", &["event"], object(json!({ "detail": text() }))),
        ],
    })
}

/// A number that is finite in single precision: below what is rounded to infinity.
fn float() -> Value {
    const INFINITE: f64 = 3.402_823_567_797_336_6e38;
    json!({ "type": "number", "exclusiveMinimum": -INFINITE, "exclusiveMaximum": INFINITE })
}

/// A record as it is sent: ids as text, fields nested if one likes, whose it is left out if one likes.
fn record(table: Table) -> Value {
    let property = |column: &TableColumn| {
        let value = match column.name {
            "trace_id" => inline_schema::<TraceId>(),
            "span_id" => inline_schema::<SpanId>(),
            "parent_span_id" => inline_schema::<Option<SpanId>>(),
            _ if column.kind == ColumnType::Float => float(),
            _ if column.kind == ColumnType::Double => json!({ "type": "number" }),
            _ => value(column),
        };
        (column.name.to_owned(), value)
    };
    let may_lack = |column: &&TableColumn| {
        column.nullable || column.kind == ColumnType::Json || ["entity_id", "entity_name"].contains(&column.name)
    };
    let required = table.columns().iter().filter(|column| !may_lack(column));
    json!({
        "type": "object",
        "required": required.map(|column| column.name).collect::<Vec<_>>(),
        "properties": table.columns().iter().map(property).collect::<Map<_, _>>(),
        "additionalProperties": false,
    })
}

/// How many rows of a body are stored.
fn row_counts() -> Map<String, Value> {
    Map::from_iter([
        ("stored".to_owned(), count()),
        ("rejected_total".to_owned(), count()),
        ("kept".to_owned(), count()),
        ("duplicate".to_owned(), json!({ "type": "boolean" })),
    ])
}

fn sent() -> Value {
    let mut stored = row_counts();
    let rejected = list(object(json!({ "row": count(), "reason": text() })));
    stored.insert("rejected".to_owned(), rejected);
    let stored = object(stored.into());
    let records = [Table::Logs, Table::Metrics, Table::Traces];
    let records: Map<_, _> = records
        .map(|table| (record_name(table).to_owned(), record(table)))
        .into_iter()
        .collect();
    let mut all = json!({ "Stored": object(json!({ "data": stored })) });
    if let Some(all) = all.as_object_mut() {
        all.extend(records);
    }
    all
}

fn sql() -> Value {
    let scalar = json!({ "type": ["string", "number", "boolean", "null"] });
    let statement = json!({
        "type": "object",
        "required": ["query"],
        "properties": {
            "query": { "type": "string", "minLength": 1 },
            "parameters": {
                "description": "A list for `$1`, `$2`, …, or an object for `$name`.",
                "anyOf": [list(scalar.clone()), { "type": "object", "additionalProperties": scalar }],
            },
            "limit": { "type": ["integer", "null"], "minimum": 0, "maximum": u64::MAX, "description": "Maximum number \
                                                                                                       of rows." },
        },
        "additionalProperties": false,
        "examples": [{ "query": "SELECT level, count(*) AS n FROM logs WHERE entity_name = $1 GROUP BY level", "parameters": ["rack-a"] }],
    });
    let columns = list(object(json!({ "name": text(), "type": text() })));
    let stats = json!({ "allOf": [reference("Stats"), object(json!({ "truncated": { "type": "boolean" } }))] });
    let mut answer = object(json!({ "columns": columns, "data": list(json!({ "type": "object" })) }));
    answer["properties"]["stats"] = stats;
    answer["properties"]["error"] = reference("Problem");
    answer["oneOf"] = json!([{ "required": ["stats"] }, { "required": ["error"] }]);
    json!({ "Statement": statement, "SqlAnswer": answer })
}
