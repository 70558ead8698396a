//! Files that are not what was written: an answer has the other rows, and says that it is partial.

use std::path::Path;

use model::filter::LogFilter;

use super::world::{Random, log};
use super::*;
use crate::ListQuery;

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
