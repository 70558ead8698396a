//! Configuration reload: has the running server read the list of its users again when it has changed, and its certificate when that is new.
//!
//! ```text
//! change ─▶ gather more: until quiet, 500 ms at most ─▶ rest as long as the last reading took ─▶ nats.conf ─ RELOAD ─▶ it has read that
//! ```
//!
//! # Invariants
//!
//! - The server follows a version of the list once it answers that it has read its configuration after that version was written.
//! - Reading takes half of the server's time at most, whoever changes the list how often; only the removal of a Rack is not waited with.
//! - What is dropped here with its server is forgotten: the next one starts with the list as it is then.
//!
//! # Not here
//!
//! Who is on the list ([`crate::scenario::BusAcl`]), what it looks like (`accounts`), the process (`supervisor`).

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use model::EntityId;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::access_list::AclSnapshot;
use super::accounts::BusAuthorization;
use super::nats_conf::ServerConfig;
use super::system_connection::SystemConnection;
use super::{BusAccessIssue, BusCertificates, ProcessStatus};

/// How long the server may take to read its configuration: half a second for 500 Racks that are at work, up to nine for 2,000.
const RELOAD: Duration = Duration::from_secs(60);
/// Changes of the list are gathered until none comes for this time.
const QUIET: Duration = Duration::from_millis(50);
/// And at most for this one.
const GATHERED: Duration = Duration::from_millis(500);
/// The pause after a list that could not be written, or was not read.
const AGAIN: Duration = Duration::from_secs(5);
/// How often it is looked whether the certificate is to be made anew.
const CERTIFICATE_LOOK: Duration = Duration::from_secs(60);

/// A version of the list, and the keys that it has.
#[derive(Debug)]
pub(super) struct ListVersion {
    version: u64,
    keys: BTreeSet<String>,
    removed: BTreeSet<EntityId>,
}

/// What became of the work on a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListOutcome {
    /// The server follows it.
    Followed,
    /// It does, but for Racks that it does not take, for this reason; nobody is let in who was removed.
    InPart(String),
    /// The work was left for that on a newer one.
    Overtaken,
}

/// The list of users, and how far the running server follows it.
pub(super) struct UserList {
    users: BusAuthorization,
    news: watch::Sender<ProcessStatus>,
    /// The keys of the Racks that the server knows.
    known: BTreeSet<String>,
    /// The removed Racks that it does not let in.
    closed: BTreeSet<EntityId>,
    /// When the last reading ended, and what it took.
    last: Option<(Instant, Duration)>,
}

impl UserList {
    pub(super) fn new(users: BusAuthorization, news: watch::Sender<ProcessStatus>) -> Self {
        Self {
            users,
            news,
            known: BTreeSet::new(),
            closed: BTreeSet::new(),
            last: None,
        }
    }

    /// The list as it should be. Later changes are news for [`Self::keep`].
    pub(super) fn current(&mut self) -> ListVersion {
        let access = self.users.access.borrow_and_update();
        ListVersion {
            version: access.version,
            keys: access.keys(),
            removed: access.removed.clone(),
        }
    }

    /// A server that was started with this version is ready.
    pub(super) fn started_with(&mut self, list: ListVersion, outcome: ListOutcome) {
        self.last = None;
        self.end(list, outcome);
    }

    /// What became of the work on a list. False if that is to be done again.
    fn end(&mut self, list: ListVersion, outcome: ListOutcome) -> bool {
        match outcome {
            ListOutcome::Followed => self.follows(list),
            ListOutcome::Overtaken => {}
            ListOutcome::InPart(reason) => {
                self.follows(list);
                tracing::error!(
                    reason,
                    "the bus server does not take the accounts of all Racks; retrying"
                );
                self.tell(Some(BusAccessIssue::InPart(reason)));
                return false;
            }
        }
        true
    }

    fn follows(&mut self, list: ListVersion) {
        (self.known, self.closed) = (list.keys, list.removed);
        self.users.applied.send_replace(list.version);
        self.tell(None);
    }

    /// The server does not follow the list, for this reason.
    fn failed(&self, reason: &str) {
        tracing::error!(reason, "the bus server did not take its users; retrying");
        self.tell(Some(BusAccessIssue::Whole(reason.to_owned())));
    }

    fn tell(&self, issue: Option<BusAccessIssue>) {
        self.news.send_modify(|status| status.access_issue = issue);
    }

    /// Whether the server followed the last list that it was given.
    pub(super) fn is_followed(&self) -> bool {
        self.news.borrow().access_issue.is_none()
    }

    /// Has a server read the list whenever that has changed, until it is dropped.
    pub(super) async fn keep(&mut self, config: &ServerConfig, system: &SystemConnection) -> Infallible {
        let mut is_stale = false;
        loop {
            let certificates = config.managed.certificates.as_ref();
            let due = async {
                while !certificates.is_some_and(BusCertificates::is_due) {
                    sleep(CERTIFICATE_LOOK).await;
                }
            };
            self.next(is_stale, due).await;
            is_stale = !self.reload(config, system).await;
        }
    }

    /// Waits until the server is to take a list: another one, the same where it did not take that, or because something else is due.
    pub(super) async fn next(&mut self, is_stale: bool, due: impl Future<Output = ()>) {
        let again = async {
            if is_stale {
                sleep(AGAIN).await;
            } else {
                std::future::pending().await
            }
        };
        tokio::select! {
            () = again => {}
            () = self.changed() => {}
            () = due => {}
        }
        self.gather().await;
    }

    async fn changed(&mut self) {
        if self.users.access.changed().await.is_err() {
            // Nobody changes it any more.
            std::future::pending().await
        }
    }

    /// Waits for more changes, and until the server has rested.
    async fn gather(&mut self) {
        let quiet = async { while timeout(QUIET, self.changed()).await.is_ok() {} };
        timeout(GATHERED, quiet).await.ok();
        let Some((ended, took)) = self.last else { return };
        let removal = self.removal_after(&self.closed);
        tokio::select! {
            () = sleep_until(ended + took) => {}
            () = removal => {}
        }
    }

    /// Has the server read the list again. True if it follows it.
    async fn reload(&mut self, config: &ServerConfig, system: &SystemConnection) -> bool {
        let list = self.current();
        let config = config.clone();
        let written = tokio::task::spawn_blocking(move || config.write()).await;
        if let Ok(Err(error)) = written {
            self.failed(&error.to_string());
            return false;
        }
        // The imports of an account that is new work from the second reading on (nats-server 2.15.1).
        let readings = if list.keys.is_subset(&self.known) { 1 } else { 2 };
        let read = async {
            for _ in 0..readings {
                system.reload(RELOAD).await?;
            }
            Ok(ListOutcome::Followed)
        };
        self.apply(list, read).await
    }

    /// Has the server take a list by this work. False if that is to be done again.
    pub(super) async fn apply(
        &mut self,
        list: ListVersion,
        work: impl Future<Output = Result<ListOutcome, String>>,
    ) -> bool {
        // Who has left may come back, and is new then.
        self.known.retain(|key| list.keys.contains(key));
        let began = Instant::now();
        self.news.send_modify(ProcessStatus::begin_reload);
        let taken = work.await;
        self.news.send_modify(ProcessStatus::end_reload);
        self.last = Some((Instant::now(), began.elapsed()));
        match taken {
            Ok(outcome) => self.end(list, outcome),
            Err(reason) => {
                self.failed(&reason);
                false
            }
        }
    }

    /// Waits until another Rack is removed than these.
    pub(super) fn removal_after(&self, removed: &BTreeSet<EntityId>) -> impl Future<Output = ()> + use<> {
        let (mut access, known) = (self.users.access.clone(), removed.clone());
        async move {
            let is_removed = access.wait_for(|now| !now.removed.is_subset(&known)).await.is_ok();
            if !is_removed {
                // Nobody changes it any more.
                std::future::pending().await
            }
        }
    }

    /// What is on the list now.
    pub(super) fn snapshot(&self) -> AclSnapshot {
        self.users.access.borrow().clone()
    }
}
