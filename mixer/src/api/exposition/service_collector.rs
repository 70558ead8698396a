//! Metrics of the services behind the API, read at each scrape.

use std::fmt;
use std::time::Duration;

use model::{MetricKind, MetricReading, Timestamp};
use nix::sys::statvfs::statvfs;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::catalog_metrics;
use crate::api::{ApiParts, ops};
use crate::export::SignalStatus;
use crate::scenario::WireBacklog;

/// A token that ends within this time is counted, so that somebody makes the next one.
const EXPIRES_SOON: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The other services' counters, read at each scrape.
#[derive(Debug)]
pub(super) struct ServiceCollector {
    parts: ApiParts,
    /// When the Mixer began to serve.
    started: Timestamp,
}

impl Collector for ServiceCollector {
    fn encode(&self, mut to: DescriptorEncoder) -> Result<(), fmt::Error> {
        self.process(&mut to)?;
        self.readiness(&mut to)?;
        let engine = self.parts.engine.stats();
        encode_all(&mut to, engine.metrics().chain(engine.tail.metrics()))?;
        encode_all(&mut to, engine.remote.iter().flat_map(|remote| remote.metrics()))?;
        self.views(&mut to)?;
        self.parts
            .catalog
            .iter()
            .try_for_each(|catalog| catalog_metrics::encode(catalog, &mut to))?;
        encode_all(
            &mut to,
            self.parts.ingest.iter().flat_map(|ingest| ingest.snapshot().metrics()),
        )?;
        self.spans(&mut to)?;
        self.quotas(&mut to)?;
        self.letters(&mut to)?;
        self.export(&mut to)?;
        self.specs(&mut to)?;
        self.control(&mut to)
    }
}

/// Whether a token ends soon that was made for longer: one for an hour ends when it should. When those of a file were made is not known.
fn is_expiring(created: Option<Timestamp>, expires: Option<Timestamp>, now: Timestamp) -> bool {
    expires.is_some_and(|expires| {
        let is_brief = created.is_some_and(|created| expires.since(created) <= EXPIRES_SOON);
        now < expires && expires.since(now) < EXPIRES_SOON && !is_brief
    })
}

/// Each metric of a set.
fn encode_all(to: &mut DescriptorEncoder, mut metrics: impl Iterator<Item = MetricReading>) -> Result<(), fmt::Error> {
    metrics.try_for_each(|metric| match metric.kind {
        MetricKind::Counter => counter(to, metric.name, metric.help, metric.value),
        MetricKind::Gauge => gauge(to, metric.name, metric.help, metric.value),
    })
}

fn counter(to: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
    let metric = ConstCounter::new(value);
    metric.encode(to.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn gauge(to: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
    let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    metric.encode(to.encode_descriptor(name, help, None, metric.metric_type())?)
}

impl ServiceCollector {
    pub(super) fn new(parts: ApiParts) -> Self {
        let started = parts.control.now();
        Self { parts, started }
    }

    fn process(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        gauge(
            to,
            "process_start_time_seconds",
            "When the Mixer began to serve, in seconds of Unix time",
            u64::try_from(self.started.micros() / 1_000_000).unwrap_or(0),
        )?;
        // Nothing is said where the system says nothing.
        if let Ok(disk) = statvfs(&self.parts.engine.settings().store_dir) {
            gauge(
                to,
                "store_free_bytes",
                "Free bytes on the file system of store.dir",
                disk.blocks_available().saturating_mul(disk.fragment_size()),
            )?;
        }
        let expires = self.parts.tls.as_ref().and_then(|tls| tls.certificate_expires());
        expires.map_or(Ok(()), |expires| {
            gauge(
                to,
                "api_certificate_expires_seconds",
                "When the certificate of the API expires, in seconds of Unix time",
                expires,
            )
        })
    }

    fn readiness(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let mut family =
            to.encode_descriptor("ready", "1 if this check of /readyz is passed", None, MetricType::Gauge)?;
        for (name, check) in ops::checks(&self.parts) {
            let passed = ConstGauge::new(i64::from(check["ok"] == true));
            passed.encode(family.encode_family(&[("check", name.as_str())])?)?;
        }
        let now = self.parts.control.now();
        let tokens = self.parts.authenticator.tokens().list();
        let expiring = tokens
            .iter()
            .filter(|token| is_expiring(token.created, token.expires, now))
            .count();
        gauge(
            to,
            "tokens_expiring",
            "API tokens in force that expire within seven days, of those that were made for longer",
            expiring as u64,
        )
    }

    fn views(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let views = &self.parts.views;
        counter(to, "views_written", "Writes of platform.sql", views.written())?;
        counter(to, "views_failures", "Failed writes of platform.sql", views.failures())
    }

    fn spans(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let (stored, dropped) = self.parts.spans.counts();
        counter(to, "self_tracing_stored_spans", "The Mixer's own spans stored", stored)?;
        counter(
            to,
            "self_tracing_dropped_spans",
            "The Mixer's own spans dropped because the queue was full or the store took none",
            dropped,
        )
    }

    fn quotas(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        counter(
            to,
            "quota_refusals",
            "Requests and statements refused because their caller had used up a rate or an amount",
            self.parts.authenticator.quotas().refusals(),
        )?;
        let racks = self.parts.ingest.iter().flat_map(|ingest| ingest.racks.all());
        let racks: Vec<_> = racks.collect();
        for (name, help, of) in [
            (
                "rack_messages",
                "Messages that a Rack sent over the bus",
                (|traffic| traffic.sent.messages) as fn(&::ingest::RackTraffic) -> u64,
            ),
            (
                "rack_bytes",
                "Bytes of messages that a Rack sent over the bus",
                |traffic| traffic.sent.bytes,
            ),
            (
                "rack_beyond_quota_messages",
                "Messages that a Rack sent beyond a quota",
                |traffic| traffic.beyond.messages,
            ),
        ] {
            let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (rack, traffic) in &racks {
                ConstCounter::new(of(traffic)).encode(family.encode_family(&[("rack", rack.as_str())])?)?;
            }
        }
        Ok(())
    }

    fn export(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(export) = &self.parts.export else {
            return Ok(());
        };
        let now = self.parts.control.now();
        let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
        for (name, help, kind, of) in [
            (
                "export_rows",
                "Rows that the collector accepted",
                counter,
                (|status, _| status.rows.get()) as fn(&SignalStatus, Timestamp) -> u64,
            ),
            (
                "export_requests",
                "Requests sent to the collector, repeated ones included",
                counter,
                |status, _| status.requests.get(),
            ),
            (
                "export_retries",
                "Requests sent to the collector again",
                counter,
                |status, _| status.retries.get(),
            ),
            (
                "export_rejected_records",
                "Records that the collector rejected of requests that it accepted",
                counter,
                |status, _| status.rejected.get(),
            ),
            (
                "export_dead_letters",
                "Dead letters of requests that the collector refused or accepted in part",
                counter,
                |status, _| status.letters.get(),
            ),
            (
                "export_lag_seconds",
                "Age of the oldest row that waits for the collector's answer, in seconds",
                gauge,
                |status, now| status.oldest().map_or(0, |oldest| now.since(oldest).as_secs()),
            ),
        ] {
            let mut family = to.encode_descriptor(name, help, None, kind)?;
            for status in export.signals() {
                let labels = [("signal", status.signal.name())];
                let (value, metric) = (of(status, now), family.encode_family(&labels)?);
                if matches!(kind, MetricType::Counter) {
                    ConstCounter::new(value).encode(metric)?;
                } else {
                    ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)?;
                }
            }
        }
        Ok(())
    }

    fn letters(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let stats = self.parts.dlq.stats();
        let kind = MetricType::Gauge;
        let mut open = to.encode_descriptor(
            "dlq_open_letters",
            "Dead letters neither replayed nor dropped",
            None,
            kind,
        )?;
        for ((rack, gear), count) in &stats.open {
            let count = ConstGauge::new(i64::try_from(*count).unwrap_or(i64::MAX));
            count.encode(open.encode_family(&[("rack", rack.as_str()), ("gear", gear.as_str())])?)?;
        }
        gauge(
            to,
            "dlq_waiting_letters",
            "Dead letters waiting to be replayed",
            stats.waiting,
        )?;
        counter(
            to,
            "dlq_replayed_letters",
            "Dead letters replayed and accepted by their gears",
            stats.replayed,
        )?;
        counter(to, "dlq_dropped_letters", "Dead letters dropped", stats.dropped)
    }

    fn specs(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let figures = self.parts.specs.figures();
        gauge(to, "specs", "Specs of business messages in force", figures.active)?;
        gauge(
            to,
            "specs_refused_files",
            "Invalid spec files, whose previous version stays in force",
            figures.refused,
        )?;
        counter(to, "specs_changes", "Specs added, changed or removed", figures.changes)?;
        counter(
            to,
            "specs_refusals",
            "Times that a spec file was refused",
            figures.refusals,
        )?;
        let kind = MetricType::Counter;
        for (name, help, of) in [
            (
                "spec_messages",
                "Messages stored under a spec",
                (|counts| counts.messages) as fn(&::ingest::SpecCounts) -> u64,
            ),
            (
                "spec_failed_values",
                "Promoted fields that failed type conversion and are null",
                |counts| counts.failed,
            ),
        ] {
            let mut family = to.encode_descriptor(name, help, None, kind)?;
            for (spec, counts) in &figures.taken {
                ConstCounter::new(of(counts)).encode(family.encode_family(&[("spec", spec.as_str())])?)?;
            }
        }
        Ok(())
    }

    fn wires(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let wires = self.parts.control.wires();
        for (name, help, of) in [
            (
                "wire_waiting_messages",
                "Backlog of a guaranteed wire in bus messages",
                (|wire| wire.waiting_batches.unwrap_or(0)) as fn(&WireBacklog) -> u64,
            ),
            (
                "wire_waiting_bytes",
                "Backlog of a guaranteed wire in bytes, estimated",
                |wire| wire.waiting_bytes,
            ),
            (
                "wire_limit_bytes",
                "Backlog in bytes at which the senders of a wire wait",
                |wire| wire.limit_bytes.unwrap_or(u64::MAX),
            ),
            (
                "wire_held",
                "1 if the senders of a wire wait for its receiver",
                |wire| u64::from(wire.is_held),
            ),
        ] {
            let mut family = to.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for wire in &wires {
                let value = ConstGauge::new(i64::try_from(of(wire)).unwrap_or(i64::MAX));
                value.encode(family.encode_family(&[("wire", wire.wire.as_str())])?)?;
            }
        }
        let (name, help) = (
            "wire_dropped_messages",
            "Messages of a wire that became dead letters because its backlog was too large or too old",
        );
        let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
        for wire in &wires {
            let value = ConstCounter::new(wire.dropped_messages);
            value.encode(family.encode_family(&[("wire", wire.wire.as_str())])?)?;
        }
        Ok(())
    }

    fn control(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let bus = self.parts.control.bus_status();
        gauge(
            to,
            "bus_connected",
            "1 if the Mixer is connected to the bus",
            u64::from(bus.connected),
        )?;
        gauge(to, "bus_healthy", "1 if the bus is healthy", u64::from(bus.healthy))?;
        counter(to, "bus_restarts", "Restarts of the bus server", bus.restarts)?;
        if let Some(free) = bus.free_bytes {
            gauge(
                to,
                "bus_store_free_bytes",
                "Free bytes on the file system of the bus",
                free,
            )?;
        }
        self.wires(to)?;
        // A registry that cannot be read is reported by the requests that need it; a scrape shows the rest.
        let Ok(stats) = self.parts.control.stats() else {
            return Ok(());
        };
        let kind = MetricType::Gauge;
        let mut racks = to.encode_descriptor("racks", "Racks by state", None, kind)?;
        for (state, count) in &stats.racks {
            let count = ConstGauge::new(i64::try_from(*count).unwrap_or(i64::MAX));
            count.encode(racks.encode_family(&[("state", *state)])?)?;
        }
        let kind = MetricType::Counter;
        let help = "Transitions of Racks between states";
        let mut transitions = to.encode_descriptor("rack_transitions", help, None, kind)?;
        for ((from, into), count) in &stats.transitions {
            let count = ConstCounter::new(*count);
            count.encode(transitions.encode_family(&[("from", from.as_str()), ("to", into.as_str())])?)?;
        }
        for (name, help, refused) in [
            (
                "handshakes_refused",
                "Refused handshakes of Racks",
                &stats.handshakes_refused,
            ),
            (
                "heartbeats_refused",
                "Refused heartbeats of Racks",
                &stats.heartbeats_refused,
            ),
        ] {
            let mut family = to.encode_descriptor(name, help, None, kind)?;
            for (code, count) in refused {
                ConstCounter::new(*count).encode(family.encode_family(&[("code", *code)])?)?;
            }
        }
        let help = "Bytes that a Rack keeps in its spool and outbox until the Mixer has them";
        let mut family = to.encode_descriptor("rack_spool_bytes", help, None, MetricType::Gauge)?;
        for (rack, bytes) in &stats.spool_bytes {
            let bytes = ConstGauge::new(i64::try_from(*bytes).unwrap_or(i64::MAX));
            bytes.encode(family.encode_family(&[("rack", rack.as_str())])?)?;
        }
        gauge(
            to,
            "racks_converged",
            "Active Racks that run their assignment",
            stats.converged,
        )?;
        counter(
            to,
            "scenario_pushes_applied",
            "Scenario pushes applied by a Rack",
            stats.pushes_applied,
        )?;
        counter(
            to,
            "scenario_pushes_failed",
            "Scenario pushes that a Rack failed to apply",
            stats.pushes_failed,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_was_made_for_a_short_time_is_not_one_that_expires_soon() {
        let at = |days: i64| Timestamp::from_micros(days * 24 * 60 * 60 * 1_000_000);
        for (created, expires, expected) in [
            (Some(0), Some(30), true),
            (None, Some(30), true),
            (Some(23), Some(30), false),
            (Some(22), Some(30), true),
            (Some(0), Some(40), false),
            (Some(0), Some(25), false),
            (Some(0), None, false),
        ] {
            let found = is_expiring(created.map(at), expires.map(at), at(25));
            assert_eq!(found, expected, "{created:?} {expires:?}");
        }
    }
}
