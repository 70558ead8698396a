//! Where Racks ask: the request/reply subjects of enrolment and heartbeats.
//!
//! # Invariants
//!
//! - [`Desk::start`] returns after the subscriptions stand: a Rack that connects later is heard.
//! - At most [`AT_ONCE`] requests are worked on; the rest wait in the subscription, which is bounded too.

use std::sync::Arc;

use async_nats::{Client, Message};
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::select_all;
use model::control::{EnrollReply, RackState};
use model::{signed, subject};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::enrollment::Enrollment;
use crate::events::Events;
use crate::heartbeat::Heartbeats;
use crate::passes::Passes;
use crate::presence::Presence;
use crate::scenario::Courier;
use crate::tasks::{Fatal, Task};

const AT_ONCE: usize = 64;

/// What answers need.
#[derive(Debug)]
pub(crate) struct Clerks {
    pub(crate) enrollment: Enrollment,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) presence: Arc<Presence>,
    pub(crate) courier: Courier,
    pub(crate) events: Events,
    pub(crate) passes: Passes,
}

/// The open desk.
#[derive(Debug)]
pub(crate) struct Desk {
    task: Task,
}

impl Desk {
    /// Subscribes, and answers until closed.
    pub(crate) async fn start(client: Client, clerks: Clerks, fatal: &Fatal) -> Result<Self, String> {
        let mut subscriptions = Vec::new();
        for subject in [subject::HELLO, subject::ENROLL, subject::HEARTBEAT] {
            let subscription = client.subscribe(subject).await;
            subscriptions.push(subscription.map_err(|error| format!("cannot listen on {subject}: {error}"))?);
        }
        // The server has seen the subscriptions once it answers a flush.
        client
            .flush()
            .await
            .map_err(|error| format!("cannot listen for Racks: {error}"))?;
        let clerks = Arc::new(clerks);
        let task = Task::spawn("rack desk", fatal, move |stop| async move {
            serve(select_all(subscriptions), &client, &clerks, stop).await;
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
    clerks: &Arc<Clerks>,
    stop: CancellationToken,
) {
    let mut working = JoinSet::new();
    loop {
        let room = working.len() < AT_ONCE;
        tokio::select! {
            () = stop.cancelled() => break,
            Some(done) = working.join_next() => note(done),
            request = requests.next(), if room => match request {
                Some(request) => {
                    let (client, clerks) = (client.clone(), Arc::clone(clerks));
                    working.spawn(async move { clerks.handle(request, &client).await });
                }
                None => break,
            },
        }
    }
    while let Some(done) = working.join_next().await {
        note(done);
    }
}

fn note(done: Result<(), tokio::task::JoinError>) {
    if let Err(error) = done {
        tracing::error!(%error, "answering a rack failed");
    }
}

impl Clerks {
    async fn handle(self: Arc<Self>, request: Message, client: &Client) {
        let Some(to) = request.reply else { return };
        let reply = match request.subject.as_str() {
            subject::HELLO => encode(&self.enrollment.hello(&request.payload)),
            subject::ENROLL => Arc::clone(&self).enroll(request.payload).await,
            _ => self.heartbeat(&request.payload),
        };
        let Some(reply) = reply else { return };
        if let Err(error) = client.publish(to, reply).await {
            tracing::warn!(%error, "a rack's answer was not sent");
        }
    }

    async fn enroll(self: Arc<Self>, body: Bytes) -> Option<Bytes> {
        let desk = Arc::clone(&self);
        let enrolled = tokio::task::spawn_blocking(move || desk.enrollment.enroll(&body)).await;
        let enrolled = match enrolled {
            Ok(enrolled) => enrolled,
            Err(error) => {
                tracing::error!(%error, "an enrolment was cut off");
                return None;
            }
        };
        if let Some(rack) = &enrolled.rack {
            // Before the answer: the Rack comes as itself then.
            self.passes.refresh().await;
            self.presence.greeted(rack.entity_id, rack.last_seen);
            for news in &enrolled.news {
                let what = match rack.state {
                    RackState::Pending => "rack waits for approval: `platform racks approve` adopts it",
                    _ => "rack news",
                };
                tracing::info!(kind = news.kind, rack = %rack.name, entity_id = %rack.entity_id, host = %rack.host, "{what}");
                self.events.tell(news).await;
            }
            if matches!(enrolled.reply, EnrollReply::Adopted { .. }) {
                self.courier.deliver(rack.entity_id);
            }
        }
        encode(&enrolled.reply)
    }

    fn heartbeat(&self, body: &[u8]) -> Option<Bytes> {
        Some(self.heartbeats.answer(body).into())
    }
}

fn encode<T: Serialize>(reply: &T) -> Option<Bytes> {
    match signed::encode(reply) {
        Ok(bytes) => Some(bytes.into()),
        Err(error) => {
            tracing::error!(%error, "an answer cannot be encoded");
            None
        }
    }
}
