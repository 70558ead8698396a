//! The kernel's text files, read into numbers. Pure functions over their content.
//!
//! # Invariants
//!
//! - A line that does not have the expected form is left out; nothing is guessed.

/// CPU time by mode, in clock ticks, over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct CpuTimes(pub(super) [u64; 8]);

/// The modes of [`CpuTimes`], in its order, under their OpenTelemetry names.
pub(super) const CPU_MODES: [&str; 8] = [
    "user",
    "nice",
    "system",
    "idle",
    "iowait",
    "interrupt",
    "softirq",
    "steal",
];
const IDLE: usize = 3;
const IOWAIT: usize = 4;

impl CpuTimes {
    /// The first line of `/proc/stat`. Guest time is already part of user time.
    pub(crate) fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let mut times = [0; 8];
        let mut fields = line.split_ascii_whitespace();
        for time in &mut times {
            *time = fields.next()?.parse().ok()?;
        }
        Some(Self(times))
    }

    /// The share of each mode, and of all but idle and iowait, since an earlier reading. None if no time has passed.
    #[allow(clippy::cast_precision_loss, reason = "ticks between two readings are few")]
    pub(crate) fn utilization_since(&self, earlier: &Self) -> Option<([f64; 8], f64)> {
        let mut spent = [0; 8];
        for ((spent, now), then) in spent.iter_mut().zip(self.0).zip(earlier.0) {
            *spent = now.saturating_sub(then);
        }
        let all: u64 = spent.iter().sum();
        let busy = all - spent[IDLE] - spent[IOWAIT];
        (all > 0).then(|| (spent.map(|spent| spent as f64 / all as f64), busy as f64 / all as f64))
    }
}

/// The number of logical CPUs in `/proc/stat`.
pub(super) fn cpu_count(stat: &str) -> usize {
    let is_cpu = |line: &&str| {
        line.strip_prefix("cpu")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    stat.lines().filter(is_cpu).count()
}

/// `/proc/meminfo`, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SystemMemory {
    pub(super) total: u64,
    pub(super) free: u64,
    pub(super) available: u64,
    pub(super) buffers: u64,
    pub(super) cached: u64,
    pub(super) swap_total: u64,
    pub(super) swap_free: u64,
}

impl SystemMemory {
    pub(super) fn parse(meminfo: &str) -> Option<Self> {
        let bytes = |key: &str| {
            let line = meminfo
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
            let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
            kib.checked_mul(1024)
        };
        Some(Self {
            total: bytes("MemTotal")?,
            free: bytes("MemFree")?,
            available: bytes("MemAvailable")?,
            buffers: bytes("Buffers").unwrap_or(0),
            cached: bytes("Cached").unwrap_or(0) + bytes("SReclaimable").unwrap_or(0),
            swap_total: bytes("SwapTotal").unwrap_or(0),
            swap_free: bytes("SwapFree").unwrap_or(0),
        })
    }

    /// What is neither free nor cache.
    pub(super) fn used(&self) -> u64 {
        self.total.saturating_sub(self.free + self.buffers + self.cached)
    }
}

/// A line of `/proc/diskstats`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiskStats {
    pub(super) device: String,
    pub(super) reads: u64,
    pub(super) read_bytes: u64,
    pub(super) read_millis: u64,
    pub(super) writes: u64,
    pub(super) written_bytes: u64,
    pub(super) write_millis: u64,
    pub(super) busy_millis: u64,
}

/// The devices of `/proc/diskstats` that have done anything.
pub(super) fn disks(diskstats: &str) -> Vec<DiskStats> {
    /// The unit of this file, whatever the device's own sectors are.
    const SECTOR: u64 = 512;
    let disk = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(2);
        let device = words.next()?.to_owned();
        let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [
            reads,
            _,
            read,
            read_millis,
            writes,
            _,
            written,
            write_millis,
            _,
            busy_millis,
            ..,
        ] = numbers[..]
        else {
            return None;
        };
        Some(DiskStats {
            device,
            reads,
            read_bytes: read.saturating_mul(SECTOR),
            read_millis,
            writes,
            written_bytes: written.saturating_mul(SECTOR),
            write_millis,
            busy_millis,
        })
    };
    diskstats
        .lines()
        .filter_map(disk)
        .filter(|disk| disk.reads + disk.writes > 0)
        .collect()
}

/// A line of `/proc/net/dev`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetworkInterface {
    pub(super) name: String,
    pub(super) received: TrafficCounters,
    pub(super) sent: TrafficCounters,
}

/// One direction of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TrafficCounters {
    pub(super) bytes: u64,
    pub(super) packets: u64,
    pub(super) errors: u64,
    pub(super) dropped: u64,
}

/// The interfaces of `/proc/net/dev`.
pub(super) fn interfaces(net_dev: &str) -> Vec<NetworkInterface> {
    let traffic = |numbers: &[u64]| match numbers {
        [bytes, packets, errors, dropped, ..] => Some(TrafficCounters {
            bytes: *bytes,
            packets: *packets,
            errors: *errors,
            dropped: *dropped,
        }),
        _ => None,
    };
    let interface = |line: &str| {
        let (name, rest) = line.rsplit_once(':')?;
        let numbers: Vec<u64> = rest
            .split_ascii_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        Some(NetworkInterface {
            name: name.trim().to_owned(),
            received: traffic(&numbers)?,
            sent: traffic(numbers.get(8..)?)?,
        })
    };
    net_dev.lines().filter_map(interface).collect()
}

/// A mounted file system that stores something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountEntry {
    pub(super) device: String,
    pub(super) point: String,
    pub(super) kind: String,
    pub(super) mode: &'static str,
}

/// The mounts of `/proc/self/mounts` that lie on a local device, each device once, under its first mount point.
/// Network file systems are left out: asking one whose server is away would block.
pub(super) fn mounts(mounts: &str) -> Vec<MountEntry> {
    let mut found: Vec<MountEntry> = Vec::new();
    for line in mounts.lines() {
        let mut words = line.split(' ');
        let (Some(device), Some(point), Some(kind), Some(options)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let rootfs = kind == "overlay" && point == "/";
        let device = unescape(device);
        let local = device.starts_with("/dev/") || kind == "zfs" || rootfs;
        if !local || matches!(kind, "squashfs" | "iso9660" | "fuse") || found.iter().any(|mount| mount.device == device)
        {
            continue;
        }
        found.push(MountEntry {
            device,
            point: unescape(point),
            kind: kind.to_owned(),
            mode: if options.split(',').any(|option| option == "ro") {
                "ro"
            } else {
                "rw"
            },
        });
    }
    found
}

/// `\040` and its like: the kernel writes spaces, tabs, newlines and backslashes of names in octal.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        if let Some(digits) = octal {
            bytes.push(
                digits
                    .iter()
                    .fold(0u8, |value, digit| value.wrapping_mul(8).wrapping_add(digit - b'0')),
            );
            rest = &tail[3..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The three numbers of `/proc/loadavg`.
pub(super) fn load(loadavg: &str) -> Option<[f64; 3]> {
    let mut words = loadavg.split(' ').map_while(|word| word.parse().ok());
    Some([words.next()?, words.next()?, words.next()?])
}

/// The seconds of `/proc/uptime`.
pub(super) fn uptime(uptime: &str) -> Option<f64> {
    uptime.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn cpu_utilization_is_the_share_of_the_ticks_between_two_readings() {
        let before = CpuTimes::parse("cpu  100 0 100 800 0 0 0 0 5 0\ncpu0 1 2 3\n").unwrap();
        let after = CpuTimes::parse("cpu  125 0 125 840 10 0 0 0 5 0\n").unwrap();
        let (shares, busy) = after.utilization_since(&before).unwrap();
        assert_eq!((shares[0], shares[2], shares[3], shares[4]), (0.25, 0.25, 0.4, 0.1));
        assert!((busy - 0.5).abs() < 1e-9);
        assert_eq!(after.utilization_since(&after), None);
        assert_eq!((CpuTimes::parse("cpu  1 2"), CpuTimes::parse("")), (None, None));
        assert_eq!(cpu_count("cpu  1\ncpu0 1\ncpu1 1\ncpufreq 1\nintr 1\n"), 2);
    }

    #[test]
    fn memory_is_in_bytes_and_used_is_neither_free_nor_cache() {
        let text = "MemTotal: 100 kB\nMemFree: 20 kB\nMemAvailable: 50 kB\nBuffers: 5 kB\nCached: 30 kB\nSReclaimable: 5 kB\nSwapTotal: 8 kB\nSwapFree: 2 kB\n";
        let memory = SystemMemory::parse(text).unwrap();
        assert_eq!(
            (memory.total, memory.available, memory.used()),
            (100 << 10, 50 << 10, 40 << 10)
        );
        assert_eq!((memory.swap_total, memory.swap_free), (8 << 10, 2 << 10));
        assert_eq!(SystemMemory::parse("MemTotal: 100 kB\n"), None);
    }

    #[test]
    fn disks_and_interfaces_are_read_and_idle_disks_left_out() {
        let text =
            " 254 0 vda 10 1 16 3 20 2 32 4 0 7 9 1 2 3 4 5 6\n   7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\nbroken line\n";
        let disks = disks(text);
        assert_eq!(disks.len(), 1);
        let disk = &disks[0];
        assert_eq!(
            (disk.device.as_str(), disk.reads, disk.read_bytes, disk.read_millis),
            ("vda", 10, 8192, 3)
        );
        assert_eq!(
            (disk.writes, disk.written_bytes, disk.write_millis, disk.busy_millis),
            (20, 16384, 4, 7)
        );
        let text = "Inter-| Receive\n face |bytes\n  eth0:1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n wlan: 1\n";
        let interfaces = interfaces(text);
        assert_eq!(interfaces.len(), 1);
        assert_eq!(interfaces[0].name, "eth0");
        assert_eq!(
            interfaces[0].received,
            TrafficCounters {
                bytes: 1,
                packets: 2,
                errors: 3,
                dropped: 4
            }
        );
        assert_eq!(
            interfaces[0].sent,
            TrafficCounters {
                bytes: 5,
                packets: 6,
                errors: 7,
                dropped: 8
            }
        );
    }

    #[test]
    fn mounts_are_local_devices_each_once_with_readable_names() {
        let text = "proc /proc proc rw 0 0\n/dev/sda1 / ext4 rw,relatime 0 0\n/dev/sda1 /bind ext4 rw 0 0\n\
                    server:/x /net nfs4 rw 0 0\n/dev/sdb1 /my\\040disk xfs ro,noatime 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        let mounts = mounts(text);
        let seen: Vec<_> = mounts
            .iter()
            .map(|m| (m.point.as_str(), m.kind.as_str(), m.mode))
            .collect();
        assert_eq!(seen, [("/", "ext4", "rw"), ("/my disk", "xfs", "ro")]);
    }

    #[test]
    fn load_and_uptime_are_read() {
        assert_eq!(load("5.42 4.13 2.45 8/151 11758\n"), Some([5.42, 4.13, 2.45]));
        assert_eq!(load("x"), None);
        assert_eq!(uptime("3577.59 4325.59\n"), Some(3577.59));
    }
}
