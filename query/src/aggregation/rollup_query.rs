//! Roll-up queries: counts of log records, by level and by the name of the entity, that roll-ups of segments can answer.
//!
//! # Invariants
//!
//! - A question says of every row what the conditions of the same filter say ([`crate::filter::logs`]).

use engine::MINUTE;
use model::filter::{HistogramGrouping, LogFilter};
use model::{EntityId, Level};

use crate::scan::RollupQuery;
use crate::time_range::TimeRange;

/// A filter and what its rows are split by, as a question to counts; `None` if only rows answer it. `width` is that of buckets,
/// if there are any, in microseconds.
pub(crate) fn rollup_query(
    filter: &LogFilter,
    window: TimeRange,
    (by, width): (HistogramGrouping, Option<i64>),
    most: usize,
) -> Option<RollupQuery> {
    // All fields, so that a new one is not passed over.
    let LogFilter {
        level,
        min_level,
        since: _,
        until: _,
        rack_id,
        gear_id: None,
        entity,
        service: None,
        flux_id: None,
        trace_id: None,
        q: None,
        attributes,
        not_level,
        not_entity,
        not_service,
        not_q,
        not_attributes,
        order: _,
        limit: _,
        offset: _,
        cursor: _,
    } = filter
    else {
        return None;
    };
    let names: Vec<&String> = rack_id.iter().chain(entity).collect();
    let is_id = |name: &String| name.parse::<EntityId>().is_ok();
    let is_of_rows =
        !attributes.is_empty() || !not_service.is_empty() || !not_q.is_empty() || !not_attributes.is_empty();
    let has_ids = names.iter().copied().chain(not_entity).any(is_id);
    if is_of_rows || has_ids || width.is_some_and(|width| width % MINUTE != 0) {
        return None;
    }
    let is_met = |at: &&Level| {
        level.is_none_or(|level| **at == level)
            && min_level.is_none_or(|least| **at >= least)
            && !not_level.contains(*at)
    };
    let is_limited = level.is_some() || min_level.is_some() || !not_level.is_empty();
    let levels = Level::ALL.iter().filter(is_met).map(|level| level.as_str());
    Some(RollupQuery {
        window,
        bucket: width.map(|width| width / MINUTE),
        split: by.into(),
        levels: is_limited.then(|| levels.collect()),
        entities: names.into_iter().cloned().collect(),
        other_than: not_entity.clone(),
        most,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::collections::BTreeSet;

    use super::*;

    fn asked(filter: &LogFilter, width: Option<i64>) -> Option<RollupQuery> {
        rollup_query(filter, TimeRange::ALL, (HistogramGrouping::None, width), 10)
    }

    fn without_names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn levels_and_names_of_entities_over_whole_minutes_are_for_counts_and_nothing_else() {
        let plain = LogFilter::default();
        let whole = asked(&plain, Some(5 * MINUTE)).unwrap();
        assert_eq!((whole.bucket, whole.levels, whole.entities.len()), (Some(5), None, 0));
        assert!(asked(&plain, Some(90_000_000)).is_none() && asked(&plain, None).is_some());
        let some = LogFilter {
            level: Some(Level::Error),
            min_level: Some(Level::Warn),
            rack_id: Some("rack-a".to_owned()),
            entity: Some("rack-b".to_owned()),
            ..LogFilter::default()
        };
        let some = asked(&some, None).unwrap();
        assert_eq!(some.levels.unwrap(), ["error"]);
        assert_eq!(some.entities, ["rack-a", "rack-b"]);
        let without = LogFilter {
            not_level: [Level::Debug].into(),
            not_entity: ["rack-a".to_owned()].into(),
            ..LogFilter::default()
        };
        let without = asked(&without, None).unwrap();
        assert_eq!(without.levels.unwrap(), ["info", "warn", "error"]);
        assert_eq!(without.other_than, without_names(&["rack-a"]));
        let text = || Some("5".to_owned());
        let others = [
            LogFilter {
                entity: Some(EntityId::for_name("rack-a").to_string()),
                ..LogFilter::default()
            },
            LogFilter {
                gear_id: text(),
                ..LogFilter::default()
            },
            LogFilter {
                service: text(),
                ..LogFilter::default()
            },
            LogFilter {
                q: text(),
                ..LogFilter::default()
            },
            LogFilter {
                attributes: [("a".to_owned(), "b".to_owned())].into(),
                ..LogFilter::default()
            },
            LogFilter {
                not_entity: without_names(&[&EntityId::for_name("rack-a").to_string()]),
                ..LogFilter::default()
            },
            LogFilter {
                not_service: without_names(&["5"]),
                ..LogFilter::default()
            },
            LogFilter {
                not_q: without_names(&["5"]),
                ..LogFilter::default()
            },
            LogFilter {
                not_attributes: [("a".to_owned(), without_names(&["b"]))].into(),
                ..LogFilter::default()
            },
        ];
        assert!(others.iter().all(|filter| asked(filter, None).is_none()));
    }
}
