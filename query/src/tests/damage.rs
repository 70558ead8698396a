//! Files that are not what was written: an answer has the other rows, and says that it is partial.

use std::path::Path;

use model::filter::LogFilter;

use super::random_world::{Random, log};
use super::*;
use crate::{Error, ListQuery, SqlStatement};

pub(super) fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            files_below(&entry.path(), found);
        } else {
            found.push(entry.path());
        }
    }
}

fn flip_one_bit(path: &Path, random: &mut Random) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
    bytes[at] ^= 1 << random.below(8);
    std::fs::write(path, bytes).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_meets_damaged_files_answers_without_them_and_says_so() {
    let mut random = Random::new();
    for mut bench in [Bench::new().await, Bench::of_lines().await] {
        let rows: Vec<_> = (0..400).map(|_| log(&mut random)).collect();
        bench.append(&rows).await;
        bench.seal().await;
        let mut files = Vec::new();
        files_below(&bench.folder().join("store/telemetry/logs"), &mut files);
        files.sort();
        assert!(files.len() >= 3, "{files:?}");
        let filter = LogFilter {
            limit: Some(1_000),
            ..LogFilter::default()
        };
        let whole = bench.engine.view();
        let rows_of = |path: &PathBuf| {
            let segments = whole.files(model::Table::Logs).iter();
            segments
                .filter(|file| file.path == *path)
                .map(|file| file.rows)
                .sum::<u64>()
        };
        let mut wanted = 400;
        for victim in files.iter().take(2) {
            wanted -= rows_of(victim);
            flip_one_bit(victim, &mut random);
        }
        let page = bench.querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
        assert_eq!(page.rows.len() as u64, wanted);
        let partial = page.stats.partial.unwrap();
        // The first one is named, the log has the others.
        let is_named = |victim: &PathBuf| partial.contains(victim.to_str().unwrap());
        assert!(
            files.iter().take(2).any(is_named) && partial.contains("1 more"),
            "{partial}"
        );
        until("they have left the tree", || {
            files.iter().take(2).all(|file| !file.exists())
        })
        .await;
        let again = bench.querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
        assert_eq!(again.rows, page.rows);
        drop(whole);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_knows_before_its_first_row_that_its_answer_is_partial() {
    let mut random = Random::new();
    let mut bench = Bench::new().await;
    let rows: Vec<_> = (0..400).map(|_| log(&mut random)).collect();
    bench.append(&rows).await;
    bench.seal().await;
    let mut files = Vec::new();
    files_below(&bench.folder().join("store/telemetry/logs"), &mut files);
    files.sort();
    flip_one_bit(&files[0], &mut random);
    for (query, reads_rows) in [
        ("SELECT count(*) AS n FROM logs WHERE length(message) >= 0", true),
        ("EXPLAIN SELECT message FROM logs", true),
        ("SELECT 1 AS n", false),
        ("SELECT count(*) AS n FROM information_schema.columns", false),
    ] {
        let statement = SqlStatement {
            query: query.to_owned(),
            ..SqlStatement::default()
        };
        let mut answer = bench.querier.sql(&statement).await.unwrap();
        let told = answer.partial().map(str::to_owned);
        let named = told
            .as_deref()
            .map(|reason| reason.contains(files[0].to_str().unwrap()));
        assert_eq!(named, reads_rows.then_some(true), "{query}: {told:?}");
        while answer.next().await.unwrap().is_some() {}
        assert_eq!(answer.stats().unwrap().query.partial, told, "{query}");
    }
    let nothing = bench.querier.trace("0af7651916cd43dd8448eb211c80319c".parse().unwrap());
    let nothing = nothing.await.unwrap_err().to_string();
    assert!(
        nothing.contains("a part of the store cannot be read"),
        "what is not found may be in the damaged file: {nothing}"
    );
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_meets_damage_again_and_again_ends_at_its_timeout() {
    let limits = QueryLimits::new(model::ByteSize::mib(256), Duration::from_millis(300), 4);
    let bench = Bench::with(limits).await;
    let damaged = || async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        Err::<(), Error>(Error::from(engine::Error::Damaged {
            path: "logs_001.parquet".into(),
            reason: "a bit has flipped".to_owned(),
        }))
    };
    let ended = bench.querier.run(damaged).await;
    assert!(matches!(ended, Err(Error::Timeout(_))), "{ended:?}");
    bench.close().await;
}
