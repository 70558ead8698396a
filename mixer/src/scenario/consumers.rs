//! The durable consumers of a scenario's wires.
//!
//! # Invariants
//!
//! - A consumer is there before any Rack is told of its wire, so no message is sent before somebody is known to wait for it.
//! - A consumer that exists is left as it is but for [`AT_ONCE`] and [`ACK_WAIT`]: it knows what its Rack has. It stays however long its Rack is away,
//!   as long as the active scenario or one before it has its wire; where one of these cannot be read, all stay.
//! - One that was lost is made anew from where its wire began (the registry knows): its Rack passes over what it has taken by the
//!   numbers of the messages. Until then nothing that it wants leaves the stream ([`super::spent`]), so a wire that no scenario has
//!   and that has no consumer is forgotten.
//! - At the start, after every reconnect and every [`LOOK`] they are looked for again: the bus may have lost its store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, Info, pull};
use async_nats::jetstream::stream::Stream;
use chassis::bus::BusState;
use futures::TryStreamExt as _;
use tokio::sync::Mutex;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::courier::{CourierParts, PushError};
use super::part::{Flow, WIRE};
use crate::bus_server::{Bus, Reconnects};
use crate::registry::{Registry, WireStart};

/// Messages of a wire that may be delivered and not acknowledged: more than an inlet takes.
const AT_ONCE: i64 = 8192;
/// How long the bus waits before it delivers a message again by itself. An inlet resets its consumer when it begins, and never waits for
/// that.
const ACK_WAIT: Duration = Duration::from_secs(24 * 3600);
/// How often all are looked for.
const LOOK: Duration = Duration::from_secs(60);
/// How long a consumer stays that no scenario wants.
const GRACE: Duration = Duration::from_secs(3600);

/// See the module.
#[derive(Debug)]
pub(crate) struct Consumers {
    stream: String,
    registry: Arc<Registry>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// The ones that are there.
    made: BTreeSet<String>,
    /// Since when nobody wants one.
    unwanted: HashMap<String, Instant>,
}

/// The wires that some scenario wants, by their consumers, and whether there are no others: a scenario may not be readable.
pub(super) type Wanted = (BTreeMap<String, Flow>, bool);

impl Consumers {
    /// Those on the stream of business messages.
    pub(crate) fn new(stream: String, registry: Arc<Registry>) -> Self {
        Self {
            stream,
            registry,
            seen: Mutex::default(),
        }
    }

    /// Makes those that are not there.
    pub(super) async fn ensure(&self, bus: &Bus, flows: Vec<Flow>) -> Result<(), String> {
        let mut seen = self.seen.lock().await;
        if flows.iter().all(|flow| seen.made.contains(&flow.consumer)) {
            return Ok(());
        }
        let stream = self.stream(bus).await?;
        seen.made = there(&stream).await?;
        self.make(&stream, flows, &mut seen.made).await
    }

    /// Looks which are there, makes those that are not, those of `wanted` as well that were lost, and ends those that are not of
    /// `wanted` for long.
    async fn look_after(
        &self,
        bus: &Bus,
        flows: Vec<Flow>,
        wanted: impl FnOnce() -> Result<Wanted, String>,
    ) -> Result<(), String> {
        let mut seen = self.seen.lock().await;
        let stream = self.stream(bus).await?;
        seen.made = there(&stream).await?;
        // Also of those that an older program made, which did not say whose they are.
        self.starts(&stream, &flows).await.map_err(|error| error.to_string())?;
        self.make(&stream, flows, &mut seen.made).await?;
        // Asked while nobody can make another one.
        let (wanted, is_whole) = wanted()?;
        let known = self.registry.wires().map_err(|error| error.to_string())?;
        let lost = wanted.values().filter(|flow| known.contains_key(&flow.consumer));
        self.make(&stream, lost.cloned().collect(), &mut seen.made).await?;
        let Seen { made, unwanted } = &mut *seen;
        if !is_whole {
            unwanted.clear();
            return Ok(());
        }
        for name in known
            .into_keys()
            .filter(|name| !made.contains(name) && !wanted.contains_key(name))
        {
            self.forget(name).await?;
        }
        unwanted.retain(|name, _| made.contains(name) && !wanted.contains_key(name));
        for name in made.iter().filter(|name| !wanted.contains_key(*name)) {
            unwanted.entry(name.clone()).or_insert_with(Instant::now);
        }
        let over: Vec<String> = unwanted
            .iter()
            .filter(|(_, since)| since.elapsed() >= GRACE)
            .map(|(name, _)| name.clone())
            .collect();
        for name in over {
            stream
                .delete_consumer(&name)
                .await
                .map_err(|error| format!("consumer {name}: {error}"))?;
            made.remove(&name);
            unwanted.remove(&name);
            tracing::info!(
                consumer = name,
                "no scenario has its wire any more: the consumer is gone"
            );
            self.forget(name).await?;
        }
        Ok(())
    }

    async fn forget(&self, wire: String) -> Result<(), String> {
        let gone = self.registry.commit(move |change| change.forget_wire(&wire)).await;
        gone.map_err(|error| error.to_string())
    }

    async fn stream(&self, bus: &Bus) -> Result<Stream, String> {
        let stream = bus.jetstream().get_stream(&self.stream).await;
        stream.map_err(|error| format!("stream {}: {error}", self.stream))
    }

    async fn make(&self, stream: &Stream, flows: Vec<Flow>, made: &mut BTreeSet<String>) -> Result<(), String> {
        let mut missing = flows;
        missing.retain(|flow| !made.contains(&flow.consumer));
        if missing.is_empty() {
            return Ok(());
        }
        let starts = self.starts(stream, &missing).await.map_err(|error| error.to_string())?;
        for flow in missing {
            let name = flow.consumer.clone();
            let start = starts.get(&name).map_or(1, |start| start.sequence);
            stream
                .create_consumer(config(flow, start))
                .await
                .map_err(|error| format!("consumer {name}: {error}"))?;
            made.insert(name);
        }
        Ok(())
    }

    /// Where these wires begin: a new one behind all that is there now, one that is known where it began, and on another stream with
    /// its first message.
    async fn starts(
        &self,
        stream: &Stream,
        flows: &[Flow],
    ) -> Result<HashMap<String, WireStart>, crate::registry::RegistryError> {
        let info = stream.cached_info();
        let here = WireStart::life(info.created.unix_timestamp_nanos());
        let known = self.registry.wires()?;
        let (mut starts, mut news) = (HashMap::new(), Vec::new());
        for flow in flows {
            let known = known.get(&flow.consumer);
            let sequence = match known {
                None => info.state.last_sequence + 1,
                Some(known) if known.stream == here => known.sequence,
                Some(_) => 1,
            };
            let start = WireStart {
                stream: here,
                sequence,
                rack: Some(flow.rack.clone()),
            };
            if known != Some(&start) {
                news.push((flow.consumer.clone(), start.clone()));
            }
            starts.insert(flow.consumer.clone(), start);
        }
        if !news.is_empty() {
            let note = move |change: &crate::registry::Change<'_>| {
                news.iter().try_for_each(|(name, start)| change.put_wire(name, start))
            };
            self.registry.commit(note).await?;
        }
        Ok(starts)
    }
}

/// The wires' consumers that exist, after their limits were brought in line with ours.
async fn there(stream: &Stream) -> Result<BTreeSet<String>, String> {
    let infos: Vec<Info> = stream
        .consumers()
        .try_collect()
        .await
        .map_err(|error| format!("consumers: {error}"))?;
    let mut names = BTreeSet::new();
    for Info { name, mut config, .. } in infos.into_iter().filter(|info| info.name.starts_with(WIRE)) {
        if config.ack_policy != AckPolicy::All {
            // Somebody else's, or an older program's: it cannot be changed. Another one is made from where the wire began.
            let deleted = stream.delete_consumer(&name).await;
            deleted.map_err(|error| format!("consumer {name}: {error}"))?;
            continue;
        }
        if (config.max_ack_pending, config.ack_wait) != (AT_ONCE, ACK_WAIT) {
            (config.max_ack_pending, config.ack_wait) = (AT_ONCE, ACK_WAIT);
            let corrected = stream.update_consumer(config).await;
            corrected.map_err(|error| format!("consumer {name}: {error}"))?;
        }
        names.insert(name);
    }
    Ok(names)
}

fn config(flow: Flow, start: u64) -> pull::Config {
    pull::Config {
        durable_name: Some(flow.consumer),
        description: Some(flow.description),
        filter_subject: flow.filter,
        deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: start },
        ack_policy: AckPolicy::All,
        ack_wait: ACK_WAIT,
        max_deliver: -1,
        max_ack_pending: AT_ONCE,
        ..Default::default()
    }
}

/// Looks after what the active scenario needs until stopped.
pub(crate) async fn keep(parts: Arc<CourierParts>, stop: CancellationToken) {
    let mut reconnects = Reconnects::unsettled(&parts.bus);
    let mut look = tokio::time::interval_at(Instant::now() + LOOK, LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            goes_on = reconnects.next(&stop) => if !goes_on {
                return;
            },
            _ = look.tick() => if *parts.bus.state().borrow() != BusState::Connected {
                continue;
            },
        }
        match look_after(&parts).await {
            Ok(()) => reconnects.settle(),
            Err(reason) => tracing::warn!(%reason, "the wires of the scenario have no consumers yet; trying again"),
        }
    }
}

async fn look_after(parts: &Arc<CourierParts>) -> Result<(), String> {
    let flows = match parts.active_flows() {
        Ok(flows) => flows,
        // What it had is known, and left as it is.
        Err(PushError::Stored(_)) => Vec::new(),
        Err(error) => return Err(error.to_string()),
    };
    // Read before anybody has to wait for it.
    let parts_of = Arc::clone(parts);
    let read = tokio::task::spawn_blocking(move || parts_of.library.shelf(&parts_of.registry).map(drop));
    read.await
        .map_err(|error| error.to_string())?
        .map_err(|error| error.to_string())?;
    let wanted = || parts.wanted_flows().map_err(|error| error.to_string());
    parts.consumers.look_after(&parts.bus, flows, wanted).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use async_nats::jetstream::consumer::PullConsumer;

    use super::super::part;
    use super::*;
    use crate::bus_server::BusServer;
    use crate::tasks::failures;
    use crate::testing::{bus_settings, managed};

    /// The wire from rack-a to this Rack.
    fn flow(to: &str) -> Flow {
        let yaml = format!(
            "meta: {{ name: plant, version: '1' }}\nracks: [ {{ name: rack-a }}, {{ name: {to} }} ]\ngears:\n  \
             - {{ name: gen, type: generator, deploy: rack-a }}\n  - {{ name: sink, type: log_sink, deploy: {to} }}\nwires:\n  \
             - {{ from: gen.out, to: sink.in }}\n"
        );
        let scenario = model::scenario::parse(&yaml, rack::manifests()).unwrap();
        part::flows(&scenario, std::iter::empty()).remove(0)
    }

    /// A bus server and a registry.
    async fn ground() -> (BusServer, Arc<Registry>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let server = BusServer::start(bus_settings(managed(folder.path())), &failures().0)
            .await
            .unwrap();
        let registry = Registry::open(&folder.path().join("registry.redb")).unwrap();
        (server, Arc::new(registry), folder)
    }

    #[tokio::test]
    async fn a_lost_consumer_of_a_former_scenario_is_made_anew_and_a_lost_one_of_none_is_forgotten() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let consumers = Consumers::new("flux-msg".to_owned(), Arc::clone(&registry));
        let all: Vec<Flow> = ["active", "former", "gone"].map(flow).into();
        consumers.ensure(bus, all.clone()).await.unwrap();
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        for flow in &all {
            stream.delete_consumer(&flow.consumer).await.unwrap();
            let sent = bus.jetstream().publish("flux.msg.rack-a.gen.out", "".into()).await;
            sent.unwrap().await.unwrap();
        }
        let wanted: BTreeMap<String, Flow> = [flow("active"), flow("former"), flow("never-made")]
            .map(|flow| (flow.consumer.clone(), flow))
            .into();
        consumers
            .look_after(bus, vec![flow("active")], || Ok((wanted, true)))
            .await
            .unwrap();
        let made: BTreeSet<String> = ["active", "former"].map(|to| flow(to).consumer).into();
        assert_eq!(there(&stream).await.unwrap(), made);
        assert_eq!(registry.wires().unwrap().into_keys().collect::<BTreeSet<_>>(), made);
        let former: PullConsumer = stream.get_consumer(&flow("former").consumer).await.unwrap();
        assert_eq!(former.cached_info().num_pending, 3, "from where it began");
        server.close().await;
    }

    #[tokio::test]
    async fn where_a_scenario_cannot_be_read_lost_consumers_of_others_are_made_and_none_is_forgotten() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let consumers = Consumers::new("flux-msg".to_owned(), Arc::clone(&registry));
        let all: Vec<Flow> = ["readable", "unreadable"].map(flow).into();
        consumers.ensure(bus, all.clone()).await.unwrap();
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        for flow in &all {
            stream.delete_consumer(&flow.consumer).await.unwrap();
        }
        let wanted = BTreeMap::from([(flow("readable").consumer, flow("readable"))]);
        let looked = consumers.look_after(bus, Vec::new(), || Ok((wanted, false)));
        looked.await.unwrap();
        assert_eq!(there(&stream).await.unwrap(), [flow("readable").consumer].into());
        let known: BTreeSet<String> = registry.wires().unwrap().into_keys().collect();
        assert_eq!(known, all.into_iter().map(|flow| flow.consumer).collect());
        server.close().await;
    }

    #[tokio::test]
    async fn a_consumer_with_other_limits_is_updated_and_keeps_its_ack_floor() {
        let (server, registry, _folder) = ground().await;
        let bus = server.bus();
        let stream = bus.jetstream().get_stream("flux-msg").await.unwrap();
        let flow = flow("rack-b");
        let before = pull::Config {
            max_ack_pending: 512,
            ..config(flow.clone(), 1)
        };
        let mut before = stream.create_consumer(before).await.unwrap();
        for _ in 0..2 {
            let sent = bus.jetstream().publish("flux.msg.rack-a.gen.out", "".into()).await;
            sent.unwrap().await.unwrap();
        }
        let mut taken = before.fetch().max_messages(1).messages().await.unwrap();
        taken.try_next().await.unwrap().unwrap().double_ack().await.unwrap();
        let consumers = Consumers::new("flux-msg".to_owned(), registry);
        consumers.ensure(bus, vec![flow]).await.unwrap();
        let after = before.info().await.unwrap();
        assert_eq!(
            (after.config.max_ack_pending, after.ack_floor.stream_sequence),
            (AT_ONCE, 1)
        );
        assert_eq!(after.num_pending, 1);
        server.close().await;
    }
}
