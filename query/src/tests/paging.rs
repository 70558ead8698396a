//! Paging while rows come in and move from memory into files.

use std::collections::HashMap;
use std::sync::Arc;

use model::filter::{LogFilter, SortOrder};
use model::{Attributes, EntityId, Level, LogRecord, Timestamp};
use tokio::sync::Semaphore;

use super::random_world::Random;
use super::{Bench, HOUR, append, now};
use crate::ListQuery;

/// A row that no other is equal to, at one of very few moments.
fn row(random: &mut Random, name: &str, number: usize) -> LogRecord {
    let moment = i64::try_from(random.below(3)).unwrap();
    LogRecord {
        ts: Timestamp::from_micros(now().micros() - moment * HOUR),
        entity_id: EntityId::for_name("rack-a"),
        entity_name: "rack-a".to_owned(),
        flux_id: None,
        level: Level::Info,
        message: format!("{name} {number}"),
        attributes: Attributes::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_that_was_there_at_the_first_page_is_given_exactly_once_during_ingest() {
    pages_during_ingest(SortOrder::Desc).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_row_is_given_exactly_once_during_ingest_from_the_oldest_on_too() {
    pages_during_ingest(SortOrder::Asc).await;
}

async fn pages_during_ingest(order: SortOrder) {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let there: Vec<_> = (0..400).map(|number| row(&mut random, "there", number)).collect();
    bench.append(&there[..150]).await;
    bench.seal().await;
    bench.append(&there[150..300]).await;
    bench.publish().await;
    bench.append(&there[300..]).await;

    // So many batches come while a page is read, however slow the machine: the reading ends.
    let batches = Arc::new(Semaphore::new(8));
    let writer = {
        let (engine, batches) = (Arc::clone(&bench.engine), Arc::clone(&batches));
        tokio::spawn(async move {
            let mut number = 0;
            while let Ok(batch) = batches.acquire().await {
                batch.forget();
                let rows: Vec<_> = (0..5).map(|n| row(&mut random, "late", number + n)).collect();
                number += rows.len();
                append(&engine, &rows).await;
                if number % 20 == 0 {
                    engine.flush().await.unwrap();
                }
            }
            number
        })
    };
    let mut filter = LogFilter {
        limit: Some(11),
        order: Some(order),
        ..LogFilter::default()
    };
    let mut given: HashMap<String, usize> = HashMap::new();
    let mut times = Vec::new();
    loop {
        let page = bench.querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
        for row in page.rows {
            times.push(row["ts"].as_str().unwrap().to_owned());
            *given.entry(row["message"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        filter.cursor = page.next_cursor;
        // The last rows are read without company.
        if given.len() > 300 {
            batches.close();
        } else {
            batches.add_permits(8);
        }
        if filter.cursor.is_none() {
            break;
        }
    }
    assert!(writer.await.unwrap() > 0);
    assert!(given.values().all(|times| *times == 1), "{given:?}");
    assert!(there.iter().all(|row| given.contains_key(&row.message)));
    match order {
        SortOrder::Desc => assert!(times.is_sorted_by(|earlier, later| earlier >= later)),
        SortOrder::Asc => assert!(times.is_sorted()),
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_equal_in_every_column_are_each_given_once() {
    let bench = Bench::new().await;
    let mut random = Random::new();
    let one = row(&mut random, "same", 0);
    bench.append(&vec![one.clone(); 30]).await;
    bench.publish().await;
    bench.append(&vec![one; 20]).await;
    let mut filter = LogFilter {
        limit: Some(7),
        offset: Some(3),
        ..LogFilter::default()
    };
    let mut given = 0;
    loop {
        let page = bench.querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
        given += page.rows.len();
        filter.offset = None;
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            break;
        }
    }
    assert_eq!(given, 47);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_age_counts_from_the_first_page() {
    let bench = Bench::new().await;
    let mut random = Random::new();
    let rows: Vec<_> = (0..10).map(|number| row(&mut random, "row", number)).collect();
    bench.append(&rows).await;
    let filter = LogFilter {
        since: Some("5h".parse().unwrap()),
        limit: Some(4),
        ..LogFilter::default()
    };
    let page = bench.querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
    // Three hours later the rows are older than the age, and still belong to the answer.
    let later = model::Clock::new(|| Timestamp::from_micros(now().micros() + 30 * HOUR));
    let limits = crate::QueryLimits::default();
    let querier = crate::QueryEngine::new(Arc::clone(&bench.engine), limits, later).unwrap();
    let next = LogFilter {
        cursor: page.next_cursor,
        limit: Some(100),
        ..filter.clone()
    };
    assert_eq!(querier.page(ListQuery::Logs(next.clone())).await.unwrap().rows.len(), 6);
    assert_eq!(
        querier.page(ListQuery::Logs(filter.clone())).await.unwrap().rows.len(),
        0
    );
    querier.close().await;
    bench.close().await;
}
