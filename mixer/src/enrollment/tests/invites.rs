//! Admission by invite, good and bad.

use model::{KeyFingerprint, RackInvite};

use super::*;
use crate::registry::InviteRow;

const HOUR: Duration = Duration::from_secs(3_600);

fn invite(seed: u8, name: &str) -> RackInvite {
    let cluster = KeyFingerprint::of(b"of no matter to the Mixer");
    RackInvite::new(name.parse().unwrap(), "nats://x".to_owned(), None, cluster, [seed; 32])
}

impl Bench {
    /// Keeps an invite, open for an hour.
    fn keep(&self, invite: &RackInvite) {
        let now = self.hand.clock().now();
        let row = InviteRow {
            key: invite.public_key().unwrap().as_bytes().to_vec(),
            name: invite.name.clone(),
            created: now,
            created_by: "api".to_owned(),
            expires: now.plus(HOUR),
            used: None,
            refused: 0,
        };
        self.registry.change(|change| change.put_invite(&row)).unwrap();
    }

    /// A handshake with an invite.
    fn join(&self, key: &SigningKey, claim: NameClaim, invite: &RackInvite) -> AdmissionOutcome {
        let mut transcript = self.transcript(key, claim, 0);
        transcript.invite = Some(invite.prove(&transcript.challenge.nonce, &transcript.rack_key).unwrap());
        self.send(&transcript, key)
    }

    /// Why invites were refused, as the audit log has it.
    fn refusals(&self) -> Vec<String> {
        let query = AuditQuery {
            kind: Some(LifecycleEvent::InviteRefused.as_str().to_owned()),
            limit: 100,
            ..AuditQuery::default()
        };
        let entries = self.registry.audit(&query).unwrap();
        entries.into_iter().filter_map(|entry| entry.why).collect()
    }
}

#[test]
fn an_invited_rack_is_admitted_at_once_under_its_name_and_its_invite_admits_nobody_else() {
    let bench = bench(false);
    let invite = invite(9, "press");
    bench.keep(&invite);
    let admitted = bench.join(&rack(1), name("press"), &invite);
    assert_eq!(passport(&admitted).name.as_str(), "press");
    assert_eq!(kinds(&admitted), [LifecycleEvent::RackAdopted]);
    let why = admitted.news[0].why.clone().unwrap();
    let key = KeyFingerprint::of(rack(1).verifying_key().as_bytes()).to_string();
    assert!(why.contains("invite") && why.contains(&key), "{why}");

    // The answer was lost, and the Rack asks again.
    assert_eq!(
        passport(&bench.join(&rack(1), name("press"), &invite)).name.as_str(),
        "press"
    );
    // Who else has the text is refused, and told by whom it was used.
    for _ in 0..20 {
        let second = bench.join(&rack(2), name("press"), &invite);
        let (code, reason) = refused(&second);
        assert_eq!(code, RefusalCode::Invite);
        assert!(reason.contains(&key) && reason.contains("was used at"), "{reason}");
    }
    let told = bench.refusals();
    assert_eq!(told.len(), 8, "the log cannot be filled by it");
    let thief = KeyFingerprint::of(rack(2).verifying_key().as_bytes()).to_string();
    assert!(told[0].starts_with(&thief), "{told:?}");
}

#[test]
fn an_invite_that_was_stolen_and_used_first_is_told_to_the_rack_that_it_was_for() {
    let bench = bench(false);
    let invite = invite(9, "press");
    bench.keep(&invite);
    bench.join(&rack(66), name("press"), &invite);
    let refusal = bench.join(&rack(1), name("press"), &invite);
    let (_, reason) = refused(&refusal);
    assert!(
        reason.contains("somebody else has the invite") && reason.contains("platform racks remove press"),
        "{reason}"
    );
}

#[test]
fn an_invite_that_is_late_for_another_name_unknown_or_replayed_admits_nobody() {
    let bench = bench(false);
    let known = invite(9, "press");
    bench.keep(&known);
    let said = |outcome: &AdmissionOutcome| {
        let (code, reason) = refused(outcome);
        assert_eq!(code, RefusalCode::Invite, "{reason}");
        reason.to_owned()
    };
    let reason = said(&bench.join(&rack(1), name("saw"), &known));
    assert!(
        reason.contains("is for press") && reason.contains("asks to be saw"),
        "{reason}"
    );
    assert!(said(&bench.join(&rack(1), name("press"), &invite(8, "press"))).contains("is not known here"));
    // The proof of another handshake, of another key, or none of its secret.
    let heard = bench.transcript(&rack(1), name("press"), 0);
    let heard = known.prove(&heard.challenge.nonce, &heard.rack_key).unwrap();
    for key in [rack(1), rack(2)] {
        let mut transcript = bench.transcript(&key, name("press"), 0);
        transcript.invite = Some(heard.clone());
        assert!(said(&bench.send(&transcript, &key)).contains("not for this handshake"));
    }
    bench.hand.forward(HOUR);
    assert!(said(&bench.join(&rack(1), name("press"), &known)).contains("has expired at"));
    assert_eq!(
        bench.refusals().len(),
        2,
        "what anybody can send is not in the audit log"
    );
    assert_eq!(bench.registry.racks().unwrap(), []);
}

#[test]
fn a_stranger_that_waits_under_the_name_makes_room_and_an_admitted_rack_does_not() {
    let bench = bench(false);
    let (first, second) = (invite(8, "press"), invite(9, "press"));
    bench.keep(&first);
    bench.keep(&second);
    assert!(matches!(
        bench.enroll(&rack(66), name("press"), 0).reply,
        EnrollReply::Pending { .. }
    ));
    // Two keys under one name: the one that waits first keeps it, until somebody is invited.
    assert_eq!(
        refused(&bench.enroll(&rack(67), name("press"), 0)).0,
        RefusalCode::NameTaken
    );
    let admitted = bench.join(&rack(1), name("press"), &first);
    assert_eq!(
        kinds(&admitted),
        [LifecycleEvent::RackRemoved, LifecycleEvent::RackAdopted]
    );
    assert_eq!(
        refused(&bench.enroll(&rack(66), name("press"), 0)).0,
        RefusalCode::NameTaken
    );
    assert_eq!(
        refused(&bench.join(&rack(2), name("press"), &second)).0,
        RefusalCode::NameTaken
    );
    // Nothing of a refused admission is written, and the invite is still open.
    let rows = bench.registry.invites().unwrap();
    let open = |row: &InviteRow| row.used.is_none();
    assert_eq!(rows.iter().filter(|row| open(row)).count(), 1);
    // The invited Rack may be called another name later.
    let renamed = bench.enroll(&rack(1), name("saw"), 1);
    assert_eq!(kinds(&renamed), [LifecycleEvent::RackRenamed]);
    assert_eq!(
        passport(&bench.join(&rack(2), name("press"), &second)).name.as_str(),
        "press"
    );
}

#[test]
fn a_rack_that_waits_is_admitted_when_it_comes_with_an_invite() {
    let bench = bench(false);
    let invite = invite(9, "press");
    bench.keep(&invite);
    bench.enroll(&rack(1), name("node-01"), 0);
    let admitted = bench.join(&rack(1), name("press"), &invite);
    assert_eq!(passport(&admitted).name.as_str(), "press");
}

#[test]
fn in_an_older_copy_of_the_registry_a_used_invite_is_open_again_until_it_expires() {
    let mut bench = bench(false);
    let invite = invite(9, "press");
    bench.keep(&invite);
    let (file, copy) = (
        bench._folder.path().join("registry.redb"),
        bench._folder.path().join("copy"),
    );
    let restore = |bench: &mut Bench, from: &std::path::Path, to: &std::path::Path| {
        let elsewhere = bench._folder.path().join("elsewhere");
        let aside = Arc::new(ClusterRegistry::open(&elsewhere).unwrap());
        let (clock, entropy) = (bench.hand.clock(), entropy());
        let open = |registry: &Arc<ClusterRegistry>, key: &str| {
            let key = bench._folder.path().join(key);
            let cluster = Cluster::open(registry, &key, &clock, &entropy).unwrap();
            EnrollmentService::new(
                false,
                Arc::new(cluster),
                Arc::clone(registry),
                clock.clone(),
                entropy.clone(),
            )
        };
        // Nobody may have it open while it is copied.
        bench.enrollment = open(&aside, "aside.key");
        bench.registry = Arc::clone(&aside);
        std::fs::copy(from, to).unwrap();
        let registry = Arc::new(ClusterRegistry::open(&file).unwrap());
        bench.enrollment = open(&registry, "cluster.key");
        bench.registry = registry;
        drop(aside);
        std::fs::remove_file(elsewhere).unwrap();
        std::fs::remove_file(bench._folder.path().join("aside.key")).unwrap();
    };
    restore(&mut bench, &file, &copy);
    let counter = passport(&bench.join(&rack(1), name("press"), &invite)).counter;
    restore(&mut bench, &copy, &file);
    // The Rack that used it has a passport and shows no invite any more: it waits for approval.
    assert!(matches!(
        bench.enroll(&rack(1), name("press"), counter).reply,
        EnrollReply::Pending { .. }
    ));
    // Within the invite's time whoever has its text takes the name.
    assert_eq!(
        passport(&bench.join(&rack(2), name("press"), &invite)).name.as_str(),
        "press"
    );
    restore(&mut bench, &copy, &file);
    bench.hand.forward(HOUR);
    assert_eq!(
        refused(&bench.join(&rack(2), name("press"), &invite)).0,
        RefusalCode::Invite
    );
}
