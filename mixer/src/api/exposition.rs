//! `/metrics`: counters of every room in base units, as OpenMetrics text.
//!
//! Counters of the API are kept here; those of the other rooms are read when asked for.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::ApiParts;
use super::problem::Problem;

/// The content type of the text.
pub(crate) const CONTENT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Bounds of the histogram of answer times, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Asked {
    method: &'static str,
    path: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OnPath {
    path: String,
}

/// What is exposed.
#[derive(Debug)]
pub(crate) struct Exposition {
    registry: Registry,
    requests: Family<Asked, Counter>,
    seconds: Family<OnPath, Histogram, fn() -> Histogram>,
    running: Gauge,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl Exposition {
    pub(crate) fn new(parts: ApiParts, ingest: &super::ingest::Counters) -> Self {
        let mut exposition = Self::of_requests();
        ingest.register(&mut exposition.registry);
        exposition.registry.register_collector(Box::new(Rooms(parts)));
        exposition
    }

    /// The counters of the API alone.
    pub(crate) fn of_requests() -> Self {
        let mut registry = Registry::with_prefix("platform");
        let requests = Family::default();
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        let running = Gauge::default();
        registry.register("api_requests", "Requests answered", requests.clone());
        registry.register(
            "api_request_duration_seconds",
            "Time to an answer's first byte",
            seconds.clone(),
        );
        registry.register("api_requests_running", "Requests being answered", running.clone());
        Self {
            registry,
            requests,
            seconds,
            running,
        }
    }

    pub(crate) fn text(&self) -> Result<String, Problem> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .map_err(|_| Problem::internal("the counters could not be written"))?;
        Ok(text)
    }
}

/// Gives its place back when the answer is there or its requester has left.
struct Running(Gauge);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts a request under its route, never under its path: paths are as many as clients invent.
pub(crate) async fn count(State(exposition): State<Arc<Exposition>>, request: Request, next: Next) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map(|path| path.as_str().to_owned());
    let path = route.unwrap_or_else(|| "none".to_owned());
    let method = match *request.method() {
        http::Method::GET => "GET",
        http::Method::HEAD => "HEAD",
        http::Method::POST => "POST",
        http::Method::PUT => "PUT",
        _ => "other",
    };
    exposition.running.inc();
    let running = Running(exposition.running.clone());
    let started = Instant::now();
    let response = next.run(request).await;
    drop(running);
    let status = response.status().as_u16();
    let seconds = exposition.seconds.get_or_create(&OnPath { path: path.clone() }).clone();
    seconds.observe(started.elapsed().as_secs_f64());
    exposition.requests.get_or_create(&Asked { method, path, status }).inc();
    response
}

/// The other rooms' counters, read at each scrape.
#[derive(Debug)]
struct Rooms(ApiParts);

impl Collector for Rooms {
    fn encode(&self, mut to: DescriptorEncoder) -> Result<(), fmt::Error> {
        self.engine(&mut to)?;
        self.upkeep(&mut to)?;
        self.object_store(&mut to)?;
        self.views(&mut to)?;
        self.ingest(&mut to)?;
        self.letters(&mut to)?;
        self.specs(&mut to)?;
        self.control(&mut to)
    }
}

fn counter(to: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
    let metric = ConstCounter::new(value);
    metric.encode(to.encode_descriptor(name, help, None, metric.metric_type())?)
}

fn gauge(to: &mut DescriptorEncoder, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
    let metric = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
    metric.encode(to.encode_descriptor(name, help, None, metric.metric_type())?)
}

impl Rooms {
    fn engine(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let stats = self.0.engine.stats();
        for (name, help, value) in [
            ("engine_appended_rows", "Rows stored", stats.appended_rows),
            ("engine_appended_batches", "Batches stored", stats.appended_batches),
            (
                "engine_duplicate_batches",
                "Batches that had been stored before",
                stats.duplicates,
            ),
            (
                "engine_misdated_rows",
                "Rows put into the partition of their arrival",
                stats.misdated_rows,
            ),
            (
                "engine_bus_regressions",
                "Bus sequences that were used twice",
                stats.bus_regressions,
            ),
            ("engine_commits", "Commit groups of the log", stats.commits),
            ("engine_fsyncs", "Syncs of the log", stats.fsyncs),
            ("engine_publishes", "Appends to open data files", stats.publishes),
            (
                "engine_published_rows",
                "Rows written into data files",
                stats.published_rows,
            ),
            (
                "engine_publish_failures",
                "Publishing attempts that failed",
                stats.publish_failures,
            ),
            ("engine_seals", "Data files sealed", stats.seals),
            (
                "engine_seal_failures",
                "Sealing attempts that failed",
                stats.seal_failures,
            ),
            (
                "engine_file_written_bytes",
                "Bytes written into data files",
                stats.file_bytes_written,
            ),
            (
                "engine_replayed_rows",
                "Rows recovered from the log at start",
                stats.replayed_rows,
            ),
            (
                "engine_torn_bytes",
                "Torn bytes cut from the log's end at start",
                stats.torn_bytes,
            ),
        ] {
            counter(to, name, help, value)?;
        }
        for (name, help, value) in [
            ("engine_wal_bytes", "Bytes of the log in use", stats.wal_bytes),
            ("engine_wal_max_bytes", "The log's cap", stats.wal_max_bytes),
            ("engine_hot_max_bytes", "The cap of rows in memory", stats.hot_max_bytes),
            ("engine_hot_bytes", "Bytes of rows in no data file yet", stats.hot_bytes),
            ("engine_hot_rows", "Rows in no data file yet", stats.hot_rows),
            (
                "engine_open_files",
                "Data files that still take rows",
                stats.open_segments,
            ),
            (
                "engine_late_partitions",
                "Partitions whose rows wait in memory because too many data files are open",
                stats.late_partitions,
            ),
            (
                "tail_bytes",
                "Bytes of rows kept for who follows the logs, in part those of hot rows",
                stats.tail_bytes,
            ),
            ("tail_followers", "Readers that follow the logs", stats.followers),
            ("engine_files", "Data files", stats.files),
            ("engine_file_bytes", "Bytes of data files", stats.file_bytes),
            ("engine_file_rows", "Rows in data files", stats.file_rows),
            ("engine_index_files", "Data files that have an index", stats.index_files),
            ("engine_index_bytes", "Bytes of indexes", stats.index_bytes),
            (
                "engine_index_waiting",
                "Sealed data files that wait for their index",
                stats.index_waiting,
            ),
            (
                "engine_quarantined_files",
                "Data files put aside as damaged",
                stats.quarantined,
            ),
            ("engine_poisoned", "1 if the log has failed", u64::from(stats.poisoned)),
        ] {
            gauge(to, name, help, value)?;
        }
        Ok(())
    }

    fn upkeep(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let stats = self.0.engine.stats();
        for (name, help, value) in [
            (
                "engine_scrubbed_files",
                "Sealed data files read again and found as recorded",
                stats.scrubbed_files,
            ),
            ("engine_scrubbed_bytes", "Their bytes", stats.scrubbed_bytes),
            ("engine_index_builds", "Indexes of data files made", stats.index_builds),
            (
                "engine_index_failures",
                "Data files that could not be indexed",
                stats.index_failures,
            ),
            (
                "engine_evicted_files",
                "Data files sealed early because rows came for too many partitions",
                stats.evicted_segments,
            ),
            (
                "engine_checked_bytes",
                "Bytes of data files compared with their checksum when first opened",
                stats.checked_bytes,
            ),
            (
                "engine_rotation_checks",
                "Checks of the rotation rules",
                stats.rotation_runs,
            ),
            (
                "engine_rotated_partitions",
                "Partitions removed for age or size",
                stats.rotated_partitions,
            ),
            (
                "engine_rotated_files",
                "Data files removed for age or size",
                stats.rotated_files,
            ),
            (
                "engine_rotated_rows",
                "Rows removed for age or size",
                stats.rotated_rows,
            ),
            (
                "engine_rotated_bytes",
                "Bytes of data files removed for age or size",
                stats.rotated_bytes,
            ),
        ] {
            counter(to, name, help, value)?;
        }
        Ok(())
    }

    fn object_store(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(stats) = self.0.engine.stats().remote else {
            return Ok(());
        };
        for (name, help, value) in [
            (
                "object_store_uploaded_files",
                "Data files uploaded",
                stats.uploaded_files,
            ),
            ("object_store_uploaded_bytes", "Their bytes", stats.uploaded_bytes),
            (
                "object_store_failures",
                "Attempts to upload, or to follow, that failed",
                stats.upload_failures,
            ),
            (
                "object_store_records",
                "Records committed to its catalogue",
                stats.records,
            ),
            ("object_store_writes", "Requests that write", stats.puts),
            ("object_store_reads", "Requests that read", stats.gets),
            ("object_store_deletes", "Requests that delete", stats.deletes),
            ("object_store_retries", "Requests made again", stats.retries),
            (
                "object_store_deleted_files",
                "Objects of expired files deleted",
                stats.deleted_files,
            ),
            (
                "object_store_evicted_files",
                "Local copies removed for space",
                stats.evicted_files,
            ),
            (
                "object_store_fetched_files",
                "Data files brought back to be read",
                stats.fetched_files,
            ),
            ("object_store_fetched_bytes", "Their bytes", stats.fetched_bytes),
            (
                "object_store_fetch_failures",
                "Data files that could not be brought back",
                stats.fetch_failures,
            ),
        ] {
            counter(to, name, help, value)?;
        }
        for (name, help, value) in [
            (
                "object_store_unuploaded_files",
                "Data files on this machine only",
                stats.unuploaded_files,
            ),
            (
                "object_store_unuploaded_bytes",
                "Bytes that a loss of this machine would take",
                stats.unuploaded_bytes,
            ),
            (
                "object_store_unuploaded_age_seconds",
                "Age of the oldest data file that is on this machine only",
                stats.unuploaded_age_seconds,
            ),
            (
                "object_store_cached_files",
                "Uploaded files with a local copy",
                stats.cached_files,
            ),
            ("object_store_cached_bytes", "Their bytes", stats.cached_bytes),
        ] {
            gauge(to, name, help, value)?;
        }
        Ok(())
    }

    fn views(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let views = &self.0.views;
        counter(
            to,
            "views_written",
            "Times that platform.sql was written",
            views.written(),
        )?;
        counter(
            to,
            "views_failures",
            "Times that platform.sql could not be written",
            views.failures(),
        )
    }

    fn ingest(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let Some(ingest) = &self.0.ingest else { return Ok(()) };
        let stats = ingest.snapshot();
        for (name, help, value) in [
            (
                "ingest_received_messages",
                "Telemetry messages received",
                stats.received,
            ),
            ("ingest_received_bytes", "Their bytes", stats.received_bytes),
            (
                "ingest_stored_rows",
                "Rows handed to the engine and durable",
                stats.stored_rows,
            ),
            (
                "ingest_duplicate_batches",
                "Batches that had been stored before",
                stats.duplicates,
            ),
            (
                "ingest_dead_letters",
                "Messages that could not be decoded or stored",
                stats.dead_letters,
            ),
            (
                "ingest_stalls",
                "Batches that waited longer than ingest.flush_interval",
                stats.stalls,
            ),
            (
                "ingest_resubscriptions",
                "Times that the consumer was opened again",
                stats.resubscribed,
            ),
            ("ingest_floors_sent", "Durable floors sent to Racks", stats.floors_sent),
        ] {
            counter(to, name, help, value)?;
        }
        gauge(
            to,
            "ingest_in_flight_batches",
            "Batches received and not yet durable",
            stats.in_flight,
        )?;
        gauge(
            to,
            "ingest_pulling",
            "1 if the consumer is open",
            u64::from(stats.pulling),
        )
    }

    fn letters(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let stats = self.0.dlq.stats();
        let kind = prometheus_client::metrics::MetricType::Gauge;
        let mut open = to.encode_descriptor(
            "dlq_open_letters",
            "Dead letters that nobody has replayed or dropped",
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
            "Dead letters that are to go back to their gear",
            stats.waiting,
        )?;
        counter(
            to,
            "dlq_replayed_letters",
            "Dead letters that their gears have taken",
            stats.replayed,
        )?;
        counter(to, "dlq_dropped_letters", "Dead letters dropped", stats.dropped)
    }

    fn specs(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let figures = self.0.specs.figures();
        gauge(to, "specs", "Specs of business messages in force", figures.active)?;
        gauge(
            to,
            "specs_refused_files",
            "Spec files that are wrong now; what they said last is in force",
            figures.refused,
        )?;
        counter(to, "specs_changes", "Specs that came, changed or went", figures.changes)?;
        counter(
            to,
            "specs_refusals",
            "Times that a spec file was found wrong",
            figures.refusals,
        )?;
        let kind = prometheus_client::metrics::MetricType::Counter;
        for (name, help, of) in [
            (
                "spec_messages",
                "Messages stored as a spec's",
                (|counts| counts.messages) as fn(&::ingest::SpecCounts) -> u64,
            ),
            (
                "spec_failed_values",
                "Values that were not of their field's type, and are null",
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

    fn control(&self, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
        let bus = self.0.control.bus_status();
        gauge(
            to,
            "bus_connected",
            "1 if the Mixer is connected to the bus",
            u64::from(bus.connected),
        )?;
        gauge(
            to,
            "bus_healthy",
            "1 if the bus says that it is well",
            u64::from(bus.healthy),
        )?;
        counter(
            to,
            "bus_restarts",
            "Times that the bus server was started again",
            bus.restarts,
        )?;
        if let Some(free) = bus.free_bytes {
            gauge(
                to,
                "bus_store_free_bytes",
                "Free bytes on the file system of the bus",
                free,
            )?;
        }
        // A registry that cannot be read is reported by the requests that need it; a scrape shows the rest.
        let Ok(stats) = self.0.control.stats() else {
            return Ok(());
        };
        let kind = prometheus_client::metrics::MetricType::Gauge;
        let mut racks = to.encode_descriptor("racks", "Racks by state", None, kind)?;
        for (state, count) in &stats.racks {
            let count = ConstGauge::new(i64::try_from(*count).unwrap_or(i64::MAX));
            count.encode(racks.encode_family(&[("state", *state)])?)?;
        }
        let kind = prometheus_client::metrics::MetricType::Counter;
        let help = "Racks that went from one state into another";
        let mut transitions = to.encode_descriptor("rack_transitions", help, None, kind)?;
        for ((from, into), count) in &stats.transitions {
            let count = ConstCounter::new(*count);
            count.encode(transitions.encode_family(&[("from", from.as_str()), ("to", into.as_str())])?)?;
        }
        for (name, help, refused) in [
            (
                "handshakes_refused",
                "Handshakes of Racks that were refused",
                &stats.handshakes_refused,
            ),
            (
                "heartbeats_refused",
                "Heartbeats of Racks that were refused",
                &stats.heartbeats_refused,
            ),
        ] {
            let mut family = to.encode_descriptor(name, help, None, kind)?;
            for (code, count) in refused {
                ConstCounter::new(*count).encode(family.encode_family(&[("code", *code)])?)?;
            }
        }
        gauge(
            to,
            "racks_converged",
            "Active Racks that run what they should",
            stats.converged,
        )?;
        counter(
            to,
            "scenario_pushes_applied",
            "Scenario pushes that a Rack applied",
            stats.pushes_applied,
        )?;
        counter(
            to,
            "scenario_pushes_failed",
            "Scenario pushes that a Rack could not apply",
            stats.pushes_failed,
        )
    }
}
