//! Rows around one: the stretch of the list that it is in.

use std::collections::HashSet;
use std::sync::Arc;

use model::Clock;
use model::filter::{LogFilter, RowFilter, RowPosition, SortOrder, TimePoint};
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

/// What a walk gives from one row to the end of the list, or to its beginning, so many rows at once.
async fn walked(
    querier: &QueryEngine,
    filter: &LogFilter,
    all: &[Map<String, Value>],
    (from, step): (usize, isize),
) -> Rows {
    let position = |row: &Map<String, Value>| -> RowPosition { row["position"].as_str().unwrap().parse().unwrap() };
    let is_newest_first = filter.order != Some(SortOrder::Asc);
    let count = step.unsigned_abs();
    // Which rows come later in the list: those before in time, if the newest are first.
    let (before, after) = if (step > 0) == is_newest_first {
        (count, 0)
    } else {
        (0, count)
    };
    let mut found = vec![all[from].clone()];
    loop {
        let at = position(found.last().unwrap());
        let (mut rows, about) = listed(querier, filter, &with_positions(Some(at), before, after)).await;
        let about = about.unwrap();
        let row = usize::try_from(about["row"].as_u64().unwrap()).unwrap();
        assert_eq!(rows[row], *found.last().unwrap(), "{about}");
        if step < 0 {
            rows.reverse();
        }
        found.extend(rows.into_iter().skip(1));
        let more = if before > 0 { "more_before" } else { "more_after" };
        if about[more] == false {
            return found;
        }
        assert!(found.len() <= all.len(), "it goes on for ever");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn more_equal_rows_than_are_asked_for_at_once_are_passed_in_either_direction_each_once() {
    let bench = Bench::new().await;
    let row = |number: i64, message: &str| model::LogRecord {
        ts: model::Timestamp::from_micros(now().micros() - number * super::SECOND),
        message: message.to_owned(),
        ..random_world::log(&mut Random::seeded(7))
    };
    let mut rows = vec![row(3, "same"); 9];
    rows.extend([row(1, "newer"), row(5, "older")]);
    rows.extend(["a", "b", "c", "d"].map(|other| row(3, other)));
    bench.append(&rows).await;
    bench.publish().await;
    bench.append(&vec![row(3, "same"); 4]).await;
    let limits = QueryLimits {
        without: &[ScanShortcut::OwnScan],
        ..bench.limits.clone()
    };
    let by_plans = QueryEngine::new(Arc::clone(&bench.engine), limits, Clock::new(now)).unwrap();
    for (querier, order) in [
        (&bench.querier, SortOrder::Desc),
        (&bench.querier, SortOrder::Asc),
        (&by_plans, SortOrder::Desc),
        (&by_plans, SortOrder::Asc),
    ] {
        let filter = LogFilter {
            order: Some(order),
            ..LogFilter::default()
        };
        let (all, _) = listed(querier, &filter, &with_positions(None, 0, 0)).await;
        let positions: HashSet<&str> = all.iter().map(|row| row["position"].as_str().unwrap()).collect();
        assert_eq!((all.len(), positions.len()), (19, 19), "a position is one row's");
        let backwards: Rows = all.iter().rev().cloned().collect();
        for step in [1, 2, 5, 30] {
            let (forth, back) = ((0, step), (all.len() - 1, -step));
            assert_eq!(walked(querier, &filter, &all, forth).await, all, "{order:?} {step}");
            assert_eq!(
                walked(querier, &filter, &all, back).await,
                backwards,
                "{order:?} {step}"
            );
        }
        // Pages say the same, and so does one that begins among equal rows.
        for (limit, offset) in [(4, 0), (4, 6), (3, 9)] {
            let mut paged = LogFilter {
                limit: Some(limit),
                offset: Some(offset),
                ..filter.clone()
            };
            let mut found = Rows::new();
            loop {
                let (query, positions) = (ListQuery::Logs(paged.clone()), with_positions(None, 0, 0));
                let list = querier.list_rows(&query, &positions).await.unwrap();
                (paged.offset, paged.cursor) = (None, list.next_cursor.clone());
                found.extend(JsonPage::from(list).rows);
                if paged.cursor.is_none() {
                    break;
                }
            }
            assert_eq!(found, all[offset as usize..], "{order:?} {limit} {offset}");
        }
        // One that is not there, behind all that are equal to it.
        let same = all.iter().find(|row| row["message"] == "same").unwrap();
        let mut gone: RowPosition = same["position"].as_str().unwrap().parse().unwrap();
        gone.nth = 13;
        let (rows, about) = listed(querier, &filter, &with_positions(Some(gone), 30, 30)).await;
        assert_eq!((rows, &about.unwrap()["row"]), (all, &Value::Null));
    }
    by_plans.close().await;
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_further_away_than_a_day_are_found_unless_the_request_says_how_far_to_look() {
    let bench = Bench::new().await;
    let row = |days: i64| model::LogRecord {
        ts: model::Timestamp::from_micros(now().micros() - days * 24 * super::HOUR),
        message: format!("row {days}"),
        ..random_world::log(&mut Random::seeded(7))
    };
    bench.append(&[row(1), row(10), row(19), row(30)]).await;
    let position = RowPosition::of_moment(row(10).ts);
    let messages = |rows: &Rows| rows.iter().map(|row| row["message"].clone()).collect::<Vec<_>>();
    let since = |days: i64| Some(TimePoint::At(row(days).ts));
    for (filter, (before, after), expected, more) in [
        (LogFilter::default(), (1, 1), vec!["row 10", "row 19"], (true, true)),
        (
            LogFilter::default(),
            (3, 2),
            vec!["row 1", "row 10", "row 19", "row 30"],
            (false, false),
        ),
        // What is nearest is there, and it says that there is more.
        (LogFilter::default(), (0, 0), vec![], (true, true)),
        (
            LogFilter {
                since: since(20),
                ..LogFilter::default()
            },
            (3, 2),
            vec!["row 1", "row 10", "row 19"],
            (false, false),
        ),
        (
            LogFilter {
                until: since(9),
                ..LogFilter::default()
            },
            (0, 2),
            vec!["row 10"],
            (true, false),
        ),
    ] {
        let asked = format!("{filter:?} {before} {after}");
        let (rows, about) = listed(&bench.querier, &filter, &with_positions(Some(position), before, after)).await;
        assert_eq!(messages(&rows), expected, "{asked}");
        let about = about.unwrap();
        assert_eq!(
            (&about["more_before"], &about["more_after"]),
            (&json!(more.0), &json!(more.1)),
            "{asked}"
        );
    }
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
    let moment = RowPosition::of_moment(model::Timestamp::from_micros(position.ts.micros() + 1));
    let (rows, _) = listed(
        &bench.querier,
        &LogFilter::default(),
        &with_positions(Some(moment), 1, 1),
    )
    .await;
    assert_eq!(rows, all[3..5]);
    // At one: it is after the moment in both orders.
    let moment = RowPosition::of_moment(position.ts);
    for order in [SortOrder::Desc, SortOrder::Asc] {
        let filter = LogFilter {
            order: Some(order),
            ..LogFilter::default()
        };
        let (mut rows, _) = listed(&bench.querier, &filter, &with_positions(Some(moment), 1, 1)).await;
        if order == SortOrder::Asc {
            rows.reverse();
        }
        assert_eq!(rows, all[4..6], "{order:?}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_around_a_row_is_refused_by_name() {
    let bench = Bench::new().await;
    let around = RowFilter {
        around: Some(RowPosition {
            ts: now(),
            hash: 1,
            nth: 0,
        }),
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
