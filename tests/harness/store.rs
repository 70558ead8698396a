//! A store under a known load: what is appended follows from a seed, so every row that comes back can be judged.
//!
//! ```text
//! test ── starts ──> store-driver (own process: killed, cut off, refused by its disk) ── acknowledged batches ──> test
//! test ── opens what is left ──> judge: nothing lost, nothing twice, nothing that was not sent
//! ```
//!
//! # Invariants
//!
//! - A batch is a pure function of load and number. What is stored of it is compared row by row, column by column.
//! - The driver says what was acknowledged through a socket: its only `write`s are the engine's.

mod child;
mod judge;
mod load;

pub use child::{Driver, Heard, Told};
pub use judge::{Judge, Verdict, files_below, open, view_rows};
pub use load::{Load, NOON, Phase};

use std::path::Path;
use std::time::Duration;

use engine::{RetentionPolicy, RetentionSettings, Settings, StorageFormat};
use model::ByteSize;

/// Settings under which little data goes through every step that a store knows: several segments of the log, publishes at
/// every tick, seals of past hours at once, rotation by size when asked. `PLATFORM_TEST_FORMAT=json` makes files of lines.
#[must_use]
pub fn settings(store: &Path) -> Settings {
    let mut settings = Settings::new(store);
    settings.flush_interval = Duration::from_millis(20);
    settings.segment_size = ByteSize::bytes(256 << 10);
    settings.wal_max = ByteSize::mib(4);
    settings.hot_max = ByteSize::mib(8);
    settings.seal_grace = Duration::ZERO;
    if std::env::var("PLATFORM_TEST_FORMAT").as_deref() == Ok("json") {
        settings.format = StorageFormat::Json;
    }
    settings.rotation = RetentionSettings {
        policy: RetentionPolicy::Size,
        max_size: ByteSize::mib(1 << 20),
        check_interval: Duration::from_secs(3_600),
    };
    settings
}

/// The settings of the scripted run: the smallest log.
#[must_use]
pub fn script_settings(store: &Path) -> Settings {
    let mut settings = settings(store);
    settings.wal_max = ByteSize::mib(1);
    settings.hot_max = ByteSize::mib(1);
    settings
}
