//! `prometheus_scrape`: asks targets for their metrics at an interval; their samples become metric points.
//!
//! # Invariants
//!
//! - Each target has a rhythm of its own, begun at another time than the others'; a scrape that is late is not made up for.
//! - A scrape is whole and on the Rack's disk, or failed. It says so as `up`, and how long it took; a failure is logged once until the
//!   target answers again.
//! - A sample with a time of its own is stored once ([`sample_times`]).
//! - Whatever targets answer, all of it together is bounded ([`scrape_memory`]).
//! - What a target says of itself cannot pass for what the configuration says of it: labels of such names are renamed.
//!
//! # Not here
//!
//! The formats (`protocols::prometheus_text`), connections, TLS and secrets ([`super::http_client`]).

mod sample_times;
mod scrape_memory;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use gear_spec::prometheus_scrape::{PrometheusScrapeConfig, ScrapeTargetConfig};
use gear_spec::{http_headers, parse_url};
use http_body_util::Full;
use hyper::header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT};
use hyper::{HeaderMap, Request, Uri};
use model::{Attributes, Level, MetricType, Timestamp, Token, gear_manifest};
use protocols::prometheus_text::{self, PrometheusFormat, ScrapedPoint};
use tokio::time::Instant;

use super::http_client::{self, AGENT, HttpClient, HttpResponse};
use super::poll_schedule::PollSchedule;
use super::{ActiveGear, Gear, GearContext, GearError, GearFuture, RawConfig};
use crate::policy::RackPolicy;
use crate::telemetry::MetricRow;
use sample_times::SampleTimes;
use scrape_memory::{AnswerRoom, ScrapeMemory, check_text};

/// What a target is asked for.
const FORMATS: &str = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
/// By which it learns how long it has.
const SCRAPE_TIMEOUT: HeaderName = HeaderName::from_static("x-prometheus-scrape-timeout-seconds");

pub(super) fn build(config: &RawConfig) -> Result<Gear, String> {
    Ok(Gear::Active(Box::new(PrometheusScraper {
        config: gear_manifest::config(config)?,
        targets: Vec::new(),
    })))
}

struct PrometheusScraper {
    config: PrometheusScrapeConfig,
    targets: Vec<ScrapeTarget>,
}

impl ActiveGear for PrometheusScraper {
    fn init<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            cx.check_recording()?;
            let (config, policy, job) = (self.config.clone(), cx.policy().clone(), cx.name().clone());
            let targets = tokio::task::spawn_blocking(move || {
                let target = |target: &ScrapeTargetConfig| ScrapeTarget::of(target, &config, &policy, &job);
                config.targets.iter().map(target).collect::<Result<_, _>>()
            });
            self.targets = targets.await?.map_err(GearError::Config)?;
            Ok(())
        }
        .boxed()
    }

    fn run<'a>(&'a mut self, cx: &'a Arc<GearContext>) -> GearFuture<'a> {
        async move {
            let every = self.config.interval.get();
            let apart = every / u32::try_from(self.targets.len()).unwrap_or(u32::MAX).max(1);
            let memory = ScrapeMemory::new();
            let scraping = (0..).zip(&self.targets).map(|(at, target)| {
                let first = Instant::now() + apart * at;
                target.run(cx, PollSchedule::new(every, first), &memory)
            });
            futures::future::join_all(scraping).await;
            Ok(())
        }
        .boxed()
    }
}

/// What is scraped, and how.
#[derive(Debug)]
struct ScrapeTarget {
    client: HttpClient,
    url: Uri,
    headers: HeaderMap,
    labels: Vec<(String, String)>,
    timeout: Duration,
    max_body: usize,
    max_samples: usize,
}

impl ScrapeTarget {
    /// What a configuration means; reads the environment and files.
    fn of(
        target: &ScrapeTargetConfig,
        config: &PrometheusScrapeConfig,
        policy: &RackPolicy,
        job: &Token,
    ) -> Result<Self, String> {
        let url = parse_url(&target.url)?;
        let mut headers = http_headers::resolved(&config.headers, |name| policy.variable(name))?;
        headers.insert(ACCEPT, HeaderValue::from_static(FORMATS));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let timeout = config.timeout.get();
        let seconds = HeaderValue::from_str(&timeout.as_secs_f64().to_string());
        headers.insert(SCRAPE_TIMEOUT, seconds.map_err(|error| error.to_string())?);
        let instance = url.authority().map(ToString::to_string).unwrap_or_default();
        let mut labels = BTreeMap::from([("instance".to_owned(), instance), ("job".to_owned(), job.to_string())]);
        labels.extend(config.labels.clone());
        labels.extend(target.labels.clone());
        Ok(Self {
            client: http_client::client(policy, &url, config.ca_file.as_ref(), 1)?,
            url,
            headers,
            labels: labels.into_iter().collect(),
            timeout,
            max_body: config.max_body as usize,
            max_samples: config.max_samples as usize,
        })
    }

    /// Scrapes it until the gear stops.
    async fn run(&self, cx: &GearContext, mut schedule: PollSchedule, memory: &ScrapeMemory) {
        let (mut is_failing, mut times) = (false, SampleTimes::default());
        loop {
            let scraping = async {
                tokio::time::sleep_until(schedule.due()).await;
                let (ts, began) = (cx.recorder().now(), Instant::now());
                let mut room = memory.room();
                let asked = self.ask(&mut room).await;
                let took = began.elapsed();
                let stored = match asked {
                    Ok(answer) => {
                        let _turn = memory.turn().await;
                        self.store(cx, answer, ts, &mut times).await
                    }
                    Err(reason) => Err(reason),
                };
                (ts, stored, took)
            };
            let (ts, stored, took) = tokio::select! {
                biased;
                () = cx.stopping() => return,
                stored = scraping => stored,
            };
            schedule.advance(Instant::now());
            let shown = http_client::shown(&self.url);
            let up = match stored {
                Ok(()) => {
                    if is_failing {
                        cx.log(Level::Info, format!("{shown} can be scraped again"));
                    }
                    1.0
                }
                Err(reason) => {
                    if !is_failing {
                        cx.error(format!("cannot scrape {shown}: {reason}"));
                    }
                    0.0
                }
            };
            is_failing = up < 1.0;
            for (name, value, unit) in [("up", up, "1"), ("scrape_duration_seconds", took.as_secs_f64(), "s")] {
                let point = ScrapedPoint {
                    name: name.to_owned(),
                    metric_type: MetricType::Gauge,
                    value,
                    ts: None,
                    labels: Attributes::new().with("otel.unit", unit),
                };
                cx.recorder().metric_row(self.row(point, ts));
            }
        }
    }

    /// Stores the new points of an answer, all or none; in words why not.
    async fn store(
        &self,
        cx: &GearContext,
        answer: HttpResponse,
        ts: Timestamp,
        times: &mut SampleTimes,
    ) -> Result<(), String> {
        let mut points = self.parse(answer).await?;
        let new = times.retain_new(&mut points);
        let owner = cx.recorder().owner();
        let owner = owner.ok_or("the Rack is not adopted by its cluster yet")?;
        let rows = points.into_iter().map(|point| self.row(point, ts)).collect();
        let recorded = cx.recorder().record_points(owner, rows).await;
        recorded.map_err(|error| format!("its samples are not stored: {error}"))?;
        times.set(new);
        Ok(())
    }

    /// The answer of the target; in words why there is none.
    async fn ask(&self, room: &mut AnswerRoom) -> Result<HttpResponse, String> {
        let request = Request::get(&self.url).body(Full::new(Bytes::new()));
        let mut request = request.map_err(|error| error.to_string())?;
        request.headers_mut().extend(self.headers.clone());
        let bounds = (self.timeout, self.max_body);
        http_client::exchange_within(&self.client, request, bounds, |bytes| room.grow(bytes)).await
    }

    /// The points of an answer; in words why there are none.
    async fn parse(&self, answer: HttpResponse) -> Result<Vec<ScrapedPoint>, String> {
        let max_samples = self.max_samples;
        let body = self.text(answer)?;
        let parsed = tokio::task::spawn_blocking(move || {
            let (format, body) = body;
            let text = std::str::from_utf8(&body).map_err(|error| format!("its answer is not UTF-8: {error}"))?;
            check_text(text, max_samples)?;
            let points = prometheus_text::parse(text, format, max_samples);
            points.map_err(|error| format!("its answer cannot be read: {error}"))
        });
        parsed.await.map_err(|error| error.to_string())?
    }

    /// The text of an answer and its format.
    fn text(&self, answer: HttpResponse) -> Result<(PrometheusFormat, Vec<u8>), String> {
        let status = answer.status;
        if status.is_redirection() {
            return Err(format!(
                "it answered {status}: redirects are not followed; set url to where it leads"
            ));
        }
        if !status.is_success() {
            return Err(format!("it answered {status}"));
        }
        if answer.truncated {
            return Err(format!(
                "its answer has more than {} bytes; raise max_body",
                self.max_body
            ));
        }
        let kind = answer.header("content-type").unwrap_or_default();
        Ok((PrometheusFormat::of_content_type(kind), answer.body))
    }

    /// A point as a row, with the target's labels.
    fn row(&self, point: ScrapedPoint, ts: Timestamp) -> MetricRow {
        let mut labels = point.labels;
        for (name, value) in &self.labels {
            if let Some(own) = labels.get(name).cloned() {
                let mut renamed = format!("exported_{name}");
                while labels.get(&renamed).is_some() {
                    renamed.insert_str(0, "exported_");
                }
                labels.set(&renamed, own);
            }
            labels.set(name, value.as_str());
        }
        MetricRow {
            ts: point.ts.unwrap_or(ts),
            name: point.name,
            metric_type: point.metric_type,
            value: point.value,
            labels,
        }
    }
}
