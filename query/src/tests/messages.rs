//! Business messages are listed by the same rules as telemetry, their bytes in the form that was asked for.

use std::time::Duration;

use model::batch::{MessageRow, messages};
use model::filter::{MessageFilter, RawForm, TimePoint};
use model::{ByteSize, Table, Timestamp};
use serde_json::Value;

use super::random_world::{self, Random};
use super::rows::{cut, in_order, in_window, is_entity};
use super::{Bench, append_batch, now};
use crate::{ListQuery, LiveTail, QueryLimits};

fn lets(filter: &MessageFilter, row: &MessageRow) -> bool {
    let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|wanted| wanted == value);
    in_window(row.ts, filter.since, filter.until, filter.flux_id)
        && filter.flux_id.is_none_or(|flux| row.flux_id == flux)
        && filter.trace_id.is_none_or(|trace| row.trace_id == trace)
        && is_entity(&row.entity_name, row.entity_id, filter.rack_id.as_ref())
        && is_entity(&row.entity_name, row.entity_id, filter.entity.as_ref())
        && is(&filter.src_gear_id, &row.src_gear_id)
        && filter
            .dst_gear_id
            .as_ref()
            .is_none_or(|gear| row.dst_gear_id.as_ref() == Some(gear))
        && is(&filter.msg_type, &row.msg_type)
        && filter.direction.is_none_or(|direction| row.direction == direction)
        && filter.status.is_none_or(|status| row.status == status)
        && random_world::has_all(&row.promoted, &filter.promoted)
}

pub(super) async fn scattered(bench: &mut Bench, random: &mut Random) -> Vec<MessageRow> {
    let all: Vec<_> = (0..400).map(|_| random_world::message(random)).collect();
    append_batch(&bench.engine, Table::Messages, messages(&all[..200]).unwrap()).await;
    bench.seal().await;
    append_batch(&bench.engine, Table::Messages, messages(&all[200..300]).unwrap()).await;
    bench.publish().await;
    append_batch(&bench.engine, Table::Messages, messages(&all[300..]).unwrap()).await;
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_exactly_those_that_the_filter_lets_through_in_order() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let all = scattered(&mut bench, &mut random).await;
    for _ in 0..80 {
        let filter = random_world::message_filter(&mut random);
        let rows: Vec<_> = all.iter().filter(|row| lets(&filter, row)).cloned().collect();
        let times: Vec<_> = rows.iter().map(|row| row.ts).collect();
        let rows = in_order(&messages(&rows).unwrap(), &times, filter.order);
        let (rows, more) = cut(rows, filter.limit, filter.offset);
        let page = bench.querier.page(ListQuery::Messages(filter.clone())).await.unwrap();
        assert_eq!(page.rows, rows, "{filter:?}");
        assert_eq!(page.next_cursor.is_some(), more, "{filter:?}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bytes_of_a_message_are_shown_as_hex_as_base64_or_not_at_all() {
    let mut random = Random::new();
    let bench = Bench::new().await;
    let row = MessageRow {
        raw_msg: vec![0, 159, 146, 150],
        ..random_world::message(&mut random)
    };
    append_batch(&bench.engine, Table::Messages, messages(&[row]).unwrap()).await;
    for (raw, shown) in [
        (None, Some("009f9296")),
        (Some(RawForm::Hex), Some("009f9296")),
        (Some(RawForm::Base64), Some("AJ+Slg==")),
        (Some(RawForm::None), None),
    ] {
        let filter = MessageFilter {
            raw,
            ..MessageFilter::default()
        };
        let page = bench.querier.page(ListQuery::Messages(filter.clone())).await.unwrap();
        assert_eq!(page.rows[0].get("raw_msg").and_then(|raw| raw.as_str()), shown);
    }
    bench.close().await;
}

/// The next rows of a tail, as texts.
async fn followed(tail: &mut LiveTail, count: usize) -> Vec<String> {
    let mut rows = Vec::new();
    while rows.len() < count {
        let piece = tokio::time::timeout(Duration::from_secs(30), tail.next())
            .await
            .unwrap()
            .unwrap();
        let piece = String::from_utf8(piece.to_vec()).unwrap();
        assert!(!piece.contains("event: "), "{piece}");
        rows.extend(
            piece
                .lines()
                .filter_map(|line| line.strip_prefix("data: "))
                .map(str::to_owned),
        );
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_followed_each_once_with_those_that_were_there_and_their_bytes_in_each_form() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let all = scattered(&mut bench, &mut random).await;
    let mut wanted: Vec<_> = all.clone();
    let mut got = [const { Vec::<String>::new() }; 4];
    let forms = [RawForm::Hex, RawForm::Base64, RawForm::Json, RawForm::None];
    let ask = |raw: RawForm| MessageFilter {
        since: Some(TimePoint::EVER),
        raw: Some(raw),
        ..MessageFilter::default()
    };
    let mut tails: Vec<_> = forms
        .map(|form| bench.querier.tail_messages(&ask(form), None).unwrap())
        .into();
    for turn in 0..3 {
        for ((form, tail), got) in forms.into_iter().zip(&mut tails).zip(&mut got) {
            got.extend(followed(tail, wanted.len()).await);
            got.sort_unstable();
            let all = MessageFilter {
                limit: Some(10_000),
                ..ask(form)
            };
            let listed = bench
                .querier
                .page(ListQuery::Messages(all.clone()))
                .await
                .unwrap()
                .rows
                .into_iter();
            let mut listed: Vec<_> = listed
                .map(|mut row| {
                    if let (RawForm::Json, Some(Value::String(said))) = (form, row.get("raw_msg")) {
                        let said: Value = serde_json::from_str(said).unwrap();
                        row.insert("raw_msg".to_owned(), said);
                    }
                    Value::Object(row).to_string()
                })
                .collect();
            listed.sort_unstable();
            assert_eq!(*got, listed, "{form:?} {turn}");
        }
        // Logs are no messages.
        bench.append(&[random_world::log(&mut random)]).await;
        wanted = (0..70).map(|_| random_world::message(&mut random)).collect();
        append_batch(&bench.engine, Table::Messages, messages(&wanted).unwrap()).await;
    }
    drop(tails);
    let one = MessageFilter {
        msg_type: Some(all[0].msg_type.clone()),
        until: Some(TimePoint::EVER),
        ..MessageFilter::default()
    };
    assert!(matches!(
        bench.querier.tail_messages(&one, None),
        Err(crate::Error::Parameter { parameter: "until", .. })
    ));
    let of_type = MessageFilter { until: None, ..one };
    let mut tail = bench.querier.tail_messages(&of_type, None).unwrap();
    append_batch(&bench.engine, Table::Messages, messages(&all).unwrap()).await;
    let count = all.iter().filter(|row| lets(&of_type, row)).count();
    assert_eq!(followed(&mut tail, count).await.len(), count);
    drop(tail);
    bench.close().await;
}

/// A message with so many bytes.
fn sized(random: &mut Random, number: usize, ts: Timestamp, bytes: usize) -> MessageRow {
    MessageRow {
        ts,
        msg_type: format!("number_{number:03}"),
        raw_msg: vec![u8::try_from(number % 256).unwrap(); bytes],
        ..random_world::message(random)
    }
}

async fn append_each(bench: &Bench, rows: Vec<MessageRow>) {
    for row in rows {
        append_batch(&bench.engine, Table::Messages, messages(&[row]).unwrap()).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_of_more_than_there_is_memory_for_comes_whole_and_so_do_its_newest_rows() {
    const SMALL: usize = 100;
    const ALL: usize = SMALL + 120;
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(32), Duration::from_secs(60), 2)).await;
    let mut random = Random::new();
    // Small ones far apart, so that a stretch of time is long when it comes to the large ones, of which some have the same time.
    let (mut ts, mut rows) = (now().minus(Duration::from_secs(3_600)), Vec::new());
    for number in 0..ALL {
        ts = ts.plus(Duration::from_secs(match number {
            ..SMALL => 20,
            n if n % 10 == 0 => 0,
            _ => 1,
        }));
        let bytes = if number < SMALL { 10 } else { 256 << 10 };
        rows.push(sized(&mut random, number, ts, bytes));
    }
    let hot = rows.split_off(SMALL + 60);
    append_each(&bench, rows).await;
    bench.publish().await;
    append_each(&bench, hot).await;
    let number = |row: &String| {
        let row: Value = serde_json::from_str(row).unwrap();
        let name = row["msg_type"].as_str().unwrap().to_owned();
        name.trim_start_matches("number_").parse::<usize>().unwrap()
    };
    for (raw, limit) in [
        (RawForm::None, None),
        (RawForm::Base64, None),
        (RawForm::None, Some(105)),
        (RawForm::None, Some(110)),
    ] {
        let filter = MessageFilter {
            since: Some(TimePoint::EVER),
            raw: Some(raw),
            limit,
            ..MessageFilter::default()
        };
        let first = limit.map_or(0, |limit| ALL - usize::try_from(limit).unwrap());
        let mut tail = bench.querier.tail_messages(&filter, None).unwrap();
        let mut got: Vec<_> = followed(&mut tail, ALL - first).await.iter().map(number).collect();
        got.sort_unstable();
        // Which of two with the same time is the last one that does not come is not asked.
        assert!(
            got[0] == first || (limit == Some(110) && got[0] + 1 == first),
            "{}",
            got[0]
        );
        assert_eq!(got[1..], (first + 1..ALL).collect::<Vec<_>>(), "{raw:?} {limit:?}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tail_ends_with_an_error_where_the_rows_of_one_time_are_more_than_there_is_memory_for() {
    let bench = Bench::with(QueryLimits::new(ByteSize::mib(16), Duration::from_secs(60), 2)).await;
    let mut random = Random::new();
    let rows = (0..60)
        .map(|number| sized(&mut random, number, now(), 256 << 10))
        .collect();
    append_each(&bench, rows).await;
    let filter = MessageFilter {
        since: Some(TimePoint::EVER),
        ..MessageFilter::default()
    };
    let mut tail = bench.querier.tail_messages(&filter, None).unwrap();
    let mut said = Vec::new();
    while let Some(piece) = tail.next().await {
        said.push(String::from_utf8(piece.to_vec()).unwrap());
    }
    assert!(
        said.iter().any(|piece| piece.contains("event: error")),
        "{}",
        said.len()
    );
    assert!(!said.iter().any(|piece| piece.contains("msg_type")), "{}", said.len());
    bench.close().await;
}
