//! Conditions of scans look at rows slice by slice, and find in slices what they find at once.

use std::cell::Cell;

use model::filter::{LogFilter, TimePoint};
use model::{LogRecord, Table, TelemetryRecord as _};

use super::Bench;
use super::random_world::{self, Random};
use super::rows::lets_log;
use crate::scan::ScanFilter;
use crate::{Error, filter};

const ROWS: usize = 6_000;

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_asks_between_slices_of_rows_whether_to_go_on() {
    let mut random = Random::new();
    let bench = Bench::new().await;
    let logs: Vec<LogRecord> = (0..ROWS).map(|_| random_world::log(&mut random)).collect();
    let rows = LogRecord::to_batch(&logs).unwrap();
    let many = LogFilter {
        not_q: (0..50).map(|number| format!("no such {number}")).collect(),
        not_attributes: (0..50)
            .map(|key| (format!("k{key}"), ["v".to_owned()].into()))
            .collect(),
        ..LogFilter::default()
    };
    for turn in 0..20 {
        let filter = LogFilter {
            since: Some(TimePoint::EVER),
            until: None,
            ..match turn {
                0 => many.clone(),
                _ => random_world::log_filter(&mut random),
            }
        };
        let conditions = filter::logs(&filter);
        let compiled = ScanFilter::new(bench.querier.pools.typed.template(), Table::Logs, &conditions).unwrap();
        let asked = Cell::new(0);
        let go_on = || {
            asked.set(asked.get() + 1);
            Ok::<_, Error>(())
        };
        let kept = compiled.keep(&rows, go_on).unwrap();
        let wanted: Vec<bool> = logs.iter().map(|log| lets_log(&filter, log)).collect();
        let found: Vec<bool> = (0..ROWS)
            .map(|row| kept.as_ref().is_none_or(|kept| kept.value(row)))
            .collect();
        assert_eq!(found, wanted, "{filter:?}");
        if conditions.is_empty() {
            continue;
        }
        let least = if turn == 0 { 18 } else { 3 };
        assert!(asked.get() >= least, "{} times: {filter:?}", asked.get());
        // Whoever waits is gone before the second slice.
        let asked = Cell::new(0);
        let ended = compiled.keep(&rows, || {
            asked.set(asked.get() + 1);
            if asked.get() == 2 { Err(Error::Closed) } else { Ok(()) }
        });
        assert!(matches!(ended, Err(Error::Closed)), "{ended:?}");
        assert_eq!(asked.get(), 2);
    }
    bench.close().await;
}
