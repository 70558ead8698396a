//! `host_metrics`: CPU, memory, paging, disk, file systems, network, load and uptime, from `/proc`.
//!
//! Names, units and attributes are those of the OpenTelemetry semantic conventions for system metrics; what the conventions
//! leave out follows their rule for the operating system's own (`system.linux.…`). `cpu.mode` has one value more: `total`,
//! the share of all modes but idle and iowait.
//!
//! # Invariants
//!
//! - Counters are the kernel's own: cumulative since boot.
//! - A source that cannot be read is reported once and left out; the others go on.
//! - Utilization is measured between two readings, never since boot.

mod procfs;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use gear_spec::host_metrics::HostMetricsConfig;
use model::{Attributes, MetricType, gear_manifest};
use tokio::time::MissedTickBehavior;

use super::{ActiveGear, Gear, GearContext, GearFuture, RawConfig};
use crate::telemetry::MetricRow;
pub(crate) use procfs::CpuTimes;
use procfs::{CPU_MODES, SystemMemory, TrafficCounters};

/// When the first report comes, if the interval is longer: soon, but with a CPU utilization to report.
const FIRST: Duration = Duration::from_secs(1);

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    let config: HostMetricsConfig = gear_manifest::config(config)?;
    Ok(Gear::Active(Box::new(HostMetricsReporter {
        interval: config.interval.get(),
    })))
}

struct HostMetricsReporter {
    interval: Duration,
}

impl ActiveGear for HostMetricsReporter {
    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let mut gauge = HostSampler::new(Path::new("/proc"), clock_ticks());
            // The first reading only gives the CPU times that the next one is compared with.
            gauge = read(gauge, cx).await?.0;
            let start = tokio::time::Instant::now() + FIRST.min(self.interval);
            let mut tick = tokio::time::interval_at(start, self.interval);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    () = cx.stopping() => return Ok(()),
                    _ = tick.tick() => {}
                }
                let (next, rows) = read(gauge, cx).await?;
                gauge = next;
                rows.into_iter().for_each(|row| cx.recorder().metric_row(row));
            }
        }
        .boxed()
    }
}

/// Reads everything on a thread that may block: a disk in trouble blocks whoever asks for its size.
async fn read(
    mut gauge: HostSampler,
    cx: &Arc<GearContext>,
) -> Result<(HostSampler, Vec<MetricRow>), super::GearError> {
    let cx = Arc::clone(cx);
    let work = move || {
        let mut rows = MetricRowBuilder {
            ts: cx.recorder().now(),
            rows: Vec::new(),
        };
        for fault in gauge.measure(&mut rows) {
            cx.error(fault);
        }
        (gauge, rows.rows)
    };
    Ok(tokio::task::spawn_blocking(work).await?)
}

/// The unit of CPU times, per second.
fn clock_ticks() -> f64 {
    let ticks = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    #[allow(clippy::cast_precision_loss, reason = "about 100")]
    ticks.filter(|ticks| *ticks > 0).map_or(100.0, |ticks| ticks as f64)
}

/// The metrics of one reading.
struct MetricRowBuilder {
    ts: model::Timestamp,
    rows: Vec<MetricRow>,
}

impl MetricRowBuilder {
    fn put(&mut self, name: &str, metric_type: MetricType, unit: &str, value: f64, labels: &[(&str, &str)]) {
        let mut attributes = Attributes::new().with("otel.unit", unit);
        labels.iter().for_each(|(key, label)| attributes.set(key, *label));
        self.rows.push(MetricRow {
            ts: self.ts,
            name: name.to_owned(),
            metric_type,
            value,
            labels: attributes,
        });
    }

    fn gauge(&mut self, name: &str, unit: &str, value: f64, labels: &[(&str, &str)]) {
        self.put(name, MetricType::Gauge, unit, value, labels);
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "counters beyond 2^53 lose less than one part in 10^15"
    )]
    fn count(&mut self, name: &str, unit: &str, value: u64, labels: &[(&str, &str)]) {
        self.put(name, MetricType::Counter, unit, value as f64, labels);
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "sizes beyond 2^53 bytes lose less than one part in 10^15"
    )]
    fn bytes(&mut self, name: &str, value: u64, labels: &[(&str, &str)]) {
        self.gauge(name, "By", value as f64, labels);
    }

    /// Bytes of a whole, and their share of it.
    fn share(&mut self, names: (&str, &str), value: u64, whole: u64, labels: &[(&str, &str)]) {
        self.bytes(names.0, value, labels);
        if whole > 0 {
            #[allow(clippy::cast_precision_loss, reason = "a ratio")]
            self.gauge(names.1, "1", value as f64 / whole as f64, labels);
        }
    }
}

/// What reads the machine.
struct HostSampler {
    proc: PathBuf,
    ticks: f64,
    cpu: Option<CpuTimes>,
    /// Sources that cannot be read and have been reported.
    broken: BTreeSet<&'static str>,
}

impl HostSampler {
    fn new(proc: &Path, ticks: f64) -> Self {
        Self {
            proc: proc.to_owned(),
            ticks,
            cpu: None,
            broken: BTreeSet::new(),
        }
    }

    /// Measures everything; gives back what newly failed.
    fn measure(&mut self, rows: &mut MetricRowBuilder) -> Vec<String> {
        let mut faults = Vec::new();
        let sources: [(&'static str, MetricReader); 7] = [
            ("stat", Self::cpu),
            ("meminfo", Self::memory),
            ("diskstats", Self::disks),
            ("self/mounts", Self::file_systems),
            ("net/dev", Self::network),
            ("loadavg", Self::load),
            ("uptime", Self::uptime),
        ];
        for (name, source) in sources {
            let path = self.proc.join(name);
            let done = match std::fs::read_to_string(&path) {
                Ok(text) => source(self, &text, rows).ok_or_else(|| "not in the form we know".to_owned()),
                Err(error) => Err(error.to_string()),
            };
            match done {
                Ok(()) => drop(self.broken.remove(name)),
                Err(reason) if self.broken.insert(name) => {
                    faults.push(format!(
                        "cannot read {}: {reason}; its metrics are left out",
                        path.display()
                    ));
                }
                Err(_) => {}
            }
        }
        faults
    }

    #[allow(clippy::cast_precision_loss, reason = "ticks and counts of CPUs")]
    fn cpu(&mut self, text: &str, rows: &mut MetricRowBuilder) -> Option<()> {
        let now = CpuTimes::parse(text)?;
        for (mode, ticks) in CPU_MODES.iter().zip(now.0) {
            let seconds = ticks as f64 / self.ticks;
            rows.put(
                "system.cpu.time",
                MetricType::Counter,
                "s",
                seconds,
                &[("cpu.mode", mode)],
            );
        }
        rows.gauge("system.cpu.logical.count", "{cpu}", procfs::cpu_count(text) as f64, &[]);
        let before = self.cpu.replace(now);
        if let Some((shares, busy)) = before.and_then(|before| now.utilization_since(&before)) {
            for (mode, share) in CPU_MODES.iter().zip(shares) {
                rows.gauge("system.cpu.utilization", "1", share, &[("cpu.mode", mode)]);
            }
            rows.gauge("system.cpu.utilization", "1", busy, &[("cpu.mode", "total")]);
        }
        Some(())
    }

    fn memory(&mut self, text: &str, rows: &mut MetricRowBuilder) -> Option<()> {
        let memory = SystemMemory::parse(text)?;
        rows.bytes("system.memory.limit", memory.total, &[]);
        rows.bytes("system.memory.linux.available", memory.available, &[]);
        for (state, bytes) in [
            ("used", memory.used()),
            ("free", memory.free),
            ("cached", memory.cached),
            ("buffers", memory.buffers),
        ] {
            let names = ("system.memory.usage", "system.memory.utilization");
            rows.share(names, bytes, memory.total, &[("system.memory.state", state)]);
        }
        for (state, bytes) in [
            ("used", memory.swap_total.saturating_sub(memory.swap_free)),
            ("free", memory.swap_free),
        ] {
            let names = ("system.paging.usage", "system.paging.utilization");
            rows.share(names, bytes, memory.swap_total, &[("system.paging.state", state)]);
        }
        Some(())
    }

    #[allow(clippy::cast_precision_loss, reason = "milliseconds since boot")]
    fn disks(&mut self, text: &str, rows: &mut MetricRowBuilder) -> Option<()> {
        let second = |millis: u64| millis as f64 / 1_000.0;
        // Partitions would count their disk's bytes a second time.
        let whole = |device: &str| {
            !Path::new("/sys/block").is_dir() || Path::new("/sys/block").join(device.replace('/', "!")).exists()
        };
        for disk in procfs::disks(text).into_iter().filter(|disk| whole(&disk.device)) {
            let device = ("system.device", disk.device.as_str());
            for (direction, bytes, count, millis) in [
                ("read", disk.read_bytes, disk.reads, disk.read_millis),
                ("write", disk.written_bytes, disk.writes, disk.write_millis),
            ] {
                let labels = [device, ("disk.io.direction", direction)];
                rows.count("system.disk.io", "By", bytes, &labels);
                rows.count("system.disk.operations", "{operation}", count, &labels);
                rows.put(
                    "system.disk.operation_time",
                    MetricType::Counter,
                    "s",
                    second(millis),
                    &labels,
                );
            }
            rows.put(
                "system.disk.io_time",
                MetricType::Counter,
                "s",
                second(disk.busy_millis),
                &[device],
            );
        }
        Some(())
    }

    fn file_systems(&mut self, text: &str, rows: &mut MetricRowBuilder) -> Option<()> {
        for mount in procfs::mounts(text) {
            // A mount point that is hidden from us, or went away since: nothing to say about it.
            let Ok(size) = nix::sys::statvfs::statvfs(mount.point.as_str()) else {
                continue;
            };
            let bytes = |blocks: u64| blocks.saturating_mul(size.fragment_size());
            let (all, free, ours) = (size.blocks(), size.blocks_free(), size.blocks_available());
            let labels = [
                ("system.device", mount.device.as_str()),
                ("system.filesystem.mountpoint", mount.point.as_str()),
                ("system.filesystem.type", mount.kind.as_str()),
                ("system.filesystem.mode", mount.mode),
            ];
            rows.bytes("system.filesystem.limit", bytes(all), &labels);
            for (state, blocks) in [
                ("used", all.saturating_sub(free)),
                ("free", ours),
                ("reserved", free.saturating_sub(ours)),
            ] {
                let [device, point, kind, mode] = labels;
                let labels = [device, point, kind, mode, ("system.filesystem.state", state)];
                let names = ("system.filesystem.usage", "system.filesystem.utilization");
                rows.share(names, bytes(blocks), bytes(all), &labels);
            }
        }
        Some(())
    }

    fn network(&mut self, text: &str, rows: &mut MetricRowBuilder) -> Option<()> {
        for interface in procfs::interfaces(text) {
            for (direction, traffic) in [("receive", interface.received), ("transmit", interface.sent)] {
                let TrafficCounters {
                    bytes,
                    packets,
                    errors,
                    dropped,
                } = traffic;
                let labels = [
                    ("network.interface.name", interface.name.as_str()),
                    ("network.io.direction", direction),
                ];
                rows.count("system.network.io", "By", bytes, &labels);
                rows.count("system.network.packet.count", "{packet}", packets, &labels);
                rows.count("system.network.packet.dropped", "{packet}", dropped, &labels);
                rows.count("system.network.errors", "{error}", errors, &labels);
            }
        }
        Some(())
    }

    fn load(&mut self, text: &str, rows: &mut MetricRowBuilder) -> Option<()> {
        for (name, value) in ["1m", "5m", "15m"].iter().zip(procfs::load(text)?) {
            rows.gauge(&format!("system.linux.cpu.load_{name}"), "{thread}", value, &[]);
        }
        Some(())
    }

    fn uptime(&mut self, text: &str, rows: &mut MetricRowBuilder) -> Option<()> {
        rows.gauge("system.uptime", "s", procfs::uptime(text)?, &[]);
        Some(())
    }
}

type MetricReader = fn(&mut HostSampler, &str, &mut MetricRowBuilder) -> Option<()>;

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn rows() -> MetricRowBuilder {
        MetricRowBuilder {
            ts: model::Timestamp::from_micros(1),
            rows: Vec::new(),
        }
    }

    fn value(rows: &MetricRowBuilder, name: &str, label: Option<(&str, &str)>) -> f64 {
        let fits = |row: &&MetricRow| {
            row.name == name && label.is_none_or(|(key, label)| row.labels.get(key).is_some_and(|found| found == label))
        };
        rows.rows.iter().find(fits).unwrap().value
    }

    fn unit<'a>(rows: &'a MetricRowBuilder, name: &str) -> &'a str {
        let row = rows.rows.iter().find(|row| row.name == name);
        row.unwrap().labels.get("otel.unit").unwrap().as_str().unwrap()
    }

    #[test]
    fn the_metrics_of_this_machine_agree_with_its_kernel() {
        let mut gauge = HostSampler::new(Path::new("/proc"), clock_ticks());
        assert_eq!(gauge.measure(&mut rows()), Vec::<String>::new());
        let uptime = || procfs::uptime(&std::fs::read_to_string("/proc/uptime").unwrap()).unwrap();
        let (mut all, before) = (rows(), uptime());
        // CPU times advance in ticks of 10 ms.
        while uptime() < before + 0.05 {
            std::thread::yield_now();
        }
        gauge.measure(&mut all);
        assert!((before..=uptime()).contains(&value(&all, "system.uptime", None)));
        let memory = SystemMemory::parse(&std::fs::read_to_string("/proc/meminfo").unwrap()).unwrap();
        #[allow(clippy::cast_precision_loss, reason = "bytes of a machine")]
        let total = memory.total as f64;
        assert_eq!(value(&all, "system.memory.limit", None), total);
        let states = ["used", "free", "cached", "buffers"]
            .map(|s| value(&all, "system.memory.usage", Some(("system.memory.state", s))));
        assert!((states.iter().sum::<f64>() - total).abs() < 1.0);
        let busy = value(&all, "system.cpu.utilization", Some(("cpu.mode", "total")));
        let modes: f64 = CPU_MODES
            .iter()
            .map(|m| value(&all, "system.cpu.utilization", Some(("cpu.mode", m))))
            .sum();
        assert!((0.0..=1.0).contains(&busy) && (modes - 1.0).abs() < 1e-6);
        let cpus = std::fs::read_to_string("/proc/cpuinfo")
            .unwrap()
            .matches("processor\t")
            .count();
        assert!(cpus == 0 || (value(&all, "system.cpu.logical.count", None) - cpus as f64).abs() < 0.1);
        assert!(value(&all, "system.network.io", Some(("network.interface.name", "lo"))) >= 0.0);
        assert!(value(&all, "system.cpu.time", Some(("cpu.mode", "user"))) > 0.0);
        assert!(value(&all, "system.linux.cpu.load_1m", None) >= 0.0);
    }

    #[test]
    fn every_metric_has_its_semantic_convention_unit() {
        let mut gauge = HostSampler::new(Path::new("/proc"), 100.0);
        let mut all = rows();
        gauge.measure(&mut all);
        for (name, wanted) in [
            ("system.cpu.time", "s"),
            ("system.cpu.logical.count", "{cpu}"),
            ("system.memory.usage", "By"),
            ("system.memory.utilization", "1"),
            ("system.network.io", "By"),
            ("system.network.packet.count", "{packet}"),
            ("system.network.errors", "{error}"),
            ("system.uptime", "s"),
        ] {
            assert_eq!(unit(&all, name), wanted, "{name}");
        }
    }

    #[test]
    fn a_source_that_is_missing_is_reported_once_and_the_others_go_on() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("loadavg"), "1.0 2.0 3.0 1/1 1\n").unwrap();
        std::fs::write(folder.path().join("uptime"), "soon\n").unwrap();
        let mut gauge = HostSampler::new(folder.path(), 100.0);
        let mut all = rows();
        let faults = gauge.measure(&mut all);
        assert_eq!(faults.len(), 6, "{faults:?}");
        assert!(
            faults
                .iter()
                .any(|fault| fault.contains("uptime") && fault.contains("not in the form"))
        );
        assert_eq!(gauge.measure(&mut all), Vec::<String>::new());
        assert_eq!(value(&all, "system.linux.cpu.load_5m", None), 2.0);
    }
}
