//! Debian's Prometheus: what it holds by its own API is what it wrote to the Mixer, and what the gear `prometheus_scrape` makes of the same
//! targets; and what its checker says of `/metrics`.

use std::path::{Path, PathBuf};

use harness::process::{Process, run};
use harness::{Api, Failure, TestMixer, TestRack, eventually, free_address};
use serde_json::{Value, json};

use super::sender_table::{SenderTable, sorted};
use super::{MISSING, SOON, file, installed, no_dead_letters, pinned, python, said, stored};
use crate::first_light::mixer_with;
use crate::otlp::select;

/// How often a target is scraped at the least before it is looked at.
const SCRAPES: &str = "4";

/// A Prometheus and a Rack that scrape the same targets, and the Mixer of both.
struct ScrapeTrial {
    python: PathBuf,
    /// Of Debian.
    version: String,
    mixer: TestMixer,
    folder: tempfile::TempDir,
    /// Where Prometheus' API is.
    url: String,
    _processes: [Process; 3],
    _rack: TestRack,
}

/// Prometheus with its version, as it says it itself.
fn version(program: &Path) -> Result<String, Failure> {
    let said = run(program, &["--version"], &std::env::temp_dir(), &[])?;
    let all = said.out + &said.err;
    let version = all
        .split_whitespace()
        .nth(2)
        .ok_or("Prometheus does not say its version")?;
    Ok(format!("prometheus ({version})"))
}

/// An application that shows metrics, and where.
fn exposition(python: &Path, kind: &str) -> Result<(Process, String), Failure> {
    let (script, log) = (file("exposition.py")?, tempfile::NamedTempFile::new()?);
    let mut application = Process::start(python, &[&script, kind], &std::env::temp_dir(), log.path())?;
    let at = application.line("ready ", SOON)?;
    Ok((application, at))
}

impl ScrapeTrial {
    fn start(program: &Path, python: PathBuf) -> Result<Self, Failure> {
        let (application, application_at) = exposition(&python, "serve")?;
        let (native, native_at) = exposition(&python, "native")?;
        let at = free_address()?;
        let scenario = format!(
            "meta: {{ name: scrape, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n  \
             - name: scrape\n    type: prometheus_scrape\n    deploy: rack-a\n    config:\n      interval: 1s\n      timeout: 1s\n      \
             targets:\n        - {{ url: 'http://{application_at}/metrics', labels: {{ job: application }} }}\n        \
             - {{ url: 'http://{at}/metrics', labels: {{ job: prometheus }} }}\n"
        );
        let (mixer, folder) = mixer_with(&scenario)?;
        let api = mixer.api.base.trim_start_matches("http://");
        let targets = [
            ("prometheus", at.to_string()),
            ("application", application_at),
            ("native", native_at),
            ("mixer", api.to_owned()),
        ];
        let jobs = targets.map(|(job, target)| {
            format!("  - {{ job_name: {job}, static_configs: [ {{ targets: [ '{target}' ] }} ] }}\n")
        });
        let settings = format!(
            "global: {{ scrape_interval: 1s }}\nscrape_configs:\n{}remote_write:\n  \
             - {{ url: 'http://{api}/api/v1/write', send_exemplars: true, send_native_histograms: true, queue_config: {{ batch_send_deadline: 1s }} }}\n",
            jobs.concat()
        );
        std::fs::write(folder.path().join("prometheus.yml"), settings)?;
        let listen = format!("--web.listen-address={at}");
        let args = [
            "--config.file=prometheus.yml",
            "--storage.tsdb.path=held",
            "--enable-feature=exemplar-storage,native-histograms",
            &listen,
        ];
        let server = Process::start(program, &args, folder.path(), &folder.path().join("prometheus.log"))?;
        let url = format!("http://{at}");
        let asked = Api::new(&url);
        eventually("Prometheus", SOON, || {
            (asked.get("/-/ready").ok()?.status == 200).then_some(())
        })?;
        let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
        rack.start()?;
        Ok(Self {
            python,
            version: version(program)?,
            mixer,
            folder,
            url,
            _processes: [application, native, server],
            _rack: rack,
        })
    }

    /// What Prometheus holds, in a form of the script.
    fn held(&self, form: &str, job: &str, of: &str) -> Result<Vec<Value>, Failure> {
        let script = file("prometheus.py")?;
        said(
            &self.python,
            self.folder.path(),
            &[&script, form, &self.url, job, of],
            &[],
        )
    }

    /// Every sample and exemplar that Prometheus holds of its first scrapes.
    fn compare_written(&self, table: &mut SenderTable) -> Result<(), Failure> {
        let jobs = [
            ("prometheus", "its own metrics"),
            ("application", "prometheus-client's"),
            ("native", "native histograms"),
            ("mixer", "the Mixer's"),
        ];
        // Not one job after another: what is held grows meanwhile.
        let held = jobs.map(|(job, what)| Ok::<_, Failure>((what, self.held("written", job, SCRAPES)?)));
        for held in held {
            let (what, sent) = held?;
            let texts = |key: &'static str| sent.iter().filter_map(move |row| row[key].as_str());
            let (last, entity) = (texts("ts").max(), texts("entity_name").next());
            let (last, entity) = last.zip(entity).ok_or("Prometheus holds nothing")?;
            let statement = format!("SELECT * FROM metrics WHERE entity_name = '{entity}' AND ts <= '{last}'");
            let found = stored(&self.mixer, &statement, sent.len())?;
            table.compare(&format!("{} writes {what}", self.version), "metrics", &sent, &found);
        }
        no_dead_letters(table, &self.mixer)
    }

    /// What Prometheus holds of a scrape of the gear's target at that time, and what the gear's last one became.
    fn scraped(&self, job: &str) -> Result<[Vec<Value>; 2], Failure> {
        let of_job = format!("FROM metrics WHERE entity_name = 'rack-a' AND labels->>'job' = '{job}'");
        let last = select(&self.mixer, &format!("SELECT max(ts) AS ts {of_job} AND name = 'up'"))?;
        let last = last.first().and_then(|row| row["ts"].as_str()).ok_or("no scrape")?;
        let points = format!(
            "SELECT name, type, value, labels {of_job} AND ts = '{last}' AND name NOT IN ('up', 'scrape_duration_seconds')"
        );
        let sides = [self.held("scraped", job, last)?, select(&self.mixer, &points)?];
        Ok(sides.map(|rows| rows.into_iter().map(|row| common(row, job)).collect()))
    }

    /// What stands still is equal with its values; of the rest the series are.
    fn compare_scraped(&self, table: &mut SenderTable) -> Result<(), Failure> {
        for (job, what) in [
            ("application", "prometheus-client's metrics"),
            ("prometheus", "Prometheus' series"),
        ] {
            let equal = eventually("a scrape in which no series is new", SOON, || {
                let sides = self.scraped(job).ok()?;
                (!sides[0].is_empty() && sorted(&sides[0]) == sorted(&sides[1])).then_some(sides)
            });
            let [held, found] = equal.or_else(|_| self.scraped(job))?;
            table.compare(&format!("prometheus_scrape of {what}"), "metrics", &held, &found);
        }
        Ok(())
    }
}

/// What a row of the gear and what Prometheus holds of it have in common.
fn common(mut row: Value, job: &str) -> Value {
    let stands_still = job == "application";
    if !stands_still {
        row["value"] = Value::Null;
    }
    if let Some(labels) = row["labels"].as_object_mut() {
        labels.retain(|key, _| {
            let is_counted = key.starts_with("otel.") && key != "otel.bounds" && key != "otel.summary";
            !key.starts_with("gear.") && (stands_still || !is_counted)
        });
        // A target writes 0 as 0.0 to Prometheus, which asks for OpenMetrics, and as 0 to the gear, which asks for the older text.
        if let Some(quantile) = labels.get_mut("quantile")
            && let Some(number) = quantile.as_str().and_then(|text| text.parse::<f64>().ok())
        {
            *quantile = json!(number);
        }
        // Prometheus keeps milliseconds.
        let exemplars = labels.get_mut("otel.exemplars").and_then(Value::as_array_mut);
        for exemplar in exemplars.into_iter().flatten() {
            let time = exemplar["time"].as_str().and_then(|time| time.get(..23));
            exemplar["time"] = json!(time);
        }
    }
    row
}

pub(super) fn prometheus(table: &mut SenderTable) -> Result<(), Failure> {
    let Some((program, python)) = installed("senders-debian/usr/bin/prometheus")?.zip(python()?) else {
        table.not_run("prometheus", MISSING);
        return Ok(());
    };
    let trial = ScrapeTrial::start(&program, python)?;
    trial.compare_written(table)?;
    trial.compare_scraped(table)?;
    check_exposition(table, &trial, &program.with_file_name("promtool"))
}

/// What others' readers say of the Mixer's `/metrics` in both of its formats; promtool reads one of them.
fn check_exposition(table: &mut SenderTable, trial: &ScrapeTrial, promtool: &Path) -> Result<(), Failure> {
    let file_of = |name: &str| trial.folder.path().join(name).display().to_string();
    let (text, open) = (file_of("metrics.txt"), file_of("metrics.openmetrics"));
    std::fs::write(&text, trial.mixer.api.get("/metrics")?.text)?;
    let asked = trial
        .mixer
        .api
        .get_as("/metrics", "application/openmetrics-text;version=1.0.0")?;
    std::fs::write(&open, &asked.text)?;

    let tool = promtool.display().to_string();
    let check = ["-c", "\"$0\" check metrics < \"$1\"", &tool, &text];
    let done = run("sh".as_ref(), &check, trial.folder.path(), &[])?;
    let complaint = match done.code {
        Some(0) => done.out + &done.err,
        code => format!("exit {code:?}: {}{}", done.out, done.err),
    };
    table.check(&format!("promtool of {}", trial.version), "text", &complaint);

    let (python, script) = (trial.python.display().to_string(), file("exposition.py")?);
    let read = ["-c", "\"$0\" \"$1\" read < \"$2\"", &python, &script, &open];
    let done = run("sh".as_ref(), &read, trial.folder.path(), &[])?;
    let samples = asked.text.lines().filter(|line| !line.starts_with('#')).count();
    let has_all = done.out.trim().ends_with(&format!(" {samples}"));
    let complaint = if has_all {
        String::new()
    } else {
        format!("{samples} samples: {}{}", done.out, done.err)
    };
    let reader = pinned("requirements.txt", "prometheus-client")?;
    table.check(&format!("reader of {reader}"), "OpenMetrics", &complaint);
    Ok(())
}
