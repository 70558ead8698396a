//! A walk over the series of metric points comes to what a plan comes to.

use std::collections::BTreeMap;

use model::filter::{BucketShape, MetricAggregate, MetricFilter};
use model::{MetricPoint, Timestamp};
use serde_json::{Map, Value};

use super::random_world::{self, Random};
use super::{Bench, HOUR, now};
use crate::aggregation::bucket_aggregator::{MetricGroups, PointTotals};
use crate::aggregation::metric_aggregation;
use crate::aggregation::metric_aggregation::MetricAggregation;
use crate::aggregation::series_walk as walk;
use crate::query_scan::QueryScan;
use crate::time_range::TimeRange;
use crate::{ListQuery, filter};

/// Points of a few hundred series in the past hour, enough for files of many pages, some of them equal in time.
fn many(random: &mut Random) -> Vec<MetricPoint> {
    let start = now().micros().div_euclid(HOUR) * HOUR - HOUR;
    (0..140_000)
        .map(|n| {
            let mut point = random_world::point(random);
            point.ts = Timestamp::from_micros(start + n * 7919 % 140_000 / 2 * 50_000);
            point.name = format!("metric.{}", n % 40);
            point
        })
        .collect()
}

/// What groups come to, by the names of their series.
fn told(groups: &MetricGroups) -> BTreeMap<String, PointTotals> {
    let told = groups
        .cells
        .iter()
        .map(|cell| (format!("{:?}", groups.key(cell)), cell.totals));
    told.collect()
}

#[allow(clippy::float_cmp, reason = "least and greatest are values as they were")]
async fn walks_agree(bench: &Bench, random: &mut Random) {
    for turn in 0..12 {
        let mut filter = random_world::summary_filter(random);
        filter.name = [Some("metric.7"), Some("metric.39"), Some("gone"), None][turn % 4].map(str::to_owned);
        filter.group_by = [None, Some("entity_name"), Some("entity_id")][turn % 3].map(str::to_owned);
        filter.interval = Some(random.pick(&["1m", "5m", "1h"]).parse().unwrap());
        let summary = MetricAggregation::of(&filter).unwrap().unwrap();
        let window = TimeRange::resolve(filter.since, filter.until, None, now()).unwrap();
        let conditions = filter::metrics(&filter);
        let scan = || {
            let (session, view) = (bench.querier.pools.typed.acquire_session(), bench.engine.view());
            QueryScan::new(
                (session, view),
                &std::sync::Arc::default(),
                model::Table::Metrics,
                window,
                conditions.clone(),
            )
            .unwrap()
        };
        let walked = told(&walk::groups(&scan(), &summary, window).await.unwrap().unwrap());
        let planned = told(
            &metric_aggregation::aggregate_by_plan(&scan(), &summary, window)
                .await
                .unwrap(),
        );
        assert!(walked.keys().eq(planned.keys()), "{filter:?}");
        for (key, one) in &walked {
            let other = planned[key];
            let (sum, than) = (one.sum, other.sum);
            assert_eq!(
                (one.samples, one.min, one.max),
                (other.samples, other.min, other.max),
                "{key} {filter:?}"
            );
            assert!(
                (sum - than).abs() <= 1e-9 * than.abs().max(1.0),
                "{key}: {sum} is not {than}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walk_over_series_comes_to_what_a_plan_comes_to_in_memory_in_open_and_in_sealed_files() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let all = many(&mut random);
    bench.append(&all[..70_000]).await;
    walks_agree(&bench, &mut random).await;
    bench.publish().await;
    walks_agree(&bench, &mut random).await;
    bench.append(&all[70_000..139_000]).await;
    bench.seal().await;
    assert!(
        bench
            .engine
            .view()
            .files(model::Table::Metrics)
            .iter()
            .all(|file| file.sealed)
    );
    bench.append(&all[139_000..]).await;
    walks_agree(&bench, &mut random).await;
    // One metric is a small part of the rows.
    let one = MetricFilter {
        name: Some("metric.7".to_owned()),
        group_by: Some("entity_name".to_owned()),
        interval: Some("1m".parse().unwrap()),
        agg: Some(MetricAggregate::Avg),
        ..MetricFilter::default()
    };
    let stats = bench.querier.page(ListQuery::Metrics(one.clone())).await.unwrap().stats;
    assert!(stats.rows_scanned < 70_000, "{stats:?}");
    bench.close().await;
}

/// A row of a series as the rows of its buckets, those without points left out.
fn buckets_of(line: &Map<String, Value>) -> Vec<Map<String, Value>> {
    let list = |name: &str| line[name].as_array().unwrap().clone();
    let (values, samples) = (list("values"), list("samples"));
    assert_eq!(values.len(), samples.len());
    assert!(samples.first() != Some(&Value::from(0)) && samples.last() != Some(&Value::from(0)));
    let interval: model::HumanDuration = line["interval"].as_str().unwrap().parse().unwrap();
    let mut ts: Timestamp = line["ts"].as_str().unwrap().parse().unwrap();
    let mut rows = Vec::new();
    for (value, samples) in values.into_iter().zip(samples) {
        let mut row = line.clone();
        row.retain(|key, _| !["values", "interval"].contains(&key.as_str()));
        row.insert("ts".to_owned(), ts.to_string().into());
        row.insert("value".to_owned(), value);
        row.insert("samples".to_owned(), samples.clone());
        ts = ts.plus(interval.get());
        if samples != 0 {
            rows.push(row);
        }
    }
    rows
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_of_a_series_has_the_values_of_its_buckets_and_each_series_is_given_once() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let all: Vec<MetricPoint> = (0..600).map(|_| random_world::point(&mut random)).collect();
    bench.append(&all[..300]).await;
    bench.seal().await;
    bench.append(&all[300..]).await;
    let place = |row: &Map<String, Value>| format!("{} {row:?}", row["ts"]);
    for _ in 0..30 {
        let mut filter = random_world::summary_filter(&mut random);
        filter.interval = Some(random.pick(&["7s", "1m", "1h"]).parse().unwrap());
        let mut rows = bench
            .querier
            .page(ListQuery::Metrics(filter.clone()))
            .await
            .unwrap()
            .rows;
        // What else a histogram tells has no place in a list of values.
        let is_more = |key: &str| ["count", "sum", "p50", "p90", "p99"].contains(&key);
        rows.iter_mut().for_each(|row| row.retain(|key, _| !is_more(key)));
        filter.shape = Some(BucketShape::Series);
        filter.limit = Some(3);
        let mut given = Vec::new();
        loop {
            let page = bench.querier.page(ListQuery::Metrics(filter.clone())).await.unwrap();
            assert!(page.rows.len() == 3 || page.next_cursor.is_none());
            given.extend(page.rows.iter().flat_map(buckets_of));
            filter.cursor = page.next_cursor;
            if filter.cursor.is_none() {
                break;
            }
        }
        rows.sort_by_key(place);
        given.sort_by_key(place);
        assert_eq!(given, rows, "{filter:?}");
    }
    bench.close().await;
}
