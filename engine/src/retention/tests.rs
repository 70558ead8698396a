//! The plan: what goes, in which order, and what never goes.

use std::borrow::Borrow;

use model::ByteSize;

use super::*;
use crate::layout::TimePartition;
use crate::{PartitionBy, RetentionSettings};

const HOUR: i64 = 3_600_000_000;

fn candidate(table: Table, hour: i64, bytes: u64) -> RetentionCandidate {
    let partition = TimePartition::of(Timestamp::from_micros(hour * HOUR), PartitionBy::Hour);
    RetentionCandidate {
        place: (table, partition),
        ids: vec![1],
        rows: 10,
        bytes,
        index_bytes: 0,
        closed: true,
    }
}

fn limits(policy: RetentionPolicy, hours: u64, max_bytes: u64) -> Settings {
    let rotation = RetentionSettings {
        policy,
        max_size: ByteSize::bytes(max_bytes),
        ..RetentionSettings::default()
    };
    Settings {
        rotation,
        max_age: Duration::from_secs(hours * 3_600),
        ..Settings::new("/store")
    }
}

/// Which hours go, of ten hours of two tables with 100 bytes each.
fn gone(
    limits: impl Borrow<Settings>,
    now: i64,
    other: u64,
    closed: impl Fn(i64) -> bool,
) -> Vec<(Table, i64, RetentionReason)> {
    let all = (0..10).rev().flat_map(|hour| {
        [Table::Traces, Table::Logs].map(|table| RetentionCandidate {
            closed: closed(hour),
            ..candidate(table, hour, 100)
        })
    });
    plan(
        all.collect(),
        limits.borrow(),
        Timestamp::from_micros(now * HOUR),
        other,
    )
    .iter()
    .map(|(gone, reason)| (gone.place.0, gone.place.1.start().micros() / HOUR, *reason))
    .collect()
}

#[test]
fn by_age_goes_what_ended_the_age_ago_or_longer_oldest_first() {
    let rule = limits(RetentionPolicy::Time, 7, 0);
    let age = RetentionReason::Age;
    let wanted = [
        (Table::Logs, 0, age),
        (Table::Traces, 0, age),
        (Table::Logs, 1, age),
        (Table::Traces, 1, age),
    ];
    assert_eq!(gone(&rule, 9, 1_000_000, |_| true), wanted);
    assert_eq!(gone(&rule, 7, 0, |_| true), [], "hour 0 ended six hours ago");
}

#[test]
fn by_size_the_oldest_go_until_the_rest_fits_log_and_catalogue_counted() {
    let rule = limits(RetentionPolicy::Size, 1, 1_900);
    assert_eq!(
        gone(&rule, 1_000, 0, |_| true),
        [(Table::Logs, 0, RetentionReason::Size)]
    );
    assert_eq!(gone(&rule, 1_000, 150, |_| true).len(), 3);
    assert_eq!(gone(limits(RetentionPolicy::Size, 1, 2_000), 1_000, 0, |_| true), []);
    assert_eq!(gone(limits(RetentionPolicy::Size, 1, 0), 1_000, 0, |_| true).len(), 20);
}

#[test]
fn by_both_age_counts_first_and_what_it_frees_need_not_go_by_size() {
    let both = gone(limits(RetentionPolicy::Both, 8, 1_700), 9, 0, |_| true);
    let reasons: Vec<_> = both.iter().map(|(_, hour, reason)| (*hour, *reason)).collect();
    let (age, size) = (RetentionReason::Age, RetentionReason::Size);
    assert_eq!(reasons, [(0, age), (0, age), (1, size)]);
    assert_eq!(gone(limits(RetentionPolicy::Both, 8, 1_800), 9, 0, |_| true).len(), 2);
}

#[test]
fn what_is_not_closed_never_goes_and_is_passed_over() {
    let rule = limits(RetentionPolicy::Both, 1, 0);
    let hours: Vec<i64> = gone(&rule, 1_000, 0, |hour| hour % 2 == 1)
        .iter()
        .map(|(_, hour, _)| *hour)
        .collect();
    assert_eq!(hours, [1, 1, 3, 3, 5, 5, 7, 7, 9, 9]);
}

#[test]
fn one_check_takes_a_quarter_by_age_and_as_much_as_needed_by_size() {
    let aged = |count: i64| -> Vec<_> {
        let all = (0..count).map(|hour| (candidate(Table::Logs, hour, 1), RetentionReason::Age));
        all.collect()
    };
    for (count, partitions, left, more) in [(10, 10, 3, true), (1, 1, 1, false), (2, 2, 1, true), (3, 100, 3, false)] {
        let mut planned = aged(count);
        assert_eq!(cap(&mut planned, partitions), more);
        assert_eq!(planned.len(), left);
        assert_eq!(planned[0].0.place.1.start().micros(), 0, "the oldest");
    }
    let mut by_size: Vec<_> = aged(10)
        .into_iter()
        .map(|(gone, _)| (gone, RetentionReason::Size))
        .collect();
    assert!(!cap(&mut by_size, 10));
    assert_eq!(by_size.len(), 10);
}

#[test]
fn an_index_counts_for_the_size_and_goes_with_its_partition() {
    let with_index = |hour| RetentionCandidate {
        index_bytes: 50,
        ..candidate(Table::Logs, hour, 100)
    };
    let all = || (0..4).map(with_index).collect();
    let gone = |most| plan(all(), &limits(RetentionPolicy::Size, 1, most), Timestamp::MAX, 0).len();
    assert_eq!((gone(600), gone(599), gone(450), gone(449)), (0, 1, 1, 2));
}

#[test]
fn the_queue_of_an_export_counts_nothing_by_size() {
    let of = |export| Settings {
        export,
        ..Settings::new("/store")
    };
    assert_eq!(counted_log(&of(ExportMode::Off), 7), 7);
    for export in [ExportMode::Copy, ExportMode::Only] {
        assert_eq!(counted_log(&of(export), 10 << 30), 0);
    }
}
