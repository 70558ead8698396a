//! Random rows and filters from small sets of values, so that everything meets everything.

use std::collections::BTreeSet;

use model::batch::MessageRow;
use model::filter::{
    KeyedValueSets, KeyedValues, LogFilter, MessageFilter, MetricAggregate, MetricFilter, SortOrder, TimePoint,
    TraceFilter,
};
use model::{
    Attributes, EntityId, FluxId, Level, LogRecord, MessageDirection, MetricPoint, MetricType, Span, SpanId,
    SpanStatus, Timestamp, TraceId,
};
use serde_json::{Value, json};

use super::{HOUR, SECOND, now};

/// Reproducible randomness; its seed is printed, and taken from `PLATFORM_TEST_SEED` when that is set.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new() -> Self {
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self::seeded(clock.map_or(1, |since| since.subsec_nanos().into()))
    }

    /// The same each time unless a seed is set: what another one finds is a new defect, not a build that broke.
    pub(super) fn seeded(seed: u64) -> Self {
        let given = std::env::var("PLATFORM_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or(seed);
        println!("PLATFORM_TEST_SEED={seed}");
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(super) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[usize::try_from(self.below(of.len() as u64)).unwrap()]
    }

    pub(super) fn maybe<T>(&mut self, one_in: u64, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(one_in) == 0).then(|| make(self))
    }

    fn number(&mut self, n: u64) -> i64 {
        i64::try_from(self.below(n)).unwrap()
    }

    /// One of a few dozen moments of the last six hours: many rows share theirs.
    pub(super) fn moment(&mut self) -> Timestamp {
        let hour = self.number(6);
        let step = self.number(8);
        Timestamp::from_micros(now().micros() - hour * HOUR - step * 7 * SECOND - self.number(2))
    }

    fn when(&mut self) -> TimePoint {
        TimePoint::At(self.moment())
    }
}

pub(super) const ENTITIES: [&str; 3] = ["rack-a", "rack-b", "räck c"];
const SERVICES: [&str; 4] = ["shop", "bäcker", "rack-a", "stock"];
const GEARS: [&str; 4] = ["tail", "sink", "t\"ail", "5"];
const WORDS: [&str; 8] = ["disk", "FULL", "Ärger", "100%", "a_b", "ΟΔΟΣ", "", "\u{212a}"];
const NEEDLES: [&str; 9] = ["disk", "isk f", "ÄRGER", "0%", "A_B", "οδοσ", "k", "nothing", ""];

pub(super) fn flux(n: u8) -> FluxId {
    FluxId::at(Timestamp::from_micros(now().micros() - 3 * HOUR), [n; 10])
}

pub(super) fn trace(n: u8) -> TraceId {
    TraceId::from_entropy([n + 1; 16])
}

const DIRECTIONS: [MessageDirection; 3] = [
    MessageDirection::Inbound,
    MessageDirection::Outbound,
    MessageDirection::Internal,
];

/// Scalars of all kinds, some of the same text, one with a key that needs escapes.
fn attributes(random: &mut Random) -> Attributes {
    let statuses = [json!(500), json!("500"), json!(200), json!(500.0), json!(null)];
    let flags = [json!(true), json!(false), json!("true"), json!(""), json!("Ä\n\"")];
    let mut attributes = Attributes::new();
    if let Some(status) = random.maybe(2, |random| random.pick(&statuses).clone()) {
        attributes.set("http.status", status);
    }
    if let Some(flag) = random.maybe(2, |random| random.pick(&flags).clone()) {
        attributes.set("ö\"k", flag);
    }
    attributes
}

/// Values of none, one or both of these attributes.
fn by_key(random: &mut Random) -> KeyedValues {
    let status = random.maybe(6, |random| *random.pick(&["500", "200", "500.0", "null", "5"]));
    let flag = random.maybe(6, |random| *random.pick(&["true", "false", "", "Ä\n\""]));
    let given = [("http.status", status), ("ö\"k", flag)];
    let given = given
        .into_iter()
        .filter_map(|(key, value)| Some((key.to_owned(), value?.to_owned())));
    given.collect()
}

/// Up to two of some texts, most often none.
fn left_out(random: &mut Random, of: &[&str]) -> BTreeSet<String> {
    let count = random.maybe(6, |random| 1 + random.below(2)).unwrap_or(0);
    (0..count).map(|_| (*random.pick(of)).to_owned()).collect()
}

/// As [`by_key`], each with one value or two.
fn left_out_by_key(random: &mut Random) -> KeyedValueSets {
    let (given, more) = (by_key(random), by_key(random));
    let mut sets = KeyedValueSets::new();
    for (key, value) in given.into_iter().chain(more) {
        sets.entry(key).or_default().insert(value);
    }
    sets
}

fn order(random: &mut Random) -> Option<SortOrder> {
    random.maybe(2, |random| {
        *random.pick(&[SortOrder::Asc, SortOrder::Asc, SortOrder::Desc])
    })
}

pub(super) fn log(random: &mut Random) -> LogRecord {
    let entity = *random.pick(&ENTITIES);
    let mut attributes = attributes(random);
    if let Some(gear) = random.maybe(2, |random| *random.pick(&GEARS)) {
        attributes.set("gear.id", gear);
    }
    if let Some(n) = random.maybe(3, |random| random.below(2)) {
        attributes.set("gear.id", n);
    }
    if let Some(n) = random.maybe(3, |random| random.below(3)) {
        attributes.set("trace_id", trace(u8::try_from(n).unwrap()).to_string());
    }
    if let Some(service) = random.maybe(3, |random| *random.pick(&SERVICES)) {
        attributes.set(Span::SERVICE_NAME, service);
    }
    LogRecord {
        ts: random.moment(),
        entity_id: EntityId::for_name(entity),
        entity_name: entity.to_owned(),
        flux_id: random.maybe(2, |random| flux(u8::try_from(random.below(3)).unwrap())),
        level: *random.pick(Level::ALL),
        message: format!("{} {}", random.pick(&WORDS), random.pick(&WORDS)),
        attributes,
    }
}

pub(super) fn span(random: &mut Random) -> Span {
    let entity = *random.pick(&ENTITIES);
    let mut id = [0; 8];
    id.copy_from_slice(&random.next().to_be_bytes());
    let mut attributes = attributes(random);
    if let Some(service) = random.maybe(2, |random| *random.pick(&SERVICES)) {
        attributes.set(Span::SERVICE_NAME, service);
    }
    Span {
        ts: random.moment(),
        trace_id: trace(u8::try_from(random.below(5)).unwrap()),
        span_id: SpanId::from_entropy(id),
        parent_span_id: None,
        flux_id: random.maybe(2, |random| flux(u8::try_from(random.below(3)).unwrap())),
        entity_id: EntityId::for_name(entity),
        entity_name: entity.to_owned(),
        span_name: (*random.pick(&["receive", "send"])).to_owned(),
        duration_ms: f32::from(u16::try_from(random.below(40)).unwrap()) / 4.0,
        status: *random.pick(SpanStatus::ALL),
        attributes,
    }
}

pub(super) fn message(random: &mut Random) -> MessageRow {
    let entity = *random.pick(&ENTITIES);
    let bytes = random.below(6);
    MessageRow {
        ts: random.moment(),
        trace_id: trace(u8::try_from(random.below(5)).unwrap()),
        flux_id: flux(u8::try_from(random.below(3)).unwrap()),
        entity_id: EntityId::for_name(entity),
        entity_name: entity.to_owned(),
        src_gear_id: (*random.pick(&GEARS)).to_owned(),
        dst_gear_id: random.maybe(2, |random| (*random.pick(&GEARS)).to_owned()),
        msg_type: (*random.pick(&["order", "order_paid"])).to_owned(),
        direction: *random.pick(&DIRECTIONS),
        status: *random.pick(SpanStatus::ALL),
        raw_msg: (0..bytes).map(|_| u8::try_from(random.below(256)).unwrap()).collect(),
        promoted: attributes(random),
    }
}

pub(super) fn point(random: &mut Random) -> MetricPoint {
    let entity = *random.pick(&ENTITIES);
    let kind = *random.pick(MetricType::ALL);
    let mut labels = Attributes::new().with("otel.unit", "By");
    if let Some(cpu) = random.maybe(2, |random| random.below(2)) {
        labels.set("cpu", cpu.to_string());
    }
    let mut value = random.number(50);
    if kind == MetricType::Histogram {
        let buckets = [random.number(5), random.number(5), random.number(5)];
        let count: i64 = buckets.iter().sum();
        value = count * 3;
        labels.set("otel.count", count);
        labels.set("otel.bounds", vec![1.0, 10.0]);
        labels.set("otel.buckets", buckets.to_vec());
    }
    if kind == MetricType::Counter && random.below(4) == 0 {
        labels.set("otel.temporality", "delta");
    }
    #[allow(clippy::cast_precision_loss, reason = "small whole numbers")]
    let value = value as f64;
    MetricPoint {
        ts: random.moment(),
        name: format!("{kind}.{}", random.below(2)),
        entity_id: EntityId::for_name(entity),
        entity_name: entity.to_owned(),
        metric_type: kind,
        value,
        labels,
    }
}

fn entity(random: &mut Random) -> String {
    let name = *random.pick(&["rack-a", "räck c", "nobody"]);
    match random.below(2) {
        0 => name.to_owned(),
        _ => EntityId::for_name(name).to_string(),
    }
}

fn service(random: &mut Random) -> String {
    (*random.pick(&["shop", "rack-a", "gone"])).to_owned()
}

/// The service of a row, by its JSON column.
pub(super) fn service_of<'a>(attributes: &'a Attributes, entity_name: &'a str) -> &'a str {
    let named = attributes.get(Span::SERVICE_NAME).and_then(Value::as_str);
    named.unwrap_or(entity_name)
}

/// Bounds in order, each there half of the time.
fn bounds(random: &mut Random) -> (Option<TimePoint>, Option<TimePoint>) {
    let (a, b) = (random.maybe(2, Random::when), random.maybe(2, Random::when));
    match (a, b) {
        (Some(a), Some(b)) if a.resolve(now()) > b.resolve(now()) => (Some(b), Some(a)),
        bounds => bounds,
    }
}

pub(super) fn log_filter(random: &mut Random) -> LogFilter {
    let (since, until) = bounds(random);
    LogFilter {
        level: random.maybe(6, |random| *random.pick(Level::ALL)),
        min_level: random.maybe(5, |random| *random.pick(Level::ALL)),
        since,
        until,
        rack_id: random.maybe(6, entity),
        gear_id: random.maybe(5, |random| {
            (*random.pick(&["tail", "t\"ail", "5", "1", "gone"])).to_owned()
        }),
        entity: random.maybe(6, entity),
        service: random.maybe(8, service),
        flux_id: random.maybe(6, |random| flux(u8::try_from(random.below(4)).unwrap())),
        trace_id: random.maybe(6, |random| trace(u8::try_from(random.below(3)).unwrap())),
        q: random.maybe(4, |random| (*random.pick(&NEEDLES)).to_owned()),
        attributes: by_key(random),
        not_level: random.maybe(6, |random| *random.pick(Level::ALL)).into_iter().collect(),
        not_entity: random.maybe(6, entity).into_iter().collect(),
        not_service: left_out(random, &["shop", "rack-a", "gone"]),
        not_q: left_out(random, &NEEDLES[..8]),
        not_attributes: left_out_by_key(random),
        order: order(random),
        limit: random.maybe(2, |random| u32::try_from(1 + random.below(40)).unwrap()),
        offset: random.maybe(3, |random| u32::try_from(random.below(60)).unwrap()),
        cursor: None,
    }
}

pub(super) fn trace_filter(random: &mut Random) -> TraceFilter {
    let (since, until) = bounds(random);
    TraceFilter {
        flux_id: random.maybe(4, |random| flux(u8::try_from(random.below(4)).unwrap())),
        trace_id: random.maybe(6, |random| trace(u8::try_from(random.below(6)).unwrap())),
        since,
        until,
        min_duration_ms: random.maybe(3, |random| u32::try_from(random.below(11)).unwrap()),
        status: random.maybe(3, |random| *random.pick(SpanStatus::ALL)),
        entity: random.maybe(4, entity),
        service: random.maybe(6, service),
        span_name: random.maybe(4, |random| (*random.pick(&["receive", "gone"])).to_owned()),
        attributes: by_key(random),
        not_entity: random.maybe(6, entity).into_iter().collect(),
        not_service: left_out(random, &["shop", "rack-a", "gone"]),
        not_span_name: left_out(random, &["receive", "gone"]),
        not_attributes: left_out_by_key(random),
        order: order(random),
        limit: random.maybe(2, |random| u32::try_from(1 + random.below(40)).unwrap()),
        offset: random.maybe(3, |random| u32::try_from(random.below(60)).unwrap()),
        cursor: None,
    }
}

pub(super) fn message_filter(random: &mut Random) -> MessageFilter {
    let (since, until) = bounds(random);
    let gear = |random: &mut Random| (*random.pick(&GEARS)).to_owned();
    MessageFilter {
        flux_id: random.maybe(4, |random| flux(u8::try_from(random.below(4)).unwrap())),
        trace_id: random.maybe(6, |random| trace(u8::try_from(random.below(6)).unwrap())),
        rack_id: random.maybe(6, entity),
        entity: random.maybe(4, entity),
        src_gear_id: random.maybe(4, gear),
        dst_gear_id: random.maybe(4, gear),
        msg_type: random.maybe(4, |random| {
            (*random.pick(&["order", "order_paid", "order_"])).to_owned()
        }),
        direction: random.maybe(4, |random| *random.pick(&DIRECTIONS)),
        status: random.maybe(4, |random| *random.pick(SpanStatus::ALL)),
        promoted: by_key(random),
        since,
        until,
        raw: None,
        order: order(random),
        limit: random.maybe(2, |random| u32::try_from(1 + random.below(40)).unwrap()),
        offset: random.maybe(3, |random| u32::try_from(random.below(60)).unwrap()),
        cursor: None,
    }
}

/// Whether a record's JSON column has all of these values.
pub(super) fn has_all(attributes: &Attributes, wanted: &KeyedValues) -> bool {
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Null => None,
        other => Some(other.to_string()),
    };
    let has = |(key, wanted): (&String, &String)| attributes.get(key).and_then(text).as_ref() == Some(wanted);
    wanted.iter().all(has)
}

/// Whether a record's JSON column has any of these values.
pub(super) fn has_any(attributes: &Attributes, unwanted: &KeyedValueSets) -> bool {
    let mut each = unwanted
        .iter()
        .flat_map(|(key, values)| values.iter().map(move |value| (key, value)));
    each.any(|(key, value)| has_all(attributes, &[(key.clone(), value.clone())].into()))
}

/// A filter that brings points together.
pub(super) fn summary_filter(random: &mut Random) -> MetricFilter {
    let (since, until) = bounds(random);
    let groups = ["entity_name", "entity_id", "name", "type", "cpu", "otel.unit", "gone"];
    let intervals = ["1s", "1m", "7s", "1h", "24h", "90m"];
    let aggregates = [
        MetricAggregate::Avg,
        MetricAggregate::Sum,
        MetricAggregate::Min,
        MetricAggregate::Max,
        MetricAggregate::Count,
        MetricAggregate::Last,
        MetricAggregate::Rate,
    ];
    let mut filter = MetricFilter {
        name: random.maybe(3, |random| {
            (*random.pick(&["gauge.0", "counter.1", "histogram.0", "gone"])).to_owned()
        }),
        entity: random.maybe(4, entity),
        service: random.maybe(6, service),
        since,
        until,
        group_by: random.maybe(2, |random| (*random.pick(&groups)).to_owned()),
        interval: random.maybe(2, |random| random.pick(&intervals).parse().unwrap()),
        agg: random.maybe(2, |random| *random.pick(&aggregates)),
        labels: random
            .maybe(5, |random| {
                ("cpu".to_owned(), (*random.pick(&["0", "1", "2"])).to_owned())
            })
            .into_iter()
            .collect(),
        limit: Some(10_000),
        ..MetricFilter::default()
    };
    if filter.group_by.is_none() && filter.interval.is_none() && filter.agg.is_none() {
        filter.interval = Some("1m".parse().unwrap());
    }
    filter
}
