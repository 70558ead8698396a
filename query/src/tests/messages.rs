//! Business messages are listed by the same rules as telemetry, their bytes in the form that was asked for.

use model::Table;
use model::batch::{MessageRow, messages};
use model::filter::{MessageFilter, RawForm};

use super::rows::{cut, in_order, in_window, is_entity};
use super::world::{self, Random};
use super::{Bench, append_batch};

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
        && world::has_all(&row.promoted, &filter.promoted)
}

async fn scattered(bench: &mut Bench, random: &mut Random) -> Vec<MessageRow> {
    let all: Vec<_> = (0..400).map(|_| world::message(random)).collect();
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
        let filter = world::message_filter(&mut random);
        let rows: Vec<_> = all.iter().filter(|row| lets(&filter, row)).cloned().collect();
        let times: Vec<_> = rows.iter().map(|row| row.ts).collect();
        let rows = in_order(&messages(&rows).unwrap(), &times, filter.order);
        let (rows, more) = cut(rows, filter.limit, filter.offset);
        let page = bench.querier.messages(&filter).await.unwrap();
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
        ..world::message(&mut random)
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
        let page = bench.querier.messages(&filter).await.unwrap();
        assert_eq!(page.rows[0].get("raw_msg").and_then(|raw| raw.as_str()), shown);
    }
    bench.close().await;
}
