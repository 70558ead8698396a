//! Rows around one: the stretch of the list that it is in.

use std::sync::Arc;

use model::Clock;
use model::filter::{LogFilter, RowFilter, RowPosition, SortOrder};
use serde_json::{Map, Value, json};

use super::random_world::{self, Random};
use super::rows::scattered;
use super::{Bench, now};
use crate::query_result::JsonPage;
use crate::scan::ScanShortcut;
use crate::{Error, ListQuery, QueryEngine, QueryLimits};

type Rows = Vec<Map<String, Value>>;

/// A list with positions, and what it says of the row that it is around.
async fn listed(querier: &QueryEngine, filter: &LogFilter, rows: &RowFilter) -> (Rows, Option<Value>) {
    let list = querier.list_rows(&ListQuery::Logs(filter.clone()), rows).await.unwrap();
    let about = list.about.clone().map(|(name, value)| {
        assert_eq!(name, "around");
        value
    });
    (JsonPage::from(list).rows, about)
}

fn with_positions(around: Option<RowPosition>, before: usize, after: usize) -> RowFilter {
    let count = |rows: usize| around.map(|_| u32::try_from(rows).unwrap());
    RowFilter {
        positions: Some(true),
        around,
        before: count(before),
        after: count(after),
        ..RowFilter::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rows_around_one_are_those_beside_it_in_the_list_however_many_share_its_moment() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    scattered(&mut bench, &mut random, random_world::log).await;
    let limits = QueryLimits {
        without: &[ScanShortcut::OwnScan],
        ..bench.limits.clone()
    };
    let by_plans = QueryEngine::new(Arc::clone(&bench.engine), limits, Clock::new(now)).unwrap();
    let mut looked_at = 0;
    for _ in 0..60 {
        let filter = LogFilter {
            limit: None,
            offset: None,
            ..random_world::log_filter(&mut random)
        };
        let whole = LogFilter {
            limit: Some(10_000),
            ..filter.clone()
        };
        let (all, _) = listed(&bench.querier, &whole, &with_positions(None, 0, 0)).await;
        if all.is_empty() {
            continue;
        }
        looked_at += 1;
        let position = random.pick(&all)["position"].clone();
        let at = all.iter().position(|row| row["position"] == position).unwrap();
        let [before, after] = [12, 12].map(|most| usize::try_from(random.below(most)).unwrap());
        let around = position.as_str().unwrap().parse().unwrap();
        let (sooner, later) = match filter.order {
            Some(SortOrder::Asc) => (before, after),
            _ => (after, before),
        };
        let (from, to) = (at.saturating_sub(sooner), (at + later + 1).min(all.len()));
        let (more_sooner, more_later) = (from > 0, to < all.len());
        let (more_before, more_after) = match filter.order {
            Some(SortOrder::Asc) => (more_sooner, more_later),
            _ => (more_later, more_sooner),
        };
        for querier in [&bench.querier, &by_plans] {
            let (rows, about) = listed(querier, &filter, &with_positions(Some(around), before, after)).await;
            assert_eq!(rows, all[from..to], "{filter:?} {position}");
            let wanted =
                json!({ "position": position, "row": at - from, "more_before": more_before, "more_after": more_after });
            assert_eq!(about, Some(wanted), "{filter:?}");
        }
    }
    assert!(looked_at > 0, "{looked_at} filters let a row through");
    by_plans.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn around_a_row_that_the_filter_leaves_out_and_around_a_moment_are_rows_of_the_filter_alone() {
    let bench = Bench::new().await;
    let row = |number: i64| model::LogRecord {
        ts: model::Timestamp::from_micros(now().micros() - number * super::SECOND),
        message: format!("row {number}"),
        ..random_world::log(&mut Random::seeded(7))
    };
    bench.append(&(0..10).map(row).collect::<Vec<_>>()).await;
    let (all, _) = listed(&bench.querier, &LogFilter::default(), &with_positions(None, 0, 0)).await;
    let position: RowPosition = all[4]["position"].as_str().unwrap().parse().unwrap();
    let without = LogFilter {
        not_q: ["row 4".to_owned()].into(),
        ..LogFilter::default()
    };
    let (rows, about) = listed(&bench.querier, &without, &with_positions(Some(position), 2, 1)).await;
    assert_eq!(rows, [all[3].clone(), all[5].clone(), all[6].clone()]);
    assert_eq!(about.unwrap()["row"], Value::Null);
    // The row alone, whole.
    let (rows, about) = listed(
        &bench.querier,
        &LogFilter::default(),
        &with_positions(Some(position), 0, 0),
    )
    .await;
    assert_eq!(rows, [all[4].clone()]);
    assert_eq!(about.unwrap()["more_before"], true);
    // Between two rows.
    let moment = RowPosition {
        ts: model::Timestamp::from_micros(position.ts.micros() + 1),
        hash: 0,
    };
    let (rows, _) = listed(
        &bench.querier,
        &LogFilter::default(),
        &with_positions(Some(moment), 1, 1),
    )
    .await;
    assert_eq!(rows, all[3..5]);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_around_a_row_is_refused_by_name() {
    let bench = Bench::new().await;
    let around = RowFilter {
        around: Some(RowPosition { ts: now(), hash: 1 }),
        ..RowFilter::default()
    };
    let plain = LogFilter::default();
    let limited = LogFilter {
        limit: Some(5),
        ..plain.clone()
    };
    let beside = RowFilter {
        after: Some(1),
        ..RowFilter::default()
    };
    let many = RowFilter {
        before: Some(1_001),
        ..around.clone()
    };
    for (filter, rows, name) in [
        (&limited, &around, "limit"),
        (&plain, &beside, "after"),
        (&plain, &many, "before"),
    ] {
        let refused = bench.querier.list_rows(&ListQuery::Logs(filter.clone()), rows).await;
        assert!(
            matches!(&refused, Err(Error::Parameter { parameter, .. }) if *parameter == name),
            "{refused:?}"
        );
    }
    let found = bench.querier.list_rows(&ListQuery::Logs(plain), &around).await.unwrap();
    assert_eq!(found.rows().num_rows(), 0);
    bench.close().await;
}
