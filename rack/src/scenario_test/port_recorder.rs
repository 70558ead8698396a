//! What passes the ports that are watched.

use std::collections::BTreeMap;

use model::message::Message;
use model::scenario_test::{ExpectedMessages, ScenarioTestPort};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{MOST_SEEN, MOST_SEEN_BYTES, ScenarioTestError};
use crate::inbox::GearInbox;

/// Takes what comes into some inboxes.
pub(super) struct PortRecorder {
    seen: watch::Sender<SeenMessages>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

/// The messages of each port, in their order.
pub(super) type SeenByPort = BTreeMap<ScenarioTestPort, Vec<Message>>;

#[derive(Debug, Default)]
pub(super) struct SeenMessages {
    by_port: SeenByPort,
    bytes: usize,
    /// A port that more has passed than is recorded.
    pub(super) over: Option<ScenarioTestPort>,
}

impl SeenMessages {
    pub(super) fn add(&mut self, port: &ScenarioTestPort, message: Message) {
        let messages = self.by_port.entry(port.clone()).or_default();
        self.bytes += message.size();
        if messages.len() < MOST_SEEN && self.bytes <= MOST_SEEN_BYTES {
            messages.push(message);
        } else {
            self.over = Some(port.clone());
        }
    }

    fn is_enough(&self, expected: &ExpectedMessages) -> bool {
        self.by_port.get(&expected.port).map_or(0, Vec::len) >= expected.least()
    }
}

impl PortRecorder {
    /// Begins; each inbox has the ports whose messages come there.
    pub(super) fn start(watched: impl Iterator<Item = (GearInbox, Vec<ScenarioTestPort>)>) -> Self {
        let seen = watch::Sender::default();
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        for (inbox, ports) in watched {
            tasks.spawn(record(inbox, ports, seen.clone(), stop.clone()));
        }
        Self { seen, stop, tasks }
    }

    /// Waits until as much has passed as is expected, or more than is recorded.
    pub(super) async fn wait_for(&self, expected: &[ExpectedMessages]) {
        let is_enough = |seen: &SeenMessages| seen.over.is_some() || expected.iter().all(|one| seen.is_enough(one));
        // The sender is this one.
        self.seen.subscribe().wait_for(is_enough).await.ok();
    }

    /// Takes what still waits, and gives all of it back.
    pub(super) async fn finish(mut self) -> Result<SeenByPort, ScenarioTestError> {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        let seen = self.seen.send_replace(SeenMessages::default());
        match seen.over {
            Some(port) => Err(ScenarioTestError::TooMany(port)),
            None => Ok(seen.by_port),
        }
    }
}

async fn record(
    inbox: GearInbox,
    ports: Vec<ScenarioTestPort>,
    seen: watch::Sender<SeenMessages>,
    stop: CancellationToken,
) {
    let mut arrivals = inbox.receiver.lock().await;
    loop {
        let arrival = tokio::select! {
            biased;
            arrival = arrivals.recv() => arrival,
            () = stop.cancelled() => return,
        };
        let Some(arrival) = arrival else { return };
        let port = ports.iter().find(|port| port.port.as_str() == arrival.port);
        if let (Some(port), Ok(message)) = (port, arrival.message) {
            seen.send_modify(|seen| seen.add(port, message));
        }
    }
}
