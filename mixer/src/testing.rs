//! Shared test support: the real bus server, clocks, entropy, waiting.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use async_nats::{Client, ConnectOptions};
use model::{ByteSize, Clock, Entropy, Timestamp};
use tokio::sync::watch;

use crate::bus_server::{AclSnapshot, BusAuthorization, BusSettings, ManagedServer, ServerDeployment, StreamSettings};
use crate::quotas::{CallerPlaces, CallerQuotas, QuotaPolicy};

/// A clock that only moves when told to.
#[derive(Debug, Clone)]
pub(crate) struct Hand(Arc<AtomicI64>);

impl Hand {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_800_000_000_000_000)))
    }

    pub(crate) fn clock(&self) -> Clock {
        let hand = Arc::clone(&self.0);
        Clock::new(move || Timestamp::from_micros(hand.load(Ordering::SeqCst)))
    }

    pub(crate) fn forward(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap();
        self.0.fetch_add(micros, Ordering::SeqCst);
    }

    pub(crate) fn back(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap();
        self.0.fetch_sub(micros, Ordering::SeqCst);
    }
}

/// Entropy that is different at every call and the same in every run.
pub(crate) fn entropy() -> Entropy {
    let calls = AtomicU64::new(1);
    Entropy::new(move |bytes| {
        let mut x = calls.fetch_add(1, Ordering::SeqCst).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for byte in bytes {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            *byte = x.to_le_bytes()[3];
        }
    })
}

/// Quotas with these limits, and places for many.
pub(crate) fn quotas(defaults: CallerQuotas, clock: Clock) -> Arc<QuotaPolicy> {
    let places = CallerPlaces {
        followers: 100,
        taps: 16,
        sessions: 50,
        connections: 100,
        patience: Duration::from_millis(200),
    };
    QuotaPolicy::new(defaults, places, clock)
}

/// Quotas that nobody meets.
pub(crate) fn no_quotas() -> Arc<QuotaPolicy> {
    let defaults = CallerQuotas {
        queries: 1_000,
        ..CallerQuotas::default()
    };
    quotas(defaults, chassis::system_clock())
}

/// The pinned bus server; it is part of the tools that tests need.
pub(crate) fn nats_server() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin/nats-server");
    assert!(
        path.is_file(),
        "no nats-server at {}: run `make tools` first",
        path.display()
    );
    path.canonicalize().unwrap()
}

pub(crate) fn stream_settings() -> StreamSettings {
    StreamSettings {
        name: "flux-msg".to_owned(),
        subjects: ["flux.msg.>", "flux.gear.>", "platform.>"].map(str::to_owned).to_vec(),
        telemetry_max_age: Duration::from_secs(24 * 3600),
        max_store: ByteSize::mib(512),
        max_payload: ByteSize::mib(2),
    }
}

/// Users of a managed server, none of them a Rack.
pub(crate) fn bus_users() -> BusAuthorization {
    let (_, list) = watch::channel(AclSnapshot::default());
    let (applied, _) = watch::channel(0);
    BusAuthorization::new(&chassis::os_entropy(), list, applied).unwrap()
}

/// Where the Mixer of a store writes the operator's seed.
const OPERATOR_KEY: &str = "keys/bus-operator.nk";

/// A client with the rights of the Mixer, by the operator's seed in a store.
pub(crate) async fn operator(store: &Path, url: &str) -> Client {
    let seed = std::fs::read_to_string(store.join(OPERATOR_KEY)).unwrap();
    let options = ConnectOptions::with_nkey(seed.trim().to_owned());
    options.connect(url).await.unwrap()
}

/// A managed server on any free port.
pub(crate) fn managed(store: &Path) -> ManagedServer {
    ManagedServer {
        name: "test-mixer".to_owned(),
        host: "127.0.0.1".to_owned(),
        port: 0,
        advertised: None,
        store_dir: store.join("js"),
        durable: false,
        max_payload: ByteSize::mib(2),
        binary: Some(nats_server()),
        sha256: None,
        certificates: None,
        users: bus_users(),
        operator_key: store.join(OPERATOR_KEY),
    }
}

pub(crate) fn bus_settings(managed: ManagedServer) -> BusSettings {
    BusSettings {
        server: ServerDeployment::Managed(Box::new(managed)),
        domain: "flux".to_owned(),
        connect_timeout: Duration::from_secs(5),
        streams: stream_settings(),
    }
}

/// Waits until `look` finds something, at most a minute.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, look: impl FnMut() -> F) -> T {
    eventually_within(Duration::from_secs(60), what, look).await
}

/// The same for what takes longer on a busy machine.
pub(crate) async fn eventually_within<T, F: Future<Output = Option<T>>>(
    within: Duration,
    what: &str,
    mut look: impl FnMut() -> F,
) -> T {
    let deadline = tokio::time::Instant::now() + within;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(tokio::time::Instant::now() < deadline, "never happened: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
