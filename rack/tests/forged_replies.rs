//! Somebody on a bus without credentials who answers a Rack's questions in place of the Mixer, as fast as he can: with what he made
//! himself, and with what the Mixer answered before.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod peer;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ed25519_dalek::SigningKey;
use futures::StreamExt as _;
use model::control::{EnrollReply, HeartbeatReply, HelloReply, RackRefusal, RackState, RefusalCode};
use model::{SignedPayload, SigningContext, signed, subject};
use parking_lot::Mutex;
use peer::{BusServer, Desk, Peer, agent, answered, close, until};
use rack::AgentStatus;

/// The Mixer answers after the forger.
const LATER: Duration = Duration::from_millis(30);

fn is_active(status: &AgentStatus) -> bool {
    status.identity.is_some() && status.state == Some(RackState::Active)
}

fn adopting() -> Desk {
    Desk {
        adopt: true,
        pause: LATER,
        ..Desk::default()
    }
}

/// What he has heard and done.
#[derive(Default)]
struct Seen {
    /// Everything that came into an inbox and is not his own.
    heard: Vec<Vec<u8>>,
    /// How many questions he answered, by their subject.
    answered: BTreeMap<String, usize>,
}

struct Forger {
    seen: Arc<Mutex<Seen>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Forger {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// That this Rack was removed, in every form that he can make.
fn removals(to: &async_nats::Message) -> Vec<Vec<u8>> {
    let key = SigningKey::from_bytes(&[66; 32]);
    let removed = RackRefusal {
        code: RefusalCode::Removed,
        reason: "forged".to_owned(),
    };
    let (hello, enroll) = (
        HelloReply::Refused(removed.clone()),
        EnrollReply::Refused(removed.clone()),
    );
    let beat = HeartbeatReply::Refused(removed);
    let commanded = SignedPayload::new(&beat, SigningContext::Command, &key).unwrap();
    vec![
        Vec::new(),
        signed::encode(&hello).unwrap(),
        signed::encode(&enroll).unwrap(),
        signed::encode(&beat).unwrap(),
        commanded.to_bytes().unwrap(),
        answered(&key, to, hello),
        answered(&key, to, enroll),
        answered(&key, to, beat),
    ]
}

impl Forger {
    /// Joins the bus. With `repeats` he answers with all that he has heard, else with refusals of his own.
    async fn start(bus: &BusServer, repeats: bool) -> Self {
        let client = async_nats::connect(bus.url()).await.unwrap();
        let mut questions = client.subscribe("flux.agent.*").await.unwrap();
        let mut answers = client.subscribe("_INBOX.>").await.unwrap();
        client.flush().await.unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let his = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    Some(question) = questions.next() => {
                        let all = if repeats { his.lock().heard.clone() } else { removals(&question) };
                        let to = question.reply.clone().unwrap();
                        for body in all {
                            client.publish(to.clone(), body.into()).await.unwrap();
                        }
                        client.flush().await.unwrap();
                        *his.lock().answered.entry(question.subject.to_string()).or_default() += 1;
                    }
                    Some(answer) = answers.next() => {
                        let (mut his, heard) = (his.lock(), answer.payload.to_vec());
                        if !his.heard.contains(&heard) {
                            his.heard.push(heard);
                        }
                    }
                }
            }
        });
        Self { seen, task }
    }

    /// How many questions he answered.
    fn count(&self, subject: &str) -> usize {
        self.seen.lock().answered.get(subject).copied().unwrap_or_default()
    }

    async fn answers(&self, subject: &str, more: usize) {
        self.has_answered(subject, self.count(subject) + more).await;
    }

    async fn has_answered(&self, subject: &str, wanted: usize) {
        until("he has answered", async || {
            (self.count(subject) >= wanted).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_mixer_can_tell_a_rack_that_it_was_removed() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let agent = agent(dir.path(), &bus.url(), &[]).await;
    agent.wait_for(is_active).await;
    let forger = Forger::start(&bus, false).await;
    // While the Mixer answers, too, and while it does not.
    forger.answers(subject::HEARTBEAT, 5).await;
    peer.desk.lock().silent = true;
    forger.answers(subject::HEARTBEAT, 3).await;
    assert!(is_active(&agent.status()));
    peer.desk.lock().silent = false;
    let before = peer.desk.lock().heartbeats.len();
    until("the Mixer is heard again", async || {
        (peer.desk.lock().heartbeats.len() > before + 3).then_some(())
    })
    .await;
    assert!(is_active(&agent.status()));
    assert_eq!(peer.desk.lock().transcripts.len(), 1, "it did not enrol again");
    // The Mixer itself is believed.
    peer.desk.lock().refuse = Some(RefusalCode::Removed);
    agent.wait_for(|status| status.state == Some(RackState::Removed)).await;
    close(agent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rack_that_is_known_comes_back_whatever_others_answer_to_its_handshake() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let peer = Peer::start(&bus, 1, adopting()).await;
    let first = agent(dir.path(), &bus.url(), &[]).await;
    first.wait_for(is_active).await;
    close(first).await;
    let forger = Forger::start(&bus, false).await;
    let second = agent(dir.path(), &bus.url(), &[]).await;
    second
        .wait_for(|status| status.state != Some(RackState::Removed) && is_active(status))
        .await;
    forger.answers(subject::HEARTBEAT, 2).await;
    let seen = forger.seen.lock().answered.clone();
    assert!(seen[subject::HELLO] >= 1 && seen[subject::ENROLL] >= 1, "{seen:?}");
    assert_eq!(peer.desk.lock().transcripts.len(), 2);
    assert!(is_active(&second.status()));
    close(second).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_were_heard_before_keep_no_rack_as_it_was() {
    let (bus, dir) = (BusServer::start().await, tempfile::tempdir().unwrap());
    let forger = Forger::start(&bus, true).await;
    let peer = Peer::start(&bus, 1, adopting()).await;
    let first = agent(dir.path(), &bus.url(), &[]).await;
    first.wait_for(is_active).await;
    forger.answers(subject::HEARTBEAT, 3).await;
    peer.desk.lock().state = Some(RackState::Suspended);
    first
        .wait_for(|status| status.state == Some(RackState::Suspended))
        .await;
    // He has both now, and repeats them first.
    forger.answers(subject::HEARTBEAT, 5).await;
    assert_eq!(first.status().state, Some(RackState::Suspended));
    peer.desk.lock().refuse = Some(RefusalCode::Removed);
    first.wait_for(|status| status.state == Some(RackState::Removed)).await;
    close(first).await;
    // Nor does what was answered to another handshake.
    let handshakes = forger.count(subject::HELLO);
    let second = agent(dir.path(), &bus.url(), &[]).await;
    second.wait_for(|status| status.state == Some(RackState::Removed)).await;
    forger.has_answered(subject::HELLO, handshakes + 1).await;
    assert_eq!(second.status().state, Some(RackState::Removed));
    close(second).await;
}
