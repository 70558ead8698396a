//! A signal has its messages, its spans and logs, and those of its traces that name no signal: each once, in one order, from the
//! files that have them.

use std::collections::BTreeSet;

use arrow_array::RecordBatch;
use model::batch::{MessageRow, messages, row_json};
use model::filter::{FluxFilter, RawForm};
use model::message::Message;
use model::{Attributes, EntityId, FluxId, LogRecord, MessageId, Span, Table, TelemetryRecord, TraceId};
use serde_json::{Map, Value, json};

use super::indexed::{self, Hours};
use super::random_world::{self, Random};
use super::rows::scattered;
use super::*;
use crate::scalar_functions::hash_rows;
use crate::{Error, JsonPage, ListQuery, QueryStats};

/// All rows there are.
struct World {
    messages: Vec<MessageRow>,
    spans: Vec<Span>,
    logs: Vec<LogRecord>,
}

/// A row's place in the order, and how it is shown.
type Shown = ((i64, usize, u64), Map<String, Value>);

impl World {
    async fn scattered(bench: &mut Bench, random: &mut Random) -> Self {
        let all: Vec<_> = (0..300).map(|_| random_world::message(random)).collect();
        append_batch(&bench.engine, Table::Messages, messages(&all[..200]).unwrap()).await;
        let spans = scattered(bench, random, random_world::span).await;
        append_batch(&bench.engine, Table::Messages, messages(&all[200..250]).unwrap()).await;
        let logs = scattered(bench, random, random_world::log).await;
        append_batch(&bench.engine, Table::Messages, messages(&all[250..]).unwrap()).await;
        Self {
            messages: all,
            spans,
            logs,
        }
    }

    /// What a reading of all rows says.
    fn signal(&self, id: FluxId, within: impl Fn(Timestamp) -> bool) -> Vec<Map<String, Value>> {
        let messages: Vec<_> = self.messages.iter().filter(|row| within(row.ts)).cloned().collect();
        let spans: Vec<_> = self.spans.iter().filter(|row| within(row.ts)).cloned().collect();
        let logs: Vec<_> = self.logs.iter().filter(|row| within(row.ts)).cloned().collect();
        let mut traces: BTreeSet<TraceId> = BTreeSet::new();
        traces.extend(messages.iter().filter(|row| row.flux_id == id).map(|row| row.trace_id));
        traces.extend(
            spans
                .iter()
                .filter(|row| row.flux_id == Some(id))
                .map(|row| row.trace_id),
        );
        let carry = logs.iter().filter(|row| row.flux_id == Some(id));
        traces.extend(carry.filter_map(trace_of));
        let messages = messages.into_iter().filter(|row| row.flux_id == id).collect::<Vec<_>>();
        let with = |flux: Option<FluxId>| flux == Some(id);
        let mut all = shown(0, "message", &model::batch::messages(&messages).unwrap());
        let part = |rows: &[Span], with_id: bool| {
            let rows = rows.iter().filter(|row| match with_id {
                true => with(row.flux_id),
                false => row.flux_id.is_none() && traces.contains(&row.trace_id),
            });
            Span::to_batch(&rows.cloned().collect::<Vec<_>>()).unwrap()
        };
        all.extend(shown(1, "span", &part(&spans, true)));
        all.extend(shown(2, "span", &part(&spans, false)));
        let part = |rows: &[LogRecord], with_id: bool| {
            let rows = rows.iter().filter(|row| match with_id {
                true => with(row.flux_id),
                false => row.flux_id.is_none() && trace_of(row).is_some_and(|trace| traces.contains(&trace)),
            });
            LogRecord::to_batch(&rows.cloned().collect::<Vec<_>>()).unwrap()
        };
        all.extend(shown(3, "log", &part(&logs, true)));
        all.extend(shown(4, "log", &part(&logs, false)));
        all.sort_by_key(|(place, _)| *place);
        all.into_iter().map(|(_, row)| row).collect()
    }
}

fn trace_of(log: &LogRecord) -> Option<TraceId> {
    log.attributes.get("trace_id")?.as_str()?.parse().ok()
}

/// The rows of a part as objects, what they lack left out.
fn shown(part: usize, kind: &str, batch: &RecordBatch) -> Vec<Shown> {
    let hashes = hash_rows(batch.columns(), batch.num_rows()).unwrap();
    let times = crate::scan::times_of(batch);
    let row = |row: usize| {
        let mut object = row_json(batch, row);
        object.retain(|_, value| !value.is_null());
        object.insert("kind".to_owned(), kind.into());
        ((times[row], part, hashes[row]), object)
    };
    (0..batch.num_rows()).map(row).collect()
}

async fn asked(bench: &Bench, id: FluxId, filter: &FluxFilter) -> Result<JsonPage, Error> {
    let list = bench.querier.list(&ListQuery::Flux(id, filter.clone())).await?;
    Ok(list.into())
}

/// Every page, each with as many rows as chance has it.
async fn paged(bench: &Bench, id: FluxId, mut filter: FluxFilter, random: &mut Random) -> Vec<Map<String, Value>> {
    let mut rows = Vec::new();
    loop {
        filter.limit = Some(u32::try_from(1 + random.below(60)).unwrap());
        let page = asked(bench, id, &filter).await.unwrap();
        rows.extend(page.rows);
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            return rows;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_is_what_a_reading_of_all_rows_says_however_it_is_paged() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let world = World::scattered(&mut bench, &mut random).await;
    for index in [false, true] {
        bench.set_index(index).await;
        bench.engine.index_all().await.unwrap();
        for n in 0..3 {
            let id = random_world::flux(n);
            let all = world.signal(id, |_| true);
            assert!(all.len() > 100, "{}", all.len());
            let whole = FluxFilter {
                limit: Some(10_000),
                ..FluxFilter::default()
            };
            let page = asked(&bench, id, &whole).await.unwrap();
            assert_eq!(page.rows, all);
            assert_eq!((page.next_cursor, page.stats.rows), (None, all.len() as u64));
            assert_eq!(paged(&bench, id, FluxFilter::default(), &mut random).await, all);
        }
        let (since, until) = (random.moment(), random.moment());
        let (since, until) = (since.min(until), since.max(until));
        let within = world.signal(random_world::flux(0), |ts| since <= ts && ts < until);
        let filter = FluxFilter {
            since: Some(model::filter::TimePoint::At(since)),
            until: Some(model::filter::TimePoint::At(until)),
            ..FluxFilter::default()
        };
        if within.is_empty() {
            let refused = asked(&bench, random_world::flux(0), &filter).await;
            assert!(
                matches!(refused, Err(Error::NotFound { what: "flux", .. })),
                "{refused:?}"
            );
        } else {
            assert_eq!(paged(&bench, random_world::flux(0), filter, &mut random).await, within);
        }
    }
    let unknown = asked(&bench, random_world::flux(9), &FluxFilter::default()).await;
    assert!(
        matches!(unknown, Err(Error::NotFound { what: "flux", .. })),
        "{unknown:?}"
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_belongs_to_its_signal_and_pages_have_bounds() {
    let mut random = Random::new();
    let bench = Bench::new().await;
    let span = |n| Span {
        flux_id: Some(random_world::flux(n)),
        ..random_world::span(&mut Random::new())
    };
    bench.append(&[span(0), span(0), span(1)]).await;
    let one = FluxFilter {
        limit: Some(1),
        ..FluxFilter::default()
    };
    let cursor = asked(&bench, random_world::flux(0), &one).await.unwrap().next_cursor;
    assert!(cursor.is_some());
    let next = FluxFilter { cursor, ..one.clone() };
    assert_eq!(asked(&bench, random_world::flux(0), &next).await.unwrap().rows.len(), 1);
    let of_other = asked(&bench, random_world::flux(1), &next).await;
    assert!(
        matches!(
            of_other,
            Err(Error::Parameter {
                parameter: "cursor",
                ..
            })
        ),
        "{of_other:?}"
    );
    for limit in [0, 10_001] {
        let filter = FluxFilter {
            limit: Some(limit),
            ..FluxFilter::default()
        };
        let refused = asked(&bench, random_world::flux(0), &filter).await;
        assert!(
            matches!(refused, Err(Error::Parameter { parameter: "limit", .. })),
            "{refused:?}"
        );
    }
    // Cursors made up: any part, before and behind everything.
    bench.append(&[random_world::log(&mut random)]).await;
    let token = next.cursor.unwrap();
    let bytes: Vec<u8> = (0..token.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&token[at..at + 2], 16).unwrap())
        .collect();
    let mut cursor: Value = serde_json::from_slice(&bytes).unwrap();
    for part in ["messages", "spans", "spans_of_traces", "logs", "logs_of_traces"] {
        for (ts, count) in [(i64::MIN, 0), (0, u64::MAX), (now().micros(), u64::MAX), (i64::MAX, 1)] {
            cursor["p"] = json!({ "k": part, "r": { "t": ts, "h": u64::MAX, "n": count } });
            let token: String = cursor.to_string().bytes().map(|byte| format!("{byte:02x}")).collect();
            let forged = FluxFilter {
                cursor: Some(token),
                ..one.clone()
            };
            let page = asked(&bench, random_world::flux(0), &forged).await.unwrap();
            assert!(page.rows.len() <= 1, "{page:?}");
        }
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_hours_only_the_files_with_the_signal_are_opened() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    bench.set_index(true).await;
    let mut hours = Hours::new(&mut random);
    // The record of each signal is found by its trace alone.
    hours.logs.iter_mut().for_each(|log| log.flux_id = None);
    let messages_of: Vec<_> = hours
        .spans
        .iter()
        .map(|span| MessageRow {
            ts: span.ts,
            trace_id: span.trace_id,
            flux_id: span.flux_id.unwrap(),
            ..random_world::message(&mut random)
        })
        .collect();
    bench.append(&hours.logs).await;
    bench.append(&hours.spans).await;
    append_batch(&bench.engine, Table::Messages, messages(&messages_of).unwrap()).await;
    bench.seal().await;
    bench.engine.index_all().await.unwrap();
    let files = 3 * u64::try_from(Hours::COUNT).unwrap();
    let looked = |stats: &QueryStats| {
        assert_eq!(stats.files_considered, files, "{stats:?}");
        assert_eq!(stats.files_read + stats.files_pruned, files, "{stats:?}");
        stats.files_read
    };
    let mut opened = 0;
    for hour in 0..Hours::COUNT {
        let page = asked(&bench, indexed::flux(hour, 7), &FluxFilter::default())
            .await
            .unwrap();
        let kinds: Vec<_> = page.rows.iter().map(|row| row["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["message", "span", "log"]);
        opened += looked(&page.stats);
    }
    // One file of each table; another looks as if it had the id once in some thousand times.
    assert!(opened <= files + 3, "{opened}");
    let missed = bench
        .querier
        .list(&ListQuery::Flux(indexed::flux(900, 1), FluxFilter::default()))
        .await;
    assert!(matches!(missed, Err(Error::NotFound { .. })));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_row_and_one_of_a_clock_a_day_behind_are_found() {
    let bench = Bench::new().await;
    let id = FluxId::at(now(), [5; 10]);
    let at = |hours: i64| Span {
        ts: Timestamp::from_micros(now().micros() - hours * HOUR),
        flux_id: Some(id),
        ..random_world::span(&mut Random::new())
    };
    bench.append(&[at(0), at(25), at(24 * 20)]).await;
    let page = asked(&bench, id, &FluxFilter::default()).await.unwrap();
    assert_eq!(page.rows.len(), 3);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_of_more_traces_than_are_looked_for_says_so() {
    let bench = Bench::new().await;
    let id = random_world::flux(0);
    let mut random = Random::new();
    let traces: Vec<_> = (0..120_u8).map(|n| TraceId::from_entropy([n + 1; 16])).collect();
    let spans = traces.iter().map(|trace| Span {
        trace_id: *trace,
        flux_id: Some(id),
        ..random_world::span(&mut random)
    });
    bench.append(&spans.collect::<Vec<_>>()).await;
    let logs = traces.iter().map(|trace| LogRecord {
        ts: now(),
        flux_id: None,
        attributes: Attributes::new().with("trace_id", trace.to_string()),
        ..random_world::log(&mut Random::new())
    });
    bench.append(&logs.collect::<Vec<_>>()).await;
    for limit in [10_000, 10] {
        let filter = FluxFilter {
            limit: Some(limit),
            ..FluxFilter::default()
        };
        let list = bench.querier.list(&ListQuery::Flux(id, filter.clone())).await.unwrap();
        let (name, about) = list.about.clone().unwrap();
        assert_eq!((name, &about["trace_ids_truncated"]), ("flux", &json!(true)));
        let partial = list.stats.partial.unwrap();
        assert!(
            partial.contains("more than 100 traces"),
            "told in every format: {partial}"
        );
        let known: Vec<String> = traces.iter().take(100).map(ToString::to_string).collect();
        assert_eq!(about["trace_ids"], json!(known));
        let rows = paged(&bench, id, FluxFilter::default(), &mut random).await;
        assert_eq!(rows.len(), 220);
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_equal_in_every_column_are_each_given_once() {
    let bench = Bench::new().await;
    let id = random_world::flux(0);
    let span = Span {
        flux_id: Some(id),
        ..random_world::span(&mut Random::new())
    };
    bench.append(&vec![span.clone(); 20]).await;
    bench.publish().await;
    bench.append(&vec![span; 13]).await;
    let rows = paged(&bench, id, FluxFilter::default(), &mut Random::new()).await;
    assert_eq!(rows.len(), 33);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_a_message_are_shown_as_what_they_say() {
    let bench = Bench::new().await;
    let mut deep = json!(1);
    for _ in 0..110 {
        deep = json!([deep]);
    }
    let text = deep.to_string();
    let envelope = |data: Value, raw: &[u8], kind: &str| Message {
        id: MessageId::at(now(), [1; 10]),
        ts: now(),
        raw: raw.to_vec(),
        data,
        hops: 2,
        meta: Attributes::new().with("content_type", kind),
        parent: None,
        flux_id: random_world::flux(0),
        sampled: true,
        span_id: "b7ad6b7169203331".parse().unwrap(),
        trace_id: random_world::trace(0),
        trace_state: None,
    };
    let none = || Value::Null;
    let cases = [
        (envelope(json!({"order": 7}), b"old", ""), json!({"order": 7}), "value"),
        (
            envelope(none(), b"[1,\"x\"]", "application/json; charset=utf-8"),
            json!([1, "x"]),
            "json",
        ),
        (envelope(none(), b"{", "application/json"), json!("{"), "text"),
        (
            envelope(none(), "grüße".as_bytes(), "text/plain"),
            json!("grüße"),
            "text",
        ),
        (envelope(none(), &[0, 159, 146, 150], ""), json!("AJ+Slg=="), "base64"),
        (envelope(none(), b"", ""), none(), "nothing"),
        (envelope(deep, b"", ""), json!(text), "value"),
    ];
    for (number, (message, body, body_is)) in cases.into_iter().enumerate() {
        let id = FluxId::at(now(), [u8::try_from(number).unwrap() + 10; 10]);
        let row = MessageRow {
            flux_id: id,
            raw_msg: message.to_cbor().unwrap(),
            ..random_world::message(&mut Random::new())
        };
        append_batch(&bench.engine, Table::Messages, messages(&[row]).unwrap()).await;
        let said = said(&bench, id).await;
        assert_eq!((&said["body"], &said["body_is"]), (&body, &json!(body_is)));
        assert_eq!(
            (&said["hops"], &said["span_id"]),
            (&json!(2), &json!("b7ad6b7169203331"))
        );
        assert_eq!(said["meta"]["content_type"], *message.meta.get("content_type").unwrap());
    }
    let id = FluxId::at(now(), [9; 10]);
    let row = MessageRow {
        flux_id: id,
        entity_id: EntityId::for_name("rack-a"),
        raw_msg: vec![0xff, 0],
        ..random_world::message(&mut Random::new())
    };
    append_batch(&bench.engine, Table::Messages, messages(&[row]).unwrap()).await;
    let said = said(&bench, id).await;
    assert!(said["error"].is_string() && said["base64"] == "/wA=", "{said}");
    bench.close().await;
}

/// The only message of a signal, as the writer of answers writes it.
async fn said(bench: &Bench, id: FluxId) -> Value {
    let filter = FluxFilter {
        raw: Some(RawForm::Json),
        ..FluxFilter::default()
    };
    let list = bench.querier.list(&ListQuery::Flux(id, filter)).await.unwrap();
    let mut writer = list.writer(crate::RowFormat::Ndjson).unwrap();
    writer.write(list.rows(), 0, usize::MAX).unwrap();
    let row: Value = serde_json::from_slice(&writer.take()).unwrap();
    assert!(row["raw_msg"].is_object(), "{row}");
    row["raw_msg"].clone()
}
