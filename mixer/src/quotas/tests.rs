//! Quotas on a clock that tests move.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use model::ByteSize;

use super::*;
use crate::testing::{Hand, quotas};

#[test]
fn a_token_has_ten_seconds_of_requests_at_once_and_then_its_rate() {
    let clock = Hand::new();
    let policy = quotas(
        CallerQuotas {
            requests: 2,
            ..CallerQuotas::default()
        },
        clock.clock(),
    );
    let usual = policy.of_token("usual", &QuotaOverrides::default());
    let own = policy.of_token(
        "own",
        &QuotaOverrides {
            requests: Some(0),
            ..QuotaOverrides::default()
        },
    );
    let taken = |usage: &CallerUsage| (0..1_000).filter(|_| usage.admit_request().is_ok()).count();
    assert_eq!(
        (taken(&usual), taken(&own), taken(&policy.of_local_user())),
        (20, 1_000, 1_000)
    );
    let refused = usual.admit_request().unwrap_err();
    assert_eq!(refused.retry_seconds().get(), 1, "rounded up");
    let text = refused.to_string();
    assert!(
        text.contains("usual") && text.contains("quotas.requests") && text.contains("2 a second"),
        "{text}"
    );
    clock.forward(Duration::from_secs(3));
    assert_eq!(taken(&usual), 6);
    assert_eq!(policy.refusals(), 1_000 - 20 + 1 + 1_000 - 6);
}

#[test]
fn a_body_beyond_the_rate_is_paid_before_the_next_and_a_day_has_its_own_bound() {
    let clock = Hand::new();
    let defaults = CallerQuotas {
        ingest: ByteSize::bytes(100),
        stored: ByteSize::bytes(5_000),
        ..CallerQuotas::default()
    };
    let policy = quotas(defaults, clock.clock());
    let usage = policy.of_token("sender", &QuotaOverrides::default());
    usage.admit_ingest().unwrap();
    usage.count_ingest(3_000);
    usage.count_stored(3_000);
    assert_eq!(
        usage.admit_ingest().unwrap_err().retry_seconds().get(),
        21,
        "it had 1000"
    );
    clock.forward(Duration::from_secs(21));
    usage.admit_ingest().unwrap();
    usage.count_stored(2_000);
    let refused = usage.admit_ingest().unwrap_err();
    assert!(refused.to_string().contains("quotas.stored_mb"), "{refused}");
    clock.forward(Duration::from_secs(refused.retry_seconds().get().into()));
    usage.admit_ingest().unwrap();
    assert_eq!(usage.stored_today().bytes, 0);
}

#[test]
fn a_clock_that_is_set_back_and_forth_keeps_nobody_out() {
    let clock = Hand::new();
    let policy = quotas(
        CallerQuotas {
            requests: 1,
            ..CallerQuotas::default()
        },
        clock.clock(),
    );
    let usage = policy.of_token("a", &QuotaOverrides::default());
    while usage.admit_request().is_ok() {}
    clock.back(Duration::from_secs(86_400));
    assert!(usage.admit_request().is_err());
    clock.forward(Duration::from_secs(1));
    assert!(usage.admit_request().is_ok(), "a second has passed");
}

#[tokio::test(start_paused = true)]
async fn one_caller_leaves_memory_for_bodies_to_others() {
    const SMALL: u64 = 1 << 17;
    let all = engine::InboundMemory::with_each(1 << 20, 1 << 19);
    let policy = quotas(CallerQuotas::default(), Hand::new().clock());
    let (greedy, other) = (policy.of_local_user(), policy.of_local_user());
    let mut held = Vec::new();
    let hold = async |usage: &CallerUsage| {
        let (mut own, mut shared) = (usage.bodies(&all).room(), all.room());
        let wait = async {
            own.grow(SMALL).await;
            shared.grow(SMALL).await;
        };
        let taken = tokio::time::timeout(Duration::from_secs(5), wait).await;
        taken.is_ok().then_some((own, shared))
    };
    while let Some(room) = hold(&greedy).await {
        held.push(room);
    }
    assert_eq!(held.len(), 4, "three eighths, and a body that grows to half of it");
    assert!(hold(&other).await.is_some(), "there is room for others");
    held.clear();
    assert!(hold(&greedy).await.is_some());
}
