//! The browser beside the Mixer: tabs with a probe in every page, and what they cost.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use harness::{BrowserTab, Failure};

/// `bench` of every page.
const PROBE: &str = include_str!("probe.js");
const DESK: (u32, u32) = (1_280, 800);

/// Opens a view in a browser of its own, which has nothing in its cache; `bench.first` tells when an expression is first true there.
pub(super) fn open(base: &str, view: &str, first: &str) -> Result<BrowserTab, Failure> {
    let script = format!("{PROBE}\nbench.first = bench.until(() => {first});");
    BrowserTab::open_with(&format!("{base}/#/{view}"), DESK, &script)
}

/// What browsers have cost, and what went wrong in their pages.
#[derive(Default)]
pub(super) struct BrowserCost {
    cpu: Duration,
    /// The most memory that one was seen to have, all of its processes together.
    most_mib: f64,
    faults: BTreeSet<String>,
}

impl BrowserCost {
    /// Looks at the memory of a browser; what its processes share counts once.
    pub(super) fn look(&mut self, tab: &BrowserTab) {
        let kib: f64 = tree(tab.pid()).into_iter().map(proportional_kib).sum();
        self.most_mib = self.most_mib.max(kib / 1024.0);
    }

    /// Ends a browser, and adds what it has cost.
    pub(super) fn close(&mut self, mut tab: BrowserTab) {
        self.look(&tab);
        self.cpu += tree(tab.pid()).into_iter().map(cpu_time).sum::<Duration>();
        self.faults.extend(tab.faults().iter().cloned());
    }

    pub(super) fn print(&self) {
        let spent = self.cpu.as_secs_f64();
        println!("browser: {spent:.1} CPU s, at most {:.0} MiB", self.most_mib);
        for fault in &self.faults {
            println!("FAULT of the page: {fault:.400}");
        }
    }
}

/// A process and those below it.
fn tree(root: u32) -> Vec<u32> {
    /// The place of the parent's id among the fields.
    const PARENT: usize = 1;
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u64)> = pids.map(|pid| (pid, stat(pid, PARENT))).collect();
    let (mut tree, mut next) = (vec![root], 0);
    while let Some(above) = tree.get(next).copied() {
        let below = parents.iter().filter(|(_, parent)| *parent == u64::from(above));
        tree.extend(below.map(|(pid, _)| *pid));
        next += 1;
    }
    tree
}

/// A field of `/proc/PID/stat` by its place behind the program's name; 0 if the process is gone.
fn stat(pid: u32, at: usize) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let behind = text.rsplit(')').next().unwrap_or_default();
    let field = behind.split_whitespace().nth(at);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

/// User and system time of a process, and of those that it started and that have ended.
fn cpu_time(pid: u32) -> Duration {
    let ticks: u64 = (11..15).map(|at| stat(pid, at)).sum();
    // The kernel's clock tick in user space is 100 Hz on Linux.
    Duration::from_millis(10 * ticks)
}

fn proportional_kib(pid: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0.0)
}
