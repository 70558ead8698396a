//! Ten times the appenders that a store can follow, of large batches: those that wait hold their own, the store holds no
//! more than it may, and what it answered is there.
//!
//! `PLATFORM_TEST_OVERLOAD_SECONDS` makes it longer: the long form is 60.

use std::time::{Duration, Instant};

use harness::store::{Driver, Judge, Load, settings};
use harness::{Failure, Random};

use super::{setting, store_on};

const MIB: u64 = 1 << 20;
/// Batches after which the store is at work with all that it holds.
const UNDER_WAY: usize = 100;
/// What a process may grow by after its first third without being called growing.
const SLACK: u64 = 40 * MIB;

#[test]
fn under_ten_times_the_load_memory_stays_flat_and_every_answered_batch_is_there() -> Result<(), Failure> {
    let random = Random::for_test("under_ten_times_the_load_memory_stays_flat_and_every_answered_batch_is_there");
    let folder = tempfile::tempdir()?;
    let store = store_on(folder.path());
    let load = Load {
        seed: random.seed,
        rows: 400,
        scripted: false,
    };
    let arguments = [
        "stream".to_owned(),
        store.display().to_string(),
        load.seed.to_string(),
        "1".to_owned(),
        load.rows.to_string(),
        "40".to_owned(),
    ];
    let mut driver = Driver::start(&[], &arguments, &folder.path().join("errors"))?;
    driver.wait_for(UNDER_WAY)?;
    let (begun, lasts) = (
        Instant::now(),
        Duration::from_secs(setting("PLATFORM_TEST_OVERLOAD_SECONDS", 6)),
    );
    let (mut early, mut late) = (0, 0);
    while begun.elapsed() < lasts {
        let now = driver.memory();
        let peak = if begun.elapsed() < lasts / 3 {
            &mut early
        } else {
            &mut late
        };
        *peak = now.max(*peak);
        std::thread::park_timeout(Duration::from_millis(50));
    }
    driver.wait_for(UNDER_WAY + 41)?;
    let heard = driver.kill9()?;
    let batches = heard.acknowledged.len();
    eprintln!(
        "{batches} batches answered in {lasts:?}, at most {} MiB early, {} MiB late",
        early / MIB,
        late / MIB
    );
    assert!(batches > UNDER_WAY + 40, "it takes some: {:?}", heard.notes);
    assert!(
        late <= early + early / 4 + SLACK,
        "memory grows: {} MiB, then {}",
        early / MIB,
        late / MIB
    );
    let judge = Judge {
        load,
        last: heard.acknowledged.last().copied().unwrap_or(0) + 64,
        heard: &heard,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build()?;
    runtime.block_on(judge.judge(settings(&store)))?.check("judged")
}
