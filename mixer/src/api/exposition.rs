//! `/metrics`: metrics of every component in base units, in the [text formats](text_format) that scrapers read.
//!
//! Counters of the API are kept here; those of the other services are read at each scrape ([`service_collector`]).

mod service_collector;
mod text_format;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::ApiParts;
use super::problem::ApiProblem;
use service_collector::ServiceCollector;
pub(crate) use text_format::ExpositionFormat;

/// Bounds of the histogram of answer times, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    path: String,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PathLabels {
    path: String,
}

/// What is exposed.
#[derive(Debug)]
pub(crate) struct MetricsExposition {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    seconds: Family<PathLabels, Histogram, fn() -> Histogram>,
    running: Gauge,
}

fn histogram() -> Histogram {
    Histogram::new(SECONDS)
}

impl MetricsExposition {
    pub(crate) fn new(parts: ApiParts, ingest: &super::ingest::HttpIngestCounters) -> Self {
        let mut exposition = Self::of_requests();
        ingest.register(&mut exposition.registry);
        exposition
            .registry
            .register_collector(Box::new(ServiceCollector(parts)));
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
            "Time to the first byte of a response, in seconds",
            seconds.clone(),
        );
        registry.register("api_requests_running", "Requests in progress", running.clone());
        Self {
            registry,
            requests,
            seconds,
            running,
        }
    }

    pub(crate) fn text(&self, format: ExpositionFormat) -> Result<String, ApiProblem> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .map_err(|_| ApiProblem::internal("could not encode the metrics"))?;
        Ok(format.of_open_metrics(text))
    }
}

/// Gives its place back when the answer is there or its requester has left.
struct InFlightGuard(Gauge);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Counts a request under its route, never under its path: paths are as many as clients invent.
pub(crate) async fn count(State(exposition): State<Arc<MetricsExposition>>, request: Request, next: Next) -> Response {
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
        http::Method::PATCH => "PATCH",
        _ => "other",
    };
    exposition.running.inc();
    let running = InFlightGuard(exposition.running.clone());
    let started = Instant::now();
    let response = next.run(request).await;
    drop(running);
    let status = response.status().as_u16();
    let seconds = exposition
        .seconds
        .get_or_create(&PathLabels { path: path.clone() })
        .clone();
    seconds.observe(started.elapsed().as_secs_f64());
    exposition
        .requests
        .get_or_create(&RequestLabels { method, path, status })
        .inc();
    response
}
