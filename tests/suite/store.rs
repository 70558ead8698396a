//! The store under faults that only another process can have: it is killed, loses its power, and its system calls fail.
//!
//! | file | what |
//! |---|---|
//! | `sweep` | the N-th call of each kind fails, for every N |
//! | `writeback` | its disk fails behind the kernel's back: a sync fails once, and the next one says that all is well |
//! | `overload` | ten times more is sent than it can take |
//! | `full` | its disk fills up |
//! | `flips` | single bits of its files flip |
//! | `ends` | power cuts and kill -9 at random moments under load |
//!
//! Each test is short here. `PLATFORM_TEST_…` variables, named in each file, make the long form; a failure prints the line
//! that repeats it. What the machine lacks is printed, never passed over.

mod ends;
mod flips;
mod full;
mod overload;
mod sweep;
mod writeback;

use std::path::{Path, PathBuf};

/// A number from the environment.
fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok().and_then(|value| value.parse().ok());
    value.unwrap_or(default)
}

/// The store's folder on a disk.
fn store_on(disk: &Path) -> PathBuf {
    disk.join("disk/store")
}
