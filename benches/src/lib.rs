//! What the benches share: what a process cost, and how figures are summed up.
//!
//! # Not here
//!
//! The method of each bench: its own file, and `benches/README.md`.

pub mod bus_site;
pub mod data;
pub mod days;
pub mod feed;
pub mod lines;
pub mod otlp_bodies;

use std::{fs, io};

/// What a process has cost so far, by the kernel's accounting.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// User and system CPU seconds.
    pub cpu_seconds: f64,
    /// Peak resident memory in MiB.
    pub peak_mib: f64,
}

/// The cost of a running process; zeros if it is gone.
#[must_use]
pub fn cost(pid: i32) -> Cost {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    // The kernel's clock tick in user space is 100 Hz on Linux.
    Cost {
        cpu_seconds: (ticks(11) + ticks(12)) / 100.0,
        peak_mib: memory_mib(pid, "VmHWM:"),
    }
}

/// CPU seconds of a process's running threads of one name, by the scheduler's own clock (`schedstat`); 0 without such a thread, or where the kernel does
/// not keep it.
#[must_use]
pub fn thread_seconds(pid: i32, name: &str) -> f64 {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let of_name = threads.into_iter().flatten().flatten().filter(|thread| {
        let named = fs::read_to_string(thread.path().join("comm"));
        named.is_ok_and(|named| named.trim_end() == name)
    });
    let nanoseconds = of_name.filter_map(|thread| {
        let spent = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        spent.split_whitespace().next()?.parse::<f64>().ok()
    });
    nanoseconds.sum::<f64>() / 1e9
}

/// What a process has now is its peak from here on.
///
/// # Errors
/// If the system refuses.
pub fn forget_peak(pid: i32) -> io::Result<()> {
    fs::write(format!("/proc/{pid}/clear_refs"), "5")
}

/// The resident memory of a running process in MiB; 0 if it is gone.
#[must_use]
pub fn resident_mib(pid: i32) -> f64 {
    memory_mib(pid, "VmRSS:")
}

/// What of it belongs to no file, in MiB: the heap and the stacks, without the program's text.
#[must_use]
pub fn anonymous_mib(pid: i32) -> f64 {
    memory_mib(pid, "RssAnon:")
}

fn memory_mib(pid: i32, key: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

/// What a running process has moved by read(2), write(2) and their like, sockets and files, in MiB; 0 if it is gone. Programs in Go use
/// these for sockets too.
#[must_use]
pub fn moved_mib(pid: i32) -> f64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let of = |key: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(key));
        line.and_then(|rest| rest.trim().parse::<f64>().ok()).unwrap_or(0.0)
    };
    (of("rchar:") + of("wchar:")) / f64::from(1 << 20)
}

/// The value at a share (0 to 1) of sorted values; 0 without values.
#[must_use]
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() {
        return 0.0;
    }
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an index into a slice that fits in memory"
    )]
    let at = ((sorted.len() - 1) as f64 * share).round() as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// The machine's load over the last minute.
#[must_use]
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}

/// The middle of some figures; 0 without any.
#[must_use]
pub fn median(figures: &mut [f64]) -> f64 {
    figures.sort_by(f64::total_cmp);
    quantile(figures, 0.5)
}

/// Both with what is kept of them, the first one first in even rounds and second in odd ones.
pub fn in_turn<A, B>(round: u64, both: [A; 2], kept: &mut [B; 2]) -> impl Iterator<Item = (A, &mut B)> {
    let mut pairs: Vec<_> = both.into_iter().zip(kept).collect();
    pairs.rotate_left(usize::from(!round.is_multiple_of(2)));
    pairs.into_iter()
}

/// A number from the environment, for the size of a bench.
#[must_use]
pub fn setting(name: &str, default: u64) -> u64 {
    let value = std::env::var(name).ok();
    value.and_then(|value| value.parse().ok()).unwrap_or(default)
}
