//! RPC server for Racks: the request/reply subjects of enrolment and heartbeats.
//!
//! # Invariants
//!
//! - [`AgentRpcServer::start`] returns after the subscriptions stand: a Rack that connects later is heard.
//! - Every answer, a refusal too, is signed by the cluster and names its question ([`model::signed_reply`]). Those of handshakes are sealed for
//!   who asked ([`chassis::bus::sealed_reply`]).
//! - At most [`AT_ONCE`] requests are worked on, and [`WAITING`] wait: for that, or for the bus to follow its list of users, which one
//!   reading does for all of them. The rest wait in the subscription, which is bounded too.
//! - The Mixer may publish on every subject, and who asks names the one of the answer: only an inbox of the Mixer's account is answered, and
//!   what the server says instead of the inbox of another account, which leads back to who asked ([`BusAcl::may_be_answered`]). Any other
//!   request is not even looked at.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::{Client, Message};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::select;
use model::control::{EnrollReply, HelloReply, RackState};
use model::subject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::bus_server::MixerBus;
use crate::cluster::Cluster;
use crate::enrollment::EnrollmentService;
use crate::events::EventPublisher;
use crate::heartbeat::HeartbeatHandler;
use crate::liveness::LivenessTracker;
use crate::rejection_counters::RejectionCounters;
use crate::scenario::{BusAcl, ScenarioRollout};
use crate::tasks::{FailureReporter, SupervisedTask};

const AT_ONCE: usize = 64;
const WAITING: usize = 4096;
/// How often it is said at most that requests are not answered.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// The longest subject of an answer that is logged.
const MAX_SAID: usize = 120;

/// What answers need.
#[derive(Debug)]
pub(crate) struct RpcServices {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) enrollment: EnrollmentService,
    pub(crate) heartbeats: HeartbeatHandler,
    pub(crate) liveness: Arc<LivenessTracker>,
    pub(crate) rollout: ScenarioRollout,
    pub(crate) events: EventPublisher,
    pub(crate) acl: BusAcl,
    /// Which may want a credential of a Rack.
    pub(crate) bus: MixerBus,
    pub(crate) elsewhere: MisroutedReplies,
    pub(crate) rejections: Arc<RejectionCounters>,
}

/// Requests whose answer should have gone elsewhere than to who asked.
#[derive(Debug, Default)]
pub(crate) struct MisroutedReplies(Mutex<MisrouteLogLimiter>);

#[derive(Debug, Default)]
struct MisrouteLogLimiter {
    requests: u64,
    said: Option<Instant>,
}

impl MisroutedReplies {
    /// One more. How many there were since it was last said, if it is time to say so.
    fn count(&self, now: Instant) -> Option<u64> {
        let mut unsaid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        unsaid.requests += 1;
        if unsaid.said.is_some_and(|said| now < said + SAY_EVERY) {
            return None;
        }
        unsaid.said = Some(now);
        Some(std::mem::take(&mut unsaid.requests))
    }
}

/// The open server.
#[derive(Debug)]
pub(crate) struct AgentRpcServer {
    task: SupervisedTask,
}

impl AgentRpcServer {
    /// Subscribes, and answers until closed.
    pub(crate) async fn start(client: Client, services: RpcServices, fatal: &FailureReporter) -> Result<Self, String> {
        let [hello, enroll, heartbeats] = [subject::HELLO, subject::ENROLL, subject::HEARTBEAT].map(|subject| {
            let client = client.clone();
            async move {
                let subscription = client.subscribe(subject).await;
                subscription.map_err(|error| format!("cannot listen on {subject}: {error}"))
            }
        });
        let (handshakes, heartbeats) = (select(hello.await?, enroll.await?), heartbeats.await?);
        // The server has seen the subscriptions once it answers a flush.
        client
            .flush()
            .await
            .map_err(|error| format!("cannot listen for Racks: {error}"))?;
        let services = Arc::new(services);
        let task = SupervisedTask::spawn("agent RPC", fatal, move |stop| async move {
            // Anybody may begin a handshake, and no heartbeat waits behind it.
            tokio::join!(
                serve(handshakes, &client, &services, stop.clone()),
                serve(heartbeats, &client, &services, stop.clone())
            );
        });
        Ok(Self { task })
    }

    /// Answers what is being worked on, and stops.
    pub(crate) async fn close(self) {
        self.task.close().await;
    }
}

async fn serve(
    mut requests: impl futures::Stream<Item = Message> + Unpin,
    client: &Client,
    services: &Arc<RpcServices>,
    stop: CancellationToken,
) {
    let (mut working, slots) = (JoinSet::new(), Arc::new(Semaphore::new(AT_ONCE)));
    loop {
        let room = working.len() < WAITING;
        tokio::select! {
            () = stop.cancelled() => break,
            Some(done) = working.join_next() => note(done),
            request = requests.next(), if room => match request {
                Some(request) => {
                    let (client, services, slots) = (client.clone(), Arc::clone(services), Arc::clone(&slots));
                    working.spawn(async move {
                        if let Ok(slot) = slots.acquire_owned().await {
                            services.handle(request, &client, slot).await;
                        }
                    });
                }
                None => break,
            },
        }
    }
    // Who waits for a slot asks the next Mixer.
    slots.close();
    while let Some(done) = working.join_next().await {
        note(done);
    }
}

fn note(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done {
        tracing::error!(%error, "could not answer a Rack");
    }
}

impl RpcServices {
    async fn handle(self: Arc<Self>, request: Message, client: &Client, slot: OwnedSemaphorePermit) {
        let Some(to) = request.reply else { return };
        if !BusAcl::may_be_answered(&to) {
            match request.subject.as_str() {
                subject::HEARTBEAT => self.rejections.heartbeats.count_misrouted(),
                _ => self.rejections.handshakes.count_misrouted(),
            }
            if let Some(requests) = self.elsewhere.count(Instant::now()) {
                let to: String = to.chars().take(MAX_SAID).collect();
                tracing::warn!(
                    subject = %request.subject,
                    to,
                    requests,
                    "ignored requests whose reply subject is not the sender's inbox"
                );
            }
            return;
        }
        let reply = match request.subject.as_str() {
            subject::HELLO => self.hello(&request.payload),
            subject::ENROLL => Arc::clone(&self).enroll(request.payload, slot).await,
            _ => self.heartbeat(&request.payload),
        };
        let Some(reply) = reply else { return };
        if let Err(error) = client.publish(to, reply).await {
            tracing::warn!(%error, "could not send the reply to a Rack");
        }
    }

    fn hello(&self, body: &[u8]) -> Option<Bytes> {
        let reply = self.enrollment.hello(body);
        if let HelloReply::Refused(refusal) = &reply {
            self.rejections.handshakes.count_rejection(refusal.code);
        }
        self.answer_sealed(body, reply)
    }

    async fn enroll(self: Arc<Self>, body: Bytes, slot: OwnedSemaphorePermit) -> Option<Bytes> {
        let (server, question) = (Arc::clone(&self), body.clone());
        let enrolled = tokio::task::spawn_blocking(move || server.enrollment.enroll(&body)).await;
        let enrolled = match enrolled {
            Ok(enrolled) => enrolled,
            Err(error) => {
                tracing::error!(%error, "an enrolment was aborted");
                return None;
            }
        };
        drop(slot);
        if let EnrollReply::Refused(refusal) = &enrolled.reply {
            self.rejections.handshakes.count_rejection(refusal.code);
        }
        if let Some(rack) = &enrolled.rack {
            // Before the answer: the Rack comes as itself then.
            match enrolled.is_listed_anew {
                true => self.acl.refresh().await,
                false => self.acl.wait_applied().await,
            }
            if enrolled.left_wires {
                self.rollout.rewire();
            }
            self.liveness
                .record_handshake(rack.entity_id, rack.last_seen, rack.heard);
            for news in &enrolled.news {
                let what = match rack.state {
                    RackState::Pending => "rack waits for approval: `platform racks approve` adopts it",
                    _ => "rack news",
                };
                tracing::info!(kind = news.kind, rack = %rack.name, entity_id = %rack.entity_id, host = %rack.host, "{what}");
                self.events.publish(news).await;
            }
            if matches!(enrolled.reply, EnrollReply::Adopted { .. }) {
                self.rollout.deliver(rack.entity_id);
            }
        }
        let credential = enrolled
            .rack
            .and_then(|rack| self.bus.credential(&rack.entity_id, rack.bus_key.as_deref()?, None));
        self.answer_sealed(&question, enrolled.reply.with_bus_credential(credential))
    }

    fn heartbeat(&self, body: &[u8]) -> Option<Bytes> {
        self.answer(body, self.heartbeats.answer(body))
    }

    /// An answer in an inbox that strangers share.
    fn answer_sealed<T: Serialize + DeserializeOwned>(&self, question: &[u8], reply: T) -> Option<Bytes> {
        let answer = self.answer(question, reply)?;
        Some(self.enrollment.seal(question, answer.into()).into())
    }

    fn answer<T: Serialize + DeserializeOwned>(&self, question: &[u8], reply: T) -> Option<Bytes> {
        match self.cluster.answer(question, reply) {
            Ok(bytes) => Some(bytes.into()),
            Err(error) => {
                tracing::error!(%error, "an answer cannot be encoded");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_misrouted_requests_is_logged_once_a_minute_with_a_count() {
        let elsewhere = MisroutedReplies::default();
        let mut now = Instant::now();
        assert_eq!(elsewhere.count(now), Some(1), "at once");
        for _ in 0..1000 {
            assert_eq!(elsewhere.count(now), None);
        }
        now += SAY_EVERY;
        assert_eq!(elsewhere.count(now), Some(1001));
    }
}
