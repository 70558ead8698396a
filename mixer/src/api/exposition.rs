//! `/metrics`: metrics of every component in base units, in the [text formats](text_format) that scrapers read.
//!
//! Counters of the API are kept here; those of the other services are read at each scrape ([`service_collector`]).

mod catalog_metrics;
mod service_collector;
mod text_format;

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::Method;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::ApiParts;
use super::counted_status::CountedStatus;
use super::problem::ApiProblem;
use service_collector::ServiceCollector;
pub(crate) use text_format::ExpositionFormat;

/// Bounds of the histogram of answer times, in seconds.
const SECONDS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

/// As OpenTelemetry's semantic conventions have them, in the form of Prometheus.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    http_request_method: &'static str,
    http_route: String,
    http_response_status_code: u16,
}

/// What is exposed.
#[derive(Debug)]
pub(crate) struct MetricsExposition {
    registry: Registry,
    requests: Family<RequestLabels, Histogram, fn() -> Histogram>,
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
            .register_collector(Box::new(ServiceCollector::new(parts)));
        exposition
    }

    /// The counters of the API alone.
    pub(crate) fn of_requests() -> Self {
        let mut registry = Registry::with_prefix("platform");
        let requests = Family::new_with_constructor(histogram as fn() -> Histogram);
        let running = Gauge::default();
        registry.register(
            "http_server_request_duration_seconds",
            "Time to the first byte of a response, in seconds",
            requests.clone(),
        );
        registry.register("http_server_active_requests", "Requests in progress", running.clone());
        Self {
            registry,
            requests,
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
    let route = request.extensions().get::<MatchedPath>();
    // Without a route it is empty, which is no label.
    let http_route = route.map(|route| route.as_str().to_owned()).unwrap_or_default();
    let http_request_method = method_name(request.method());
    exposition.running.inc();
    let running = InFlightGuard(exposition.running.clone());
    let started = Instant::now();
    let response = next.run(request).await;
    drop(running);
    let status = CountedStatus::of(&response);
    let labels = RequestLabels {
        http_request_method,
        http_route,
        http_response_status_code: status.as_u16(),
    };
    let seconds = exposition.requests.get_or_create(&labels).clone();
    seconds.observe(started.elapsed().as_secs_f64());
    response
}

/// A method by the semantic conventions: those that clients invent have one name.
pub(super) fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "_OTHER",
    }
}
