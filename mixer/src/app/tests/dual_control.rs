//! A second person: what `api.second_person` names waits until another caller asks for exactly the same.

use std::sync::Arc;

use super::*;
use crate::access::{AccessRole, AccessScope, ApiToken, CallerIdentity};
use crate::authentication::{NewToken, TokenStore};
use crate::control::{ChangeOutcome, ChangeRequestView, ResumePoint};
use crate::quotas::QuotaOverrides;
use crate::registry::{AuditEntry, AuditQuery, CallerInterface};
use crate::testing::Hand;

const HOUR: Duration = Duration::from_secs(3_600);

/// A Mixer on a clock of its own where everything wants two persons, and some of them.
struct TwoPersonMixer {
    mixer: Mixer,
    clock: Hand,
    tokens: Arc<TokenStore>,
}

impl TwoPersonMixer {
    async fn start(folder: &Path) -> Self {
        let clock = Hand::new();
        let config = config(folder, &[("api.second_person", "approve,activate")]);
        let mixer = Mixer::start(config, clock.clock(), chassis::os_entropy())
            .await
            .unwrap();
        let tokens = Arc::clone(mixer.api_parts().unwrap().authenticator.tokens());
        Self { mixer, clock, tokens }
    }

    fn control(&self) -> &ControlPlane {
        self.mixer.control()
    }

    /// An operator with a token.
    async fn operator(&self, name: &str, lifetime: Option<Duration>) -> AuditActor {
        let new = NewToken {
            name: name.parse().unwrap(),
            roles: vec![AccessRole::Operator],
            scope: AccessScope::default(),
            lifetime,
            quotas: QuotaOverrides::default(),
        };
        let (token, _): (ApiToken, _) = self.tokens.create(new, &AuditActor::Mixer).await.unwrap();
        let caller = self.tokens.authenticate(token.digest()).unwrap();
        AuditActor::of_caller(CallerInterface::Api, None, Some(&caller))
    }

    async fn approve(&self, rack: &str, name: Option<&str>, by: &AuditActor) -> ChangeOutcome<RackView> {
        let approval = RackApproval {
            name: name.map(|name| name.parse().unwrap()),
            key_fingerprint: None,
        };
        self.control().approve(rack, approval, by).await.unwrap()
    }

    async fn import(&self, text: &str) {
        self.control()
            .import(text.to_owned(), true, &AuditActor::Mixer)
            .await
            .unwrap();
    }

    async fn activate(&self, reference: &str, by: &AuditActor) -> Option<String> {
        let outcome = self
            .control()
            .activate(reference, ResumePoint::Floor, by)
            .await
            .unwrap();
        outcome.done().map(|active| active.reference)
    }

    /// The newest entries of the audit log, of one kind.
    async fn entries(&self, kind: &str) -> Vec<AuditEntry> {
        let query = AuditQuery {
            kind: Some(kind.to_owned()),
            limit: 100,
            ..AuditQuery::default()
        };
        self.control().audit(query).await.unwrap()
    }
}

fn awaited<T: std::fmt::Debug>(outcome: ChangeOutcome<T>) -> ChangeRequestView {
    match outcome {
        ChangeOutcome::Awaited(awaited) => awaited.view,
        done => panic!("{done:?}"),
    }
}

fn local_user(uid: u32) -> AuditActor {
    AuditActor::Caller {
        interface: CallerInterface::Api,
        address: None,
        identity: CallerIdentity::LocalUser(uid),
        roles: vec![AccessRole::Admin],
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_is_admitted_once_two_persons_have_approved_the_same_key_under_the_same_name() {
    let folder = tempfile::tempdir().unwrap();
    let bench = TwoPersonMixer::start(folder.path()).await;
    let (anna, ben) = (bench.operator("anna", None).await, bench.operator("ben", None).await);
    let mut rack = FakeRack::connect(&bench.mixer, 1).await;
    rack.enroll("rack-a").await;

    let first = awaited(bench.approve("rack-a", None, &anna).await);
    assert_eq!(first.requested_by, anna.to_string());
    assert_eq!(first.until, first.requested.plus(HOUR));
    let again = awaited(bench.approve("rack-a", None, &anna).await);
    assert_eq!(again, first, "the same caller is no second one");
    let renamed = awaited(bench.approve("rack-a", Some("press"), &ben).await);
    assert_ne!(renamed.id, first.id, "another name is another approval");
    assert_eq!(view(bench.control(), "rack-a").state, RackState::Pending);
    assert_eq!(bench.entries("change_requested").await.len(), 2);

    // Another Rack comes under the name.
    bench.control().remove("rack-a", &AuditActor::Mixer).await.unwrap();
    let mut other = FakeRack::connect(&bench.mixer, 2).await;
    other.enroll("rack-a").await;
    let of_other = awaited(bench.approve("rack-a", None, &ben).await);
    assert_ne!(of_other.details, first.details, "another key starts anew");

    let approved = bench.approve("rack-a", None, &anna).await.done().unwrap();
    assert_eq!(approved.state, RackState::Active);
    let entry = bench.entries("rack_approved").await.remove(0);
    let why = entry.why.unwrap();
    assert_eq!(entry.by, anna.to_string());
    assert!(why.contains(&format!("requested by {ben}")), "{why}");
    let once_more = bench.approve("rack-a", None, &ben).await;
    assert!(once_more.done().is_some(), "what is so already needs nobody");
    bench.mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_local_users_are_one_person_and_an_invite_needs_two() {
    let folder = tempfile::tempdir().unwrap();
    let bench = TwoPersonMixer::start(folder.path()).await;
    let anna = bench.operator("anna", None).await;
    let invite = |lifetime, by: AuditActor| {
        let control = bench.control();
        async move { control.invite("press".parse().unwrap(), lifetime, &by).await.unwrap() }
    };
    awaited(invite(HOUR, local_user(0)).await);
    awaited(invite(HOUR, local_user(1_000)).await);
    awaited(invite(2 * HOUR, anna.clone()).await);
    assert_eq!(bench.control().invites().unwrap(), []);
    let (_, made) = invite(HOUR, anna).await.done().unwrap();
    assert_eq!(made.state, "open");
    let entry = bench.entries("invite_created").await.remove(0);
    assert!(
        entry.why.unwrap().contains("requested by api ("),
        "local users are named"
    );

    // The other request for this name replaces nothing by waiting.
    assert_eq!(bench.control().invites().unwrap().len(), 1);
    bench.mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scenario_runs_once_two_persons_have_activated_the_same_content_and_so_for_a_rollback() {
    let folder = tempfile::tempdir().unwrap();
    let bench = TwoPersonMixer::start(folder.path()).await;
    let (anna, ben) = (bench.operator("anna", None).await, bench.operator("ben", None).await);
    bench.import(SCENARIO).await;
    assert_eq!(bench.activate("demo:1", &anna).await, None);
    bench.import(&SCENARIO.replace("rate: 10", "rate: 99")).await;
    assert_eq!(bench.activate("demo:1", &ben).await, None, "another content");
    let from_now = bench
        .control()
        .activate("demo:1", ResumePoint::Now, &anna)
        .await
        .unwrap();
    awaited(from_now);
    assert_eq!(bench.control().active_scenario().unwrap(), None);
    assert_eq!(bench.activate("demo:1", &anna).await.as_deref(), Some("demo:1"));
    let entry = bench.entries("scenario_activated").await.remove(0);
    assert!(entry.why.unwrap().contains(&format!("requested by {ben}")));

    bench.import(&SCENARIO.replace("version: '1'", "version: '2'")).await;
    assert_eq!(bench.activate("demo:2", &ben).await, None);
    assert_eq!(bench.activate("demo:2", &anna).await.as_deref(), Some("demo:2"));
    let roll_back = |by: AuditActor| {
        let control = bench.control();
        async move { control.roll_back(None, ResumePoint::Floor, &by).await.unwrap() }
    };
    awaited(roll_back(anna).await);
    let active = bench.control().active_scenario().unwrap().unwrap();
    assert_eq!(active.reference, "demo:2");
    assert_eq!(roll_back(ben).await.done().unwrap().reference, "demo:1");
    bench.mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_ends_with_its_hour_its_token_or_its_withdrawal() {
    let folder = tempfile::tempdir().unwrap();
    let bench = TwoPersonMixer::start(folder.path()).await;
    let short = bench.operator("short", Some(Duration::from_secs(60))).await;
    let (anna, ben) = (bench.operator("anna", None).await, bench.operator("ben", None).await);
    bench.import(SCENARIO).await;
    let waiting = async || bench.control().change_requests().await.unwrap();

    assert_eq!(bench.activate("demo:1", &short).await, None);
    bench.clock.forward(Duration::from_secs(60));
    assert_eq!(
        bench.activate("demo:1", &ben).await,
        None,
        "the first token has expired"
    );
    bench.clock.forward(HOUR);
    assert_eq!(waiting().await, []);
    assert_eq!(bench.activate("demo:1", &anna).await, None, "an hour is over");
    bench.tokens.revoke("anna", &AuditActor::Mixer).await.unwrap();
    assert_eq!(bench.activate("demo:1", &ben).await, None, "the first token is revoked");
    let id = waiting().await[0].id.to_string();
    bench.control().withdraw_request(&id, &ben).await.unwrap();
    let carla = bench.operator("carla", None).await;
    assert_eq!(bench.activate("demo:1", &carla).await, None, "it was withdrawn");
    assert!(matches!(
        bench.control().withdraw_request(&id, &ben).await,
        Err(ControlError::UnknownRequest(_))
    ));
    assert_eq!(bench.entries("request_withdrawn").await[0].by, ben.to_string());
    bench.clock.back(Duration::from_secs(61));
    assert_eq!(
        waiting().await,
        [],
        "a clock that was set back makes nothing live longer"
    );
    bench.mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_outlives_a_restart_and_the_second_call_may_have_looked_at_the_clock_before_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let bench = TwoPersonMixer::start(folder.path()).await;
    let anna = bench.operator("anna", None).await;
    bench.import(SCENARIO).await;
    assert_eq!(bench.activate("demo:1", &anna).await, None);
    let asked = bench.control().change_requests().await.unwrap();
    drop(bench.tokens);
    bench.mixer.close().await;

    let bench = TwoPersonMixer::start(folder.path()).await;
    assert_eq!(bench.control().change_requests().await.unwrap(), asked);
    let ben = bench.operator("ben", None).await;
    bench.clock.back(Duration::from_secs(1));
    assert_eq!(bench.activate("demo:1", &ben).await.as_deref(), Some("demo:1"));
    let entry = bench.entries("scenario_activated").await.remove(0);
    assert!(entry.why.unwrap().contains(&format!("requested by {anna}")));
    assert_eq!(bench.control().change_requests().await.unwrap(), []);
    bench.mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activation_ends_the_requests_for_others_and_what_is_active_needs_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let bench = TwoPersonMixer::start(folder.path()).await;
    let (anna, ben) = (bench.operator("anna", None).await, bench.operator("ben", None).await);
    bench.import(SCENARIO).await;
    bench.import(&SCENARIO.replace("version: '1'", "version: '2'")).await;
    assert_eq!(bench.activate("demo:2", &anna).await, None);
    assert_eq!(bench.activate("demo:1", &anna).await, None);
    awaited(
        bench
            .control()
            .invite("press".parse().unwrap(), HOUR, &anna)
            .await
            .unwrap(),
    );
    assert_eq!(bench.activate("demo:1", &ben).await.as_deref(), Some("demo:1"));
    let left = bench.control().change_requests().await.unwrap();
    assert_eq!(left.iter().map(|view| view.change).collect::<Vec<_>>(), ["invite"]);
    assert_eq!(
        bench.activate("demo:2", &ben).await,
        None,
        "asked for while nothing was active"
    );
    assert_eq!(bench.activate("demo:1", &ben).await.as_deref(), Some("demo:1"));
    let from_now = bench
        .control()
        .activate("demo:1", ResumePoint::Now, &ben)
        .await
        .unwrap();
    awaited(from_now);
    bench.mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_calls_at_once_one_is_the_first_and_one_person_has_half_of_the_places() {
    let folder = tempfile::tempdir().unwrap();
    let bench = TwoPersonMixer::start(folder.path()).await;
    let (anna, ben) = (bench.operator("anna", None).await, bench.operator("ben", None).await);
    bench.import(SCENARIO).await;
    let (one, other) = tokio::join!(bench.activate("demo:1", &anna), bench.activate("demo:1", &ben));
    assert!(one.is_some() != other.is_some(), "{one:?} {other:?}");
    let invite = |number: u32, by: AuditActor| {
        let control = bench.control();
        async move {
            let name = format!("press-{number}").parse().unwrap();
            control.invite(name, HOUR, &by).await
        }
    };
    for number in 0..500 {
        awaited(invite(number, anna.clone()).await.unwrap());
    }
    assert!(matches!(
        invite(500, anna).await,
        Err(ControlError::TooManyRequests(500))
    ));
    awaited(invite(500, ben).await.unwrap());
    bench.mixer.close().await;
}
