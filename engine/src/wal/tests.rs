//! The log as a whole: what was synced comes back, whatever happened.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use super::*;
use bytes::Bytes;
use model::Timestamp;

/// A folder with a log in it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("wal")
    }

    fn options(&self) -> WalOptions {
        WalOptions {
            store: Uuid::from_u128(0x5708e),
            segment_bytes: 4 * BLOCK,
            max_bytes: 64 * BLOCK,
            low_water: 0,
            quarantine: self.dir.path().join("quarantine"),
        }
    }

    fn open(&self) -> (Wal, Recovered) {
        Wal::open(&self.log(), self.options()).unwrap()
    }
}

fn frame(lsn: u64, len: usize) -> Frame {
    let payload: Vec<u8> = (0..len)
        .map(|at| (lsn as u8).wrapping_mul(31).wrapping_add(at as u8))
        .collect();
    Frame {
        lsn,
        table: (lsn % 3) as u8,
        arrived: Timestamp::from_micros(1_000_000 + lsn as i64),
        origin: Bytes::from(format!("origin {lsn}")),
        payload: payload.into(),
    }
}

fn frames(recovered: Recovered) -> Vec<Frame> {
    recovered.frames.map(Result::unwrap).collect()
}

#[test]
fn what_was_synced_comes_back_in_order() {
    let place = Place::new();
    let (mut wal, recovered) = place.open();
    assert_eq!(recovered.next_lsn, 1);
    assert_eq!(frames(recovered), []);
    let written: Vec<Frame> = (1..=40).map(|lsn| frame(lsn, 1000)).collect();
    for group in written.chunks(3) {
        wal.append(group).unwrap();
        wal.sync().unwrap();
    }
    drop(wal);
    let (_, recovered) = place.open();
    assert_eq!(recovered.next_lsn, 41);
    assert_eq!(recovered.damage, []);
    assert_eq!(recovered.torn_bytes, 0);
    assert_eq!(frames(recovered), written);
}
