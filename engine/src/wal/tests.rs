//! The log as a whole: what was synced comes back, whatever happened.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod ahead;
mod behaviour;
mod crash;
mod damage;
mod full;
mod reading;

use bytes::Bytes;
use model::Timestamp;

use super::directory::WalDirectory;
use super::fault_injection::DiskFaultInjector;
use super::segment::parse_name;
use super::*;

/// What recovery found, with all that it handed out.
#[derive(Debug)]
struct Recovered {
    frames: std::vec::IntoIter<WalFrame>,
    next_lsn: u64,
    torn_bytes: u64,
    damage: Vec<super::recovery::WalDamage>,
}

/// A folder with a log in it. In memory where the system has such a folder: syncs are modelled, not timed.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let place = Self { dir: dir.unwrap() };
        std::fs::create_dir(place.log()).unwrap();
        place
    }

    fn log(&self) -> PathBuf {
        self.dir.path().join("wal")
    }

    fn quarantine(&self) -> PathBuf {
        self.dir.path().join("quarantine")
    }

    fn options(&self) -> WalOptions {
        WalOptions {
            store: Uuid::from_u128(0x5708e),
            segment_bytes: 4 * BLOCK,
            max_bytes: 64 * BLOCK,
            low_water: 0,
            replay_from: 0,
            quarantine: self.quarantine(),
            recall: 0,
        }
    }

    fn open(&self) -> (WriteAheadLog, Recovered) {
        self.open_with(self.options(), &DiskFaultInjector::default()).unwrap()
    }

    fn open_above(&self, low_water: u64) -> (WriteAheadLog, Recovered) {
        let options = WalOptions {
            low_water,
            replay_from: low_water,
            ..self.options()
        };
        self.open_with(options, &DiskFaultInjector::default()).unwrap()
    }

    fn open_with(&self, options: WalOptions, faults: &DiskFaultInjector) -> Result<(WriteAheadLog, Recovered), Error> {
        let mut disk = WalDirectory::open(&self.log())?;
        disk.faults = faults.clone();
        let mut frames = Vec::new();
        let mut take = |some| {
            frames.extend(some);
            Ok(())
        };
        let (wal, recovered) = WriteAheadLog::open_on(disk, options, &mut take)?;
        Ok((
            wal,
            Recovered {
                frames: frames.into_iter(),
                next_lsn: recovered.next_lsn,
                torn_bytes: recovered.torn_bytes,
                damage: recovered.damage,
            },
        ))
    }

    /// The log's segments and spares, by name, with their sizes; its last word is none.
    fn files(&self) -> Vec<(String, u64)> {
        let mut files: Vec<_> = std::fs::read_dir(self.log())
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (
                    entry.file_name().into_string().unwrap(),
                    entry.metadata().unwrap().len(),
                )
            })
            .filter(|(name, _): &(String, u64)| parse_name(name).is_some())
            .collect();
        files.sort();
        files
    }

    /// The segment files, oldest number first.
    fn logs(&self) -> Vec<PathBuf> {
        let files = self.files().into_iter();
        files
            .filter(|(name, _)| name.ends_with(".log"))
            .map(|(name, _)| self.log().join(name))
            .collect()
    }

    fn disk_bytes(&self) -> u64 {
        self.files().iter().map(|(_, len)| len).sum()
    }

    /// A second place with the same files.
    fn twin(&self) -> Self {
        let twin = Self::new();
        for (name, _) in self.files() {
            std::fs::copy(self.log().join(&name), twin.log().join(&name)).unwrap();
        }
        twin
    }
}

fn frame(lsn: u64, len: usize) -> WalFrame {
    frame_of(lsn, len, 0)
}

/// A frame whose bytes tell it from every other `life` of the same LSN.
fn frame_of(lsn: u64, len: usize, life: u64) -> WalFrame {
    let seed = lsn.wrapping_mul(31).wrapping_add(life.wrapping_mul(0x9e37_79b9));
    let payload: Vec<u8> = (0..len as u64)
        .map(|at| (seed.wrapping_add(at).wrapping_mul(0x5851_f42d_4c95_7f2d) >> 56) as u8)
        .collect();
    WalFrame {
        lsn,
        table: (lsn % 3) as u8,
        arrived: Timestamp::from_micros(i64::try_from(lsn).unwrap()),
        origin: Bytes::from(format!("origin {lsn} life {life}")),
        payload: payload.into(),
    }
}

fn frames(recovered: Recovered) -> Vec<WalFrame> {
    recovered.frames.collect()
}

fn lsns(recovered: Recovered) -> Vec<u64> {
    frames(recovered).iter().map(|frame| frame.lsn).collect()
}

/// Appends and syncs frames one group at a time.
fn fill(wal: &mut WriteAheadLog, groups: &[&[WalFrame]]) {
    for group in groups {
        wal.append(group).unwrap();
        wal.sync().unwrap();
    }
}
