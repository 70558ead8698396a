//! Host information of a Rack: name, address, CPU, memory and disk.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use model::Attributes;
use tokio::net::UdpSocket;

use crate::gears::CpuTimes;

/// How long looking for the local address may take; a name server may be slow.
const LOOK_WITHIN: Duration = Duration::from_secs(1);

/// The machine's host name.
pub(crate) fn name() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "localhost".to_owned())
}

/// Where the bus is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BusHost {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl BusHost {
    /// The first address of `snake.url`.
    pub(crate) fn of(url: &str) -> Self {
        let first = url.split(',').next().unwrap_or_default().trim();
        let rest = first.split_once("://").map_or(first, |(_, rest)| rest);
        let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
        let rest = rest.split('/').next().unwrap_or_default();
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().unwrap_or(4222)),
            _ => (rest, 4222),
        };
        Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
        }
    }
}

/// The address from which this machine speaks to the bus; where the bus is on this machine too, the one from which it would
/// speak to the outside. Nothing is sent to find out.
pub(crate) async fn address(bus: &BusHost) -> IpAddr {
    let local = |found: Option<IpAddr>| found.filter(|ip| !ip.is_loopback() && !ip.is_unspecified());
    if let Some(ip) = local(source_towards((&bus.host, bus.port)).await) {
        return ip;
    }
    // Any outside address does: the kernel only looks up the route (this one is reserved for documentation).
    if let Some(ip) = local(source_towards(("192.0.2.1", 9)).await) {
        return ip;
    }
    interface().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

async fn source_towards(target: (&str, u16)) -> Option<IpAddr> {
    let look = async {
        let socket = UdpSocket::bind("0.0.0.0:0").await?;
        socket.connect(target).await?;
        socket.local_addr()
    };
    let found = tokio::time::timeout(LOOK_WITHIN, look).await.ok()?;
    found.ok().map(|address| address.ip())
}

/// The first interface address that is not the loopback's.
fn interface() -> Option<IpAddr> {
    let mut addresses = nix::ifaddrs::getifaddrs().ok()?;
    addresses.find_map(|interface| {
        let ip = IpAddr::V4(interface.address?.as_sockaddr_in()?.ip());
        (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
    })
}

/// The machine as heartbeats report it.
#[derive(Debug)]
pub(crate) struct HostProbe {
    state_dir: PathBuf,
    /// The processors at the last look.
    cpu: CpuTimes,
}

impl HostProbe {
    /// The one whose disk this folder is on.
    pub(crate) fn new(state_dir: PathBuf) -> Self {
        Self {
            state_dir,
            cpu: CpuTimes::default(),
        }
    }

    /// Host facts for a heartbeat. Unknown ones are left out.
    pub(crate) fn facts(&mut self) -> Attributes {
        let mut facts = memory_and_disk(&self.state_dir);
        if let Ok(cpus) = std::thread::available_parallelism() {
            facts.set("cpu.count", cpus.get());
        }
        if let Some(cpu) = read("/proc/stat").and_then(|text| CpuTimes::parse(&text)) {
            // The first time, since the machine was started.
            if let Some((_, busy)) = cpu.utilization_since(&self.cpu) {
                facts.set("cpu.usage", busy);
            }
            self.cpu = cpu;
        }
        facts
    }
}

fn memory_and_disk(state_dir: &std::path::Path) -> Attributes {
    let mut facts = Attributes::new();
    if let Some(load) = read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse::<f64>().ok()) {
        facts.set("load.1m", load);
    }
    if let Some(text) = read("/proc/meminfo") {
        let total = meminfo(&text, "MemTotal:");
        let available = meminfo(&text, "MemAvailable:");
        if let (Some(total), Some(available)) = (total, available) {
            facts.set("memory.total", total);
            facts.set("memory.used", total.saturating_sub(available));
        }
    }
    if let Ok(disk) = nix::sys::statvfs::statvfs(state_dir) {
        facts.set(
            "disk.free",
            disk.blocks_available().saturating_mul(disk.fragment_size()),
        );
        facts.set("disk.total", disk.blocks().saturating_mul(disk.fragment_size()));
    }
    facts
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

/// A line of `/proc/meminfo`, in bytes.
fn meminfo(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn facts_name_the_machines_memory_and_disk_in_bytes() {
        let facts = HostProbe::new("/".into()).facts();
        for key in [
            "cpu.count",
            "cpu.usage",
            "load.1m",
            "memory.total",
            "memory.used",
            "disk.free",
        ] {
            assert!(facts.get(key).is_some(), "{key}");
        }
        let total = facts.get("memory.total").and_then(serde_json::Value::as_u64).unwrap();
        assert!(total > 64 << 20);
    }

    #[test]
    fn memory_lines_are_kibibytes() {
        assert_eq!(
            meminfo("MemTotal:       1024 kB\nX: 1 kB\n", "MemTotal:"),
            Some(1 << 20)
        );
        assert_eq!(meminfo("MemTotal: many\n", "MemTotal:"), None);
    }

    #[tokio::test]
    async fn a_machine_always_has_an_address_even_if_the_bus_has_none() {
        let ip = address(&BusHost::of("nats://no such host.invalid:1")).await;
        assert!(!ip.is_unspecified());
    }

    #[test]
    fn the_bus_host_is_found_in_every_form_of_address() {
        for (url, host, port) in [
            ("nats://localhost:4222", "localhost", 4222),
            ("nats://user:secret@bus.example:99,nats://other:1", "bus.example", 99),
            ("tls://[::1]:5", "::1", 5),
            ("[::1]", "::1", 4222),
            ("bus", "bus", 4222),
        ] {
            let host = host.to_owned();
            assert_eq!(BusHost::of(url), BusHost { host, port }, "{url}");
        }
    }
}
