//! The streams: which there are, their limits, and that they exist after every reconnect.
//!
//! | stream | subjects | age | share of `snake.max_store_mb` | when full |
//! |---|---|---|---|---|
//! | `snake.stream_name` | `snake.stream_subjects` but `platform.` | by the Mixer ([`crate::scenario`]): the server believes every clock | 70 % | refuses: Racks keep it in their spool |
//! | `flux-telemetry` | `flux.telemetry.>` | `telemetry_stream_max_age` | 25 % | drops the oldest |
//! | `flux-events` | what `snake.stream_subjects` names under `platform.` | `telemetry_stream_max_age` | 5 % | drops the oldest, never acknowledges |
//!
//! # Invariants
//!
//! - Always file storage, always a byte limit.
//! - Request/reply subjects (`flux.agent.`) are in no stream: it would answer requests before the Mixer does.
//! - An existing stream keeps what we do not set (replicas, placement of an external cluster).

use std::time::Duration;

use async_nats::jetstream::context::{CreateStreamError, CreateStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use async_nats::jetstream::{self, ErrorCode};
use chassis::bus::BusState;
use futures::StreamExt as _;
use model::ByteSize;
use model::subject::{EVENT_STREAM, GEARS_ALL, MESSAGES_ALL, TELEMETRY_ALL, TELEMETRY_STREAM};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{BusError, HEADROOM, MixerBus, StreamSettings};

/// How long the server remembers message ids.
const DUPLICATES: Duration = Duration::from_secs(600);
/// How long after a failure the streams, and what stands on them, are looked for again.
const AGAIN: Duration = Duration::from_secs(1);
/// Where control requests go.
const AGENT_ALL: &str = "flux.agent.>";
/// What a server answers that cannot set aside the bytes of a stream.
const NO_ROOM: [ErrorCode; 3] = [
    ErrorCode::STORAGE_RESOURCES_EXCEEDED,
    ErrorCode::INSUFFICIENT_RESOURCES,
    ErrorCode::ACCOUNT_RESOURCES_EXCEEDED,
];

/// The streams that the settings ask for.
pub(super) fn plan(settings: &StreamSettings) -> Result<Vec<Config>, BusError> {
    check_stream_subjects(&settings.subjects).map_err(|(subject, reason)| BusError::Subject { subject, reason })?;
    let (events, business) = partition(&settings.subjects);
    let share = |percent: u64| i64::try_from(settings.max_store.get() / 100 * percent).unwrap_or(i64::MAX);
    let stream =
        |name: &str, subjects: Vec<String>, max_age: Duration, max_bytes: i64, discard: DiscardPolicy| Config {
            name: name.to_owned(),
            subjects,
            storage: StorageType::File,
            max_age,
            max_bytes,
            discard,
            max_messages: -1,
            max_messages_per_subject: -1,
            max_consumers: -1,
            max_message_size: i32::try_from(settings.max_payload.get() + HEADROOM).unwrap_or(i32::MAX),
            duplicate_window: if max_age.is_zero() {
                DUPLICATES
            } else {
                DUPLICATES.min(max_age)
            },
            num_replicas: 1,
            allow_direct: true,
            allow_batch_publish: true,
            ..Config::default()
        };
    let telemetry_age = settings.telemetry_max_age;
    let telemetry = vec![TELEMETRY_ALL.to_owned()];
    let mut plan = vec![
        stream(
            TELEMETRY_STREAM,
            telemetry,
            telemetry_age,
            share(25),
            DiscardPolicy::Old,
        ),
        stream(&settings.name, business, Duration::ZERO, share(70), DiscardPolicy::New),
    ];
    if !events.is_empty() {
        let mut config = stream(EVENT_STREAM, events, telemetry_age, share(5), DiscardPolicy::Old);
        config.no_ack = true;
        config.allow_batch_publish = false;
        plan.push(config);
    }
    Ok(plan)
}

/// Those of events, and those of business messages.
fn partition(subjects: &[String]) -> (Vec<String>, Vec<String>) {
    let is_event = |subject: &String| subject.starts_with("platform.");
    subjects.iter().cloned().partition(is_event)
}

/// Whether `snake.stream_subjects` can be captured; else the subject, and what is wrong with it.
pub(crate) fn check_stream_subjects(all: &[String]) -> Result<(), (String, String)> {
    let (_, business) = partition(all);
    let bad = |subject: &str, reason: String| Err((subject.to_owned(), reason));
    for (at, subject) in all.iter().enumerate() {
        if !is_subject(subject) {
            let reason = "is not a subject: words joined by dots, `*` for one word, `>` for the rest, no spaces";
            return bad(subject, reason.to_owned());
        }
        for (ours, why) in [
            (TELEMETRY_ALL, "telemetry has its own stream; remove it from the list"),
            (
                AGENT_ALL,
                "a stream would answer the control requests there; name narrower subjects",
            ),
            ("$JS.>", "that is the bus's own; name narrower subjects"),
        ] {
            if overlap(subject, ours) {
                return bad(subject, format!("captures {ours}: {why}"));
            }
        }
        if let Some(other) = all.iter().skip(at + 1).find(|other| overlap(subject, other)) {
            return bad(subject, format!("overlaps {other:?}: keep one of the two"));
        }
    }
    for needed in [MESSAGES_ALL, GEARS_ALL] {
        if !business.iter().any(|subject| covers(subject, needed)) {
            let reason = "is not captured: wires and dead letters need it; add it to the list";
            return bad(needed, reason.to_owned());
        }
    }
    for subject in &business {
        if overlap(subject, "platform.>") {
            let reason = "captures platform.>, which has its own stream; name narrower subjects".to_owned();
            return bad(subject, reason);
        }
    }
    Ok(())
}

fn is_subject(subject: &str) -> bool {
    let tokens: Vec<&str> = subject.split('.').collect();
    let last = tokens.len() - 1;
    tokens.iter().enumerate().all(|(at, token)| match *token {
        "" => false,
        ">" => at == last,
        "*" => true,
        word => word.bytes().all(|b| b.is_ascii_graphic() && b != b'*' && b != b'>'),
    })
}

/// Whether every subject that matches `narrow` matches `wide`.
fn covers(wide: &str, narrow: &str) -> bool {
    let (mut wide, mut narrow) = (wide.split('.'), narrow.split('.'));
    loop {
        match (wide.next(), narrow.next()) {
            (None, None) | (Some(">"), Some(_)) => return true,
            (Some("*"), Some(word)) if word != ">" => {}
            (Some(x), Some(y)) if x == y => {}
            _ => return false,
        }
    }
}

/// Whether some subject matches both patterns.
fn overlap(a: &str, b: &str) -> bool {
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        match (a.next(), b.next()) {
            (None, None) | (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(x), Some(y)) if x == y || x == "*" || y == "*" => {}
            _ => return false,
        }
    }
}

/// Creates or corrects every stream.
pub(super) async fn ensure(jetstream: &jetstream::Context, plan: &[Config]) -> Result<(), BusError> {
    for wanted in plan {
        ensure_one(jetstream, wanted).await.map_err(|reason| BusError::Stream {
            stream: wanted.name.clone(),
            reason,
        })?;
    }
    Ok(())
}

async fn ensure_one(jetstream: &jetstream::Context, wanted: &Config) -> Result<(), String> {
    let existing = match jetstream.get_stream(&wanted.name).await {
        Ok(stream) => stream.cached_info().config.clone(),
        Err(error) if is_missing(&error) => {
            if let Err(error) = jetstream.create_stream(wanted).await {
                let former = former(jetstream, wanted).await;
                return Err(refusal(&error, wanted.max_bytes) + &former.unwrap_or_default());
            }
            tracing::info!(stream = %wanted.name, max_bytes = wanted.max_bytes, "stream created");
            return Ok(());
        }
        Err(error) => return Err(error.to_string()),
    };
    if existing.storage != StorageType::File {
        return Err("it is kept in memory, and that cannot be changed: delete it, or name another stream".to_owned());
    }
    let corrected = Config {
        subjects: wanted.subjects.clone(),
        max_age: wanted.max_age,
        max_bytes: wanted.max_bytes,
        max_message_size: wanted.max_message_size,
        discard: wanted.discard,
        duplicate_window: wanted.duplicate_window,
        no_ack: wanted.no_ack,
        allow_direct: wanted.allow_direct,
        allow_batch_publish: wanted.allow_batch_publish,
        ..existing.clone()
    };
    if corrected == existing {
        return Ok(());
    }
    jetstream
        .update_stream(&corrected)
        .await
        .map_err(|error| refusal(&error, wanted.max_bytes))?;
    tracing::info!(stream = %wanted.name, max_bytes = wanted.max_bytes, "updated a stream to match the configuration");
    Ok(())
}

/// Why the server does not make a stream of `max_bytes`, and what helps where it has no room for it.
fn refusal(error: &CreateStreamError, max_bytes: i64) -> String {
    let code = match error.kind() {
        CreateStreamErrorKind::JetStream(error) => Some(error.error_code()),
        _ => None,
    };
    if !code.is_some_and(|code| NO_ROOM.contains(&code)) {
        return error.to_string();
    }
    let wanted = ByteSize::bytes(max_bytes.unsigned_abs());
    format!(
        "{error}: the server has not the {wanted} left that it asks for; lower snake.max_store_mb, or raise \
         max_file_store (or the account's limit) of that server"
    )
}

/// What helps where a stream of another name has the subjects of one that cannot be made.
async fn former(jetstream: &jetstream::Context, wanted: &Config) -> Option<String> {
    let mut streams = jetstream.streams();
    while let Some(Ok(stream)) = streams.next().await {
        let mut pairs = stream
            .config
            .subjects
            .iter()
            .flat_map(|one| wanted.subjects.iter().map(move |other| (one, other)));
        if pairs.any(|(one, other)| overlap(one, other)) {
            let name = stream.config.name;
            return Some(format!(
                "; the stream {name} has these subjects: if it is of another snake.stream_name, set that back, or delete it \
                 once nothing in it is wanted (nats stream rm {name})"
            ));
        }
    }
    None
}

fn is_missing(error: &jetstream::context::GetStreamError) -> bool {
    matches!(error.kind(), GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// Ensures the streams after every reconnect until stopped.
pub(super) async fn keep(bus: MixerBus, plan: Vec<Config>, stop: CancellationToken) {
    let mut reconnects = ReconnectWatcher::of(&bus);
    while reconnects.next(&stop).await {
        match ensure(bus.jetstream(), &plan).await {
            Ok(()) => reconnects.settle(),
            Err(error) => tracing::error!(%error, "a stream does not match the configuration; retrying"),
        }
    }
}

/// Reconnects to the bus, each until what it calls for is settled. However short the break was: the server may be another
/// one, or have lost its store.
#[derive(Debug)]
pub(crate) struct ReconnectWatcher {
    state: watch::Receiver<BusState>,
    unsure: bool,
}

impl ReconnectWatcher {
    /// Those from now on.
    pub(crate) fn of(bus: &MixerBus) -> Self {
        let mut state = bus.state();
        state.mark_unchanged();
        Self { state, unsure: false }
    }

    /// Those from now on, and the connection that is there: it is not settled either.
    pub(crate) fn unsettled(bus: &MixerBus) -> Self {
        Self {
            unsure: true,
            ..Self::of(bus)
        }
    }

    /// Waits until the bus is there again, or for a second while the last reconnect is not settled; false once stopped.
    pub(crate) async fn next(&mut self, stop: &CancellationToken) -> bool {
        loop {
            tokio::select! {
                () = stop.cancelled() => return false,
                changed = self.state.changed() => match changed {
                    Ok(()) => self.unsure = true,
                    Err(_) => {
                        stop.cancelled().await;
                        return false;
                    }
                },
                () = tokio::time::sleep(AGAIN), if self.unsure => {}
            }
            if self.unsure && *self.state.borrow_and_update() == BusState::Connected {
                return true;
            }
        }
    }

    /// All is as it should be, until the next one.
    pub(crate) const fn settle(&mut self) {
        self.unsure = false;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn settings(subjects: &[&str]) -> StreamSettings {
        StreamSettings {
            name: "flux-msg".to_owned(),
            subjects: subjects.iter().map(|subject| (*subject).to_owned()).collect(),
            telemetry_max_age: Duration::from_secs(24 * 3600),
            max_store: ByteSize::mib(1000),
            max_payload: ByteSize::mib(2),
        }
    }

    #[test]
    fn the_default_list_becomes_three_streams_within_the_byte_limit() {
        let plan = plan(&settings(&["flux.msg.>", "flux.gear.>", "platform.>"])).unwrap();
        let names: Vec<&str> = plan.iter().map(|stream| stream.name.as_str()).collect();
        assert_eq!(names, ["flux-telemetry", "flux-msg", "flux-events"]);
        let bytes: i64 = plan.iter().map(|stream| stream.max_bytes).sum();
        assert!(bytes > 0 && bytes <= 1000 << 20, "{bytes}");
        assert_eq!(plan[1].discard, DiscardPolicy::New);
        assert!(plan[2].no_ack && !plan[1].no_ack && !plan[0].no_ack);
    }

    #[test]
    fn subjects_that_would_answer_requests_or_swallow_telemetry_are_refused_by_name() {
        for bad in [
            "flux.>",
            ">",
            "*.telemetry.logs.x",
            "flux.agent.hello",
            "*.>",
            "flux..x",
            "a b",
            "a.>.b",
            "$JS.API.x",
        ] {
            let error = plan(&settings(&[bad])).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")), "{error}");
        }
        let with_ours = |more: &[&str]| settings(&[&["flux.msg.>", "flux.gear.>"], more].concat());
        assert!(
            plan(&with_ours(&["a.*", "a.b"])).is_err(),
            "subjects of one list overlap"
        );
        assert!(plan(&with_ours(&["a.*", "a.b.c", "b.*.y", "platform.event.>"])).is_ok());
    }

    #[test]
    fn a_list_without_the_subjects_of_wires_or_dead_letters_is_refused() {
        for (list, missing) in [
            (&["flux.msg.>", "platform.>"][..], "flux.gear.>"),
            (&["flux.gear.>"][..], "flux.msg.>"),
            (&["flux.msg.rack-a.>", "flux.gear.>"][..], "flux.msg.>"),
            (&["flux.msg.*", "flux.gear.>"][..], "flux.msg.>"),
        ] {
            let error = plan(&settings(list)).unwrap_err().to_string();
            assert!(error.contains(&format!("{missing:?} is not captured")), "{error}");
        }
    }
}
