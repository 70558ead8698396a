//! Each shortcut to an answer changes what is read, never what is answered: every question is asked with and without each of them,
//! over rows that are sealed, late, open and in memory.

use model::filter::{HistogramFilter, HistogramGrouping, LogFilter, SeriesFilter, TopFilter};
use model::{LogRecord, Table};
use serde_json::{Value, json};

use super::minute_rollups::counting;
use super::point_rollups::summing;
use super::random_world::{self, Random};
use super::rows::scattered;
use super::sql::asked_of;
use super::*;
use crate::scan::ScanShortcut;
use crate::{Error, ListQuery};

/// What is left out of each querier; the first takes all.
const WITHOUT: [&[ScanShortcut]; 6] = [
    &[],
    &[ScanShortcut::OwnScan],
    &[ScanShortcut::Counts],
    &[ScanShortcut::Pruning],
    &[ScanShortcut::OwnScan, ScanShortcut::Pruning],
    &[ScanShortcut::OwnScan, ScanShortcut::Counts, ScanShortcut::Pruning],
];

/// Something that is asked of all queriers.
#[derive(Debug)]
enum Question {
    List(ListQuery),
    Histogram(LogFilter, HistogramFilter),
    Top(LogFilter, TopFilter),
    Names(SeriesFilter),
    Statement(String),
}

impl Question {
    fn any(random: &mut Random) -> Self {
        let logs = |random: &mut Random| LogFilter {
            cursor: None,
            ..random_world::log_filter(random)
        };
        match random.below(12) {
            0 | 1 => Self::List(ListQuery::Logs(logs(random))),
            2 => Self::List(ListQuery::Traces(random_world::trace_filter(random))),
            3 => Self::List(ListQuery::Metrics(random_world::summary_filter(random))),
            4 => {
                let shape = HistogramFilter {
                    interval: Some(random.pick(&["1m", "7m", "1h", "90s"]).parse().unwrap()),
                    by: Some(*random.pick(&[
                        HistogramGrouping::None,
                        HistogramGrouping::Level,
                        HistogramGrouping::EntityName,
                    ])),
                    fill: None,
                };
                Self::Histogram(unpaged(logs(random)), shape)
            }
            5 => {
                let fields = ["level", "entity_name", "entity_id"];
                let top = TopFilter {
                    field: Some((*random.pick(&fields)).to_owned()),
                };
                Self::Top(unpaged(logs(random)), top)
            }
            6 => Self::Names(SeriesFilter::default()),
            7 => Self::Statement(counting(random)[0].clone()),
            8 | 9 => Self::Statement(summing(random)),
            _ => Self::Statement(list(random)),
        }
    }

    /// The answer, without what it cost.
    async fn answer(&self, querier: &QueryEngine) -> Result<Value, Error> {
        Ok(match self {
            Self::List(query) => json!(querier.page(query.clone()).await?.rows),
            Self::Histogram(filter, shape) => json!(querier.logs_histogram(filter, shape).await?.page.rows),
            Self::Top(filter, top) => json!(querier.logs_top(filter, top).await?.rows),
            Self::Names(filter) => json!(querier.metric_names(filter).await?.rows),
            Self::Statement(text) => asked_of(querier, text, json!([])).await?["data"].take(),
        })
    }
}

fn unpaged(filter: LogFilter) -> LogFilter {
    LogFilter {
        limit: None,
        offset: None,
        order: None,
        ..filter
    }
}

/// A list as a statement, in one of its wordings. Its order is total, or only times are asked for.
fn list(random: &mut Random) -> String {
    let table = *random.pick(&[Table::Logs, Table::Logs, Table::Traces, Table::Messages]);
    let narrow: &[&str] = match table {
        Table::Logs => &[
            "level = 'error'",
            "level IN ('warn', 'info')",
            "message LIKE '%disk%'",
            "message ILIKE '%full%' AND level <> 'info'",
            "attributes->>'gear.id' = 'tail'",
            "length(message) > 4 OR flux_id IS NULL",
            "entity_name = 'rack-a'",
            "message ~ 'd.sk'",
            "message || level LIKE '%error' OR replace(message, 'd', 'dd') LIKE '%dd%'",
            r"regexp_replace(message, '(d)(.)', '\2\1') LIKE '%id%' OR level = 'info'",
            "to_char(ts, 'MI') < '30' AND level <> 'info'",
        ],
        _ => &[
            "status = 'error'",
            "status <> 'error' AND entity_name <> 'rack-b'",
            "entity_name LIKE 'r%'",
            "flux_id IS NOT NULL",
        ],
    };
    let mut conditions: Vec<String> = random
        .maybe(2, |random| (*random.pick(narrow)).to_owned())
        .into_iter()
        .collect();
    conditions.extend(random.maybe(2, |random| format!("ts >= '{}'", random.moment())));
    conditions.extend(random.maybe(3, |random| format!("ts < '{}'", random.moment())));
    conditions.extend(random.maybe(4, |random| {
        format!("flux_id = '{}'", random_world::flux(1 + u8::from(random.below(2) == 0)))
    }));
    conditions.extend(random.maybe(8, |random| {
        format!("ts IN (SELECT ts FROM traces WHERE ts > '{}')", random.moment())
    }));
    let newest = "(SELECT max(ts) FROM logs WHERE entity_name = 'rack-a')";
    conditions.extend(random.maybe(8, |_| format!("ts <= {newest}")));
    let conditions = match conditions.join(" AND ") {
        none if none.is_empty() => "true".to_owned(),
        some => some,
    };
    let (order, nulls) = (
        *random.pick(&["ASC", "DESC", "DESC"]),
        *random.pick(&["", "", " NULLS LAST", " NULLS FIRST"]),
    );
    let limit = match random.below(4) {
        0 => String::new(),
        _ => format!("LIMIT {}", 1 + random.below(80)),
    };
    let offset = random
        .maybe(4, |random| format!(" OFFSET {}", random.below(40)))
        .unwrap_or_default();
    let rest = match table {
        Table::Logs => "entity_name, level, message, flux_id, attributes",
        Table::Traces => "trace_id, span_id",
        _ => "trace_id, flux_id, src_gear_id, dst_gear_id, entity_name, msg_type, direction, status, promoted, raw_msg",
    };
    match random.below(6) {
        0 => format!("SELECT ts FROM {table} WHERE {conditions} ORDER BY ts {order}{nulls} {limit}{offset}"),
        1 => format!(
            "SELECT t.moment FROM (SELECT entity_name, ts AS moment FROM {table} AS x WHERE {conditions}) AS t WHERE t.entity_name <> 'rack-b' ORDER BY 1 {order}{nulls} {limit}{offset}"
        ),
        2 => format!(
            "SELECT count(*) AS n, min(ts) AS a, max(ts) AS b FROM (SELECT ts FROM {table} WHERE {conditions} ORDER BY ts {order}{nulls} {limit}{offset}) AS t"
        ),
        3 => format!(
            "SELECT ts, row_number() OVER (ORDER BY ts {order}) AS n FROM {table} WHERE {conditions} ORDER BY 2 {limit}{offset}"
        ),
        4 => format!("SELECT * FROM {table} WHERE {conditions} ORDER BY ts {order}{nulls}, {rest} {limit}{offset}"),
        _ => format!(
            "SELECT entity_name AS e, ts AS t, {table}.* FROM {table} WHERE {conditions} ORDER BY ts {order}{nulls}, {rest} {limit}{offset}"
        ),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_same_with_and_without_each_shortcut() {
    let mut random = Random::new();
    for forms in [false, true] {
        let mut bench = if forms {
            Bench::of_lines().await
        } else {
            Bench::new().await
        };
        scattered(&mut bench, &mut random, random_world::log).await;
        scattered(&mut bench, &mut random, random_world::span).await;
        scattered(&mut bench, &mut random, random_world::point).await;
        super::messages::scattered(&mut bench, &mut random).await;
        bench.engine.index_all().await.unwrap();
        let late: Vec<LogRecord> = (0..50).map(|_| random_world::log(&mut random)).collect();
        bench.append(&late).await;
        let queriers = WITHOUT.map(|without| {
            let limits = QueryLimits {
                without,
                ..bench.limits.clone()
            };
            QueryEngine::new(Arc::clone(&bench.engine), limits, Clock::new(now)).unwrap()
        });
        for _ in 0..50 {
            let question = Question::any(&mut random);
            let mut answers = Vec::new();
            for querier in &queriers {
                answers.push(question.answer(querier).await.map_err(|error| error.to_string()));
            }
            assert!(answers[0].is_ok(), "{question:?}: {answers:?}");
            for (answer, without) in answers.iter().zip(WITHOUT).skip(1) {
                assert_eq!(answer, &answers[0], "{question:?} without {without:?}");
            }
        }
        for querier in queriers {
            querier.close().await;
        }
        bench.close().await;
    }
}
