//! Questions beside changes: while rows come, files are published, sealed, rotated away and quarantined, what a question is
//! about does not change, so neither does its answer.

use engine::RetentionPolicy;
use model::filter::{
    FluxFilter, HistogramFilter, HistogramGrouping, LogFilter, MetricFilter, SortOrder, TopFilter, TraceFilter,
};
use model::{EntityId, LogRecord, MetricPoint, Span};
use serde_json::{Map, Value, json};

use super::random_world::{self, Random};
use super::*;
use crate::ListQuery;

/// Whose rows the questions are about. They lie in the present hour, which rotation leaves alone.
const KEPT: &str = "kept";
/// Whose rows come and go, in hours before.
const PASSING: &str = "passing";

/// A store that publishes, seals and rotates all the time, and is always over its size.
async fn restless(dir: &tempfile::TempDir) -> Arc<Engine> {
    let mut settings = Settings::new(dir.path().join("store"));
    settings.flush_interval = Duration::from_millis(10);
    settings.seal_grace = Duration::ZERO;
    settings.rotation.policy = RetentionPolicy::Size;
    settings.rotation.max_size = model::ByteSize::bytes(256 << 10);
    settings.rotation.check_interval = Duration::from_secs(1 << 40);
    Engine::open(settings, Clock::new(now), Entropy::new(|bytes| bytes.fill(7)))
        .await
        .unwrap()
}

fn recent(random: &mut Random) -> Timestamp {
    let back = i64::try_from(random.below(1_700)).unwrap();
    Timestamp::from_micros(now().micros() - back * SECOND)
}

fn kept_log(random: &mut Random) -> LogRecord {
    LogRecord {
        ts: recent(random),
        entity_id: EntityId::for_name(KEPT),
        entity_name: KEPT.to_owned(),
        ..random_world::log(random)
    }
}

fn kept_span(random: &mut Random) -> Span {
    Span {
        ts: recent(random),
        entity_id: EntityId::for_name(KEPT),
        entity_name: KEPT.to_owned(),
        ..random_world::span(random)
    }
}

fn kept_point(random: &mut Random) -> MetricPoint {
    MetricPoint {
        ts: recent(random),
        name: "gauge.0".to_owned(),
        metric_type: model::MetricType::Gauge,
        entity_id: EntityId::for_name(KEPT),
        entity_name: KEPT.to_owned(),
        ..random_world::point(random)
    }
}

/// About 100 KiB that do not get smaller, of one hour of the past.
fn passing(random: &mut Random, hours: i64) -> Vec<LogRecord> {
    let row = |random: &mut Random| LogRecord {
        ts: Timestamp::from_micros(now().micros() - hours * HOUR - i64::try_from(random.below(600)).unwrap()),
        entity_id: EntityId::for_name(PASSING),
        entity_name: PASSING.to_owned(),
        flux_id: None,
        attributes: model::Attributes::new(),
        message: (0..32).map(|_| format!("{:016x}", random.next())).collect(),
        ..random_world::log(random)
    };
    (0..200).map(|_| row(random)).collect()
}

/// All rows of a list, page after page.
async fn walk(querier: &QueryEngine, filter: &LogFilter) -> Vec<Map<String, Value>> {
    let (mut filter, mut rows) = (filter.clone(), Vec::new());
    loop {
        let page = querier.page(ListQuery::Logs(filter.clone())).await.unwrap();
        rows.extend(page.rows);
        filter.cursor = page.next_cursor;
        if filter.cursor.is_none() {
            return rows;
        }
    }
}

/// The rows of a statement.
async fn told(querier: &QueryEngine, statement: &crate::SqlStatement) -> Value {
    let mut answer = querier.sql(statement).await.unwrap();
    let mut writer = answer.writer(crate::RowFormat::Ndjson).unwrap();
    while let Some(batch) = answer.next().await.unwrap() {
        writer.write(&batch, 0, usize::MAX).unwrap();
    }
    String::from_utf8(writer.take().to_vec()).unwrap().into()
}

/// Every kind of question about what is kept, some of them over all files.
async fn answers(querier: &QueryEngine, flux: model::FluxId) -> Vec<(&'static str, Value)> {
    let kept = LogFilter {
        since: Some("9h".parse().unwrap()),
        entity: Some(KEPT.to_owned()),
        ..LogFilter::default()
    };
    let list = |order, limit| LogFilter {
        order: Some(order),
        limit: Some(limit),
        ..kept.clone()
    };
    let with_text = LogFilter {
        q: Some("disk".to_owned()),
        ..list(SortOrder::Desc, 1_000)
    };
    let by_level = HistogramFilter {
        interval: Some("1m".parse().unwrap()),
        by: Some(HistogramGrouping::Level),
        fill: None,
    };
    let top = TopFilter {
        field: Some("level".to_owned()),
    };
    let spans = TraceFilter {
        entity: Some(KEPT.to_owned()),
        limit: Some(1_000),
        ..TraceFilter::default()
    };
    let gauge = MetricFilter {
        name: Some("gauge.0".to_owned()),
        interval: Some("1m".parse().unwrap()),
        ..MetricFilter::default()
    };
    let rows = |page: crate::JsonPage| Value::from(page.rows.into_iter().map(Value::from).collect::<Vec<_>>());
    let mut answers = vec![
        ("newest first", json!(walk(querier, &list(SortOrder::Desc, 60)).await)),
        ("oldest first", json!(walk(querier, &list(SortOrder::Asc, 60)).await)),
        ("with a text", json!(walk(querier, &with_text).await)),
        (
            "histogram",
            rows(querier.logs_histogram(&kept, &by_level).await.unwrap().page),
        ),
        ("top", rows(querier.logs_top(&kept, &top).await.unwrap())),
        ("spans", rows(querier.page(ListQuery::Traces(spans)).await.unwrap())),
        ("metric", rows(querier.page(ListQuery::Metrics(gauge)).await.unwrap())),
        (
            "flux",
            rows(
                querier
                    .page(ListQuery::Flux(flux, FluxFilter::default()))
                    .await
                    .unwrap(),
            ),
        ),
    ];
    for statement in [
        "SELECT level, count(*) AS n FROM logs WHERE entity_name = 'kept' GROUP BY level ORDER BY level",
        "SELECT count(*) AS n, min(message) AS least FROM logs WHERE entity_name = 'kept' AND message LIKE '%disk%'",
        "SELECT ts, message FROM logs WHERE entity_name = 'kept' ORDER BY ts DESC, message LIMIT 70",
        "SELECT count(*) AS n FROM logs l JOIN traces t ON l.entity_name = t.entity_name WHERE l.level = 'error'",
        "SELECT avg(value) AS mean, count(*) AS n FROM metrics WHERE name = 'gauge.0'",
    ] {
        let statement = crate::SqlStatement {
            query: statement.to_owned(),
            ..crate::SqlStatement::default()
        };
        answers.push(("statement", told(querier, &statement).await));
    }
    answers
}

/// One byte of a sealed file of what passes is changed, if there is one.
fn damage_one(engine: &Engine) -> bool {
    let view = engine.view();
    let is_passing = |ts: Timestamp| ts.micros() < now().micros() - 2 * HOUR;
    let mut files = view.files(model::Table::Logs).iter();
    let Some(file) = files.find(|file| file.sealed && is_passing(file.max_ts)) else {
        return false;
    };
    let mut bytes = std::fs::read(&file.path).unwrap();
    bytes[200] ^= 1;
    std::fs::write(&file.path, bytes).unwrap();
    true
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_stay_the_same_beside_publishes_seals_rotations_and_quarantines() {
    let mut random = Random::new();
    let dir = tempfile::tempdir().unwrap();
    let engine = restless(&dir).await;
    let limits = QueryLimits {
        spill_dir: Some(dir.path().join("spill")),
        ..QueryLimits::new(model::ByteSize::mib(256), Duration::from_secs(60), 4)
    };
    let querier = QueryEngine::new(Arc::clone(&engine), limits, Clock::new(now)).unwrap();
    let logs: Vec<_> = (0..300).map(|_| kept_log(&mut random)).collect();
    let flux = logs.iter().find_map(|log| log.flux_id).unwrap();
    append(&engine, &logs).await;
    append(&engine, &(0..200).map(|_| kept_span(&mut random)).collect::<Vec<_>>()).await;
    append(&engine, &(0..200).map(|_| kept_point(&mut random)).collect::<Vec<_>>()).await;
    let wanted = answers(&querier, flux).await;
    for round in 0..12 {
        let rows = passing(&mut random, 3 + round % 3);
        let changes = async {
            append(&engine, &rows).await;
            engine.flush().await.unwrap();
            match round % 3 {
                0 => until("a sealed file is damaged", || damage_one(&engine)).await,
                1 => {}
                _ => drop(engine.rotate().await.unwrap()),
            }
        };
        let ((), given) = tokio::join!(changes, answers(&querier, flux));
        for ((question, given), (_, wanted)) in given.iter().zip(&wanted) {
            let rows = |answer: &Value| answer.as_array().map(Vec::len);
            assert!(
                given == wanted,
                "{question} in round {round}: {:?} rows, not {:?}; {:?}",
                rows(given),
                rows(wanted),
                engine.rotation()
            );
        }
    }
    assert!(engine.rotation().last_removal.is_some(), "{:?}", engine.rotation());
    querier.close().await;
    engine.close().await.unwrap();
}
