//! Checks of other services: the Mixer's API (reachable, clock, version) and the bus.

use std::time::{Duration, Instant};

use chassis::ExitReason;
use chassis::bus::{BusConnection, BusOptions};
use chassis::config::without_credentials;
use model::{Clock, HumanDuration, Timestamp};
use rack::config::RackConfig;
use serde_json::Value;

use super::DoctorCheck;
use crate::client::{ApiClient, ApiResponse};

/// Clocks that differ less disturb nobody.
const CLOSE: Duration = Duration::from_secs(5);
/// Rows that are further in the future are filed under the hour of their arrival.
const WRONG: Duration = Duration::from_secs(3600);
/// In the words of the TLS library: a certificate that nobody signed whom we trust.
const UNTRUSTED: &str = "UnknownIssuer";
/// The time the bus is given to see us off.
const FAREWELL: Duration = Duration::from_secs(2);

/// API, clock and version, of as few questions as there are answers.
pub(super) fn mixer(client: &ApiClient, clock: &Clock) -> [DoctorCheck; 3] {
    let (before, start) = (clock.now(), Instant::now());
    match client.get_any_status("/readyz") {
        Err(error) => {
            let api = DoctorCheck::failed("api", ExitReason::Unavailable, &error.to_string());
            let skipped = |name| DoctorCheck::skipped(name, "the API does not answer");
            [api, skipped("clock"), skipped("version")]
        }
        Ok(heard) => {
            let (took, after) = (start.elapsed(), clock.now());
            let clocks = clocks(heard.date, before, after);
            [ready(heard, took), clocks, version(client)]
        }
    }
}

/// Whether the Mixer is ready, of one question.
pub(super) fn readiness(client: &ApiClient) -> DoctorCheck {
    let start = Instant::now();
    match client.get_any_status("/readyz") {
        Err(error) => DoctorCheck::failed("api", ExitReason::Unavailable, &error.to_string()),
        Ok(heard) => ready(heard, start.elapsed()),
    }
}

fn ready(heard: ApiResponse, took: Duration) -> DoctorCheck {
    let is_ready = |body: &Value| body.get("ready").and_then(Value::as_bool);
    match (heard.status, heard.body) {
        (401 | 403, _) => denied("api"),
        (200, Ok(body)) if is_ready(&body) == Some(true) => match troubles(&body) {
            none if none.is_empty() => DoctorCheck::ok(
                "api",
                format!("the Mixer is ready; it answered in {} ms", took.as_millis()),
            ),
            troubles => {
                let found = format!("the Mixer is ready, and not all is well: {troubles}");
                DoctorCheck::warn("api", found, "look into the Mixer's log, and at what it names")
            }
        },
        (503, Ok(body)) if is_ready(&body) == Some(false) => {
            let found = format!("the Mixer is not ready: {}", troubles(&body));
            DoctorCheck::fail(
                "api",
                ExitReason::Unavailable,
                found,
                "look into the Mixer's log; it may still be starting",
            )
        }
        (status, _) => stranger("api", format!("/readyz answers {status}, not as a Mixer does")),
    }
}

/// The reasons of what is not well.
fn troubles(body: &Value) -> String {
    let checks = body.get("checks").and_then(Value::as_object).into_iter().flatten();
    let reasons = checks.filter_map(|(name, check)| {
        let reason = check.get("reason").and_then(Value::as_str)?;
        Some(format!("{name}: {reason}"))
    });
    reasons.collect::<Vec<_>>().join(", ")
}

fn denied(name: &'static str) -> DoctorCheck {
    DoctorCheck::fail(
        name,
        ExitReason::Denied,
        "the API denies access",
        "ask the Mixer's operator for access",
    )
}

fn stranger(name: &'static str, found: String) -> DoctorCheck {
    DoctorCheck::fail(
        name,
        ExitReason::Unavailable,
        found,
        "set --api-url (PLATFORM_API_URL) to where platform-mixer listens",
    )
}

/// The Mixer's clock, told in whole seconds between two looks at ours.
fn clocks(theirs: Option<Timestamp>, before: Timestamp, after: Timestamp) -> DoctorCheck {
    let Some(theirs) = theirs else {
        return DoctorCheck::skipped("clock", "the answer has no date");
    };
    let second = Duration::from_secs(1);
    // How far ahead of ours it is at least, and how far behind.
    let (ahead, behind) = (theirs.since(after), before.since(theirs.plus(second)));
    let (off, word) = if ahead > behind {
        (ahead, "ahead of")
    } else {
        (behind, "behind")
    };
    let fix = "let a time service (NTP) set both clocks";
    let shown = HumanDuration::from(Duration::from_secs(off.as_secs().max(1)));
    let found = format!("the Mixer's clock is {shown} {word} this one");
    if off < CLOSE {
        DoctorCheck::ok(
            "clock",
            format!("the Mixer's clock agrees within {}", HumanDuration::from(CLOSE)),
        )
    } else if off < WRONG {
        DoctorCheck::warn("clock", found, fix)
    } else {
        DoctorCheck::fail("clock", ExitReason::Unavailable, found, fix)
    }
}

fn version(client: &ApiClient) -> DoctorCheck {
    let body = match client.get_any_status("/version") {
        Ok(ApiResponse { status: 401 | 403, .. }) => return denied("version"),
        Ok(ApiResponse {
            status: 200,
            body: Ok(body),
            ..
        }) => body,
        Ok(heard) => return stranger("version", format!("/version answers {}", heard.status)),
        Err(error) => return DoctorCheck::failed("version", ExitReason::Unavailable, &error.to_string()),
    };
    let part = |key: &str| body.get(key).and_then(Value::as_str).unwrap_or_default();
    compared(part("name"), part("version"), env!("CARGO_PKG_VERSION"))
}

fn compared(name: &str, theirs: &str, ours: &str) -> DoctorCheck {
    if name != "platform-mixer" {
        return stranger("version", format!("{name:?} answers there, not a Mixer"));
    }
    if theirs == ours {
        return DoctorCheck::ok("version", format!("this program and the Mixer are {ours}"));
    }
    let found = format!("this program is {ours}, the Mixer is {theirs}");
    DoctorCheck::warn("version", found, "install one version on both")
}

/// The bus, as the agent would use it.
pub(super) fn bus(rack: &RackConfig, is_admitted: bool) -> DoctorCheck {
    let options = match ::rack::bus_options(rack, &chassis::os_entropy()) {
        Ok(options) => BusOptions {
            name: "platform doctor".to_owned(),
            ..options
        },
        Err(error) => return DoctorCheck::failed("bus", error.exit(), &error.to_string()),
    };
    let url = without_credentials(&options.url);
    let asked = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(ask(options, is_admitted)),
        Err(error) => {
            let message = format!("cannot start the runtime: {error}");
            return DoctorCheck::failed("bus", ExitReason::Unavailable, &message);
        }
    };
    match asked {
        Ok(BusAnswer::Streams) => DoctorCheck::ok(
            "bus",
            format!(
                "{url} accepts the connection and has the streams of domain {}",
                rack.snake.domain
            ),
        ),
        Ok(BusAnswer::Admission) => DoctorCheck::ok(
            "bus",
            format!("{url} lets this Rack ask for admission; it shows its streams to admitted Racks"),
        ),
        Err(chassis::Error::BusUnreachable { reason, .. }) if reason.contains(UNTRUSTED) => {
            let found = format!("this Rack does not trust the certificate of {url}: {reason}");
            // A bus that spoke no TLS when the Rack joined had no authority to name.
            let fix = match rack.snake.tls_ca {
                Some(_) => {
                    "set snake.tls_ca to the certificate of its authority: keys/bus-ca.pem in the Mixer's store.dir"
                }
                None => {
                    "`platform racks invite NAME` on the Mixer, with this Rack's name; here stop the Rack, `platform join INVITE`, and start it: \
                     an invite says whom to trust"
                }
            };
            DoctorCheck::fail("bus", ExitReason::Unavailable, found, fix)
        }
        Err(error) => DoctorCheck::failed("bus", error.exit(), &error.to_string()),
    }
}

/// What a bus lets us do.
enum BusAnswer {
    Streams,
    Admission,
}

/// Connects and asks for the streams, which a bus that knows its users shows to admitted Racks only.
async fn ask(options: BusOptions, is_admitted: bool) -> Result<BusAnswer, chassis::Error> {
    let stranger = ::rack::enrollment_options(&options);
    let bus = match BusConnection::connect(options).await {
        Err(chassis::Error::BusDenied { .. }) if !is_admitted => BusConnection::connect(stranger).await?,
        connected => connected?,
    };
    let is_shown = is_admitted || !bus.knows_users();
    let asked = if is_shown {
        bus.preflight().await
    } else {
        bus.check_greeting()
    };
    bus.close(FAREWELL).await;
    asked?;
    Ok(if is_shown {
        BusAnswer::Streams
    } else {
        BusAnswer::Admission
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::CheckOutcome;
    use super::*;

    #[test]
    fn clocks_are_compared_no_finer_than_the_mixer_tells_its_own() {
        let at = |millis: i64| Timestamp::from_micros(1_790_000_000_000_000 + millis * 1_000);
        let state = |theirs: i64| clocks(Some(at(theirs * 1_000)), at(10_200), at(10_700)).state;
        assert_eq!(state(10), CheckOutcome::Ok);
        assert_eq!(state(15), CheckOutcome::Ok, "4.3 s ahead");
        assert_eq!(state(16), CheckOutcome::Warn);
        assert_eq!(state(5), CheckOutcome::Ok, "4.2 s behind");
        assert_eq!(state(4), CheckOutcome::Warn, "5.2 s behind");
        assert_eq!(state(10 + 3_601), CheckOutcome::Fail(ExitReason::Unavailable));
        assert_eq!(state(10 - 3_602), CheckOutcome::Fail(ExitReason::Unavailable));
        let found = clocks(Some(at(70_700)), at(10_200), at(10_700)).found;
        assert_eq!(found, "the Mixer's clock is 1m ahead of this one");
        assert_eq!(clocks(None, at(0), at(0)).state, CheckOutcome::Skipped);
    }

    #[test]
    fn an_answer_is_a_ready_mixers_or_says_what_is_wrong() {
        let check = |status, body| {
            ready(
                ApiResponse {
                    status,
                    date: None,
                    body,
                },
                Duration::from_millis(3),
            )
        };
        assert_eq!(check(200, Ok(json!({ "ready": true }))).state, CheckOutcome::Ok);
        let starting = json!({ "ready": false, "checks": { "bus": { "ok": false, "reason": "no connection" }, "wal": { "ok": true } } });
        let starting = check(503, Ok(starting));
        assert_eq!(starting.state, CheckOutcome::Fail(ExitReason::Unavailable));
        assert_eq!(starting.found, "the Mixer is not ready: bus: no connection");
        assert_eq!(
            check(403, Ok(Value::Null)).state,
            CheckOutcome::Fail(ExitReason::Denied)
        );
        for (status, body) in [
            (200, Ok(json!({}))),
            (200, Err("html".to_owned())),
            (404, Ok(Value::Null)),
        ] {
            let check = check(status, body);
            assert!(
                check.found.contains("not as a Mixer does") && check.fix.contains("--api-url"),
                "{check:?}"
            );
        }
    }

    #[test]
    fn other_versions_are_a_warning_and_other_programs_a_failure() {
        assert_eq!(compared("platform-mixer", "0.1.0", "0.1.0").state, CheckOutcome::Ok);
        assert_eq!(compared("platform-mixer", "0.2.0", "0.1.0").state, CheckOutcome::Warn);
        assert_eq!(
            compared("nginx", "0.1.0", "0.1.0").state,
            CheckOutcome::Fail(ExitReason::Unavailable)
        );
    }
}
