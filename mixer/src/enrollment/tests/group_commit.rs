//! Handshakes that share a transaction.

use super::*;

impl Bench {
    /// A signed transcript of each, all sent at one time; what they ask is decided together.
    fn send_together(&self, sent: &[(SigningKey, EnrollTranscript)]) -> Vec<AdmissionOutcome> {
        std::thread::scope(|threads| {
            let held = self.enrollment.admissions.hold();
            let ask = |(key, transcript): &(SigningKey, EnrollTranscript)| self.send(transcript, key);
            let asked: Vec<_> = sent.iter().map(|one| threads.spawn(move || ask(one))).collect();
            while self.enrollment.admissions.waiting() < sent.len() {
                std::thread::yield_now();
            }
            drop(held);
            let answers = asked.into_iter().map(|asked| asked.join().unwrap());
            answers.collect()
        })
    }
}

#[test]
fn racks_that_come_at_one_time_share_a_transaction_and_each_is_adopted_and_recorded_once() {
    let bench = bench(true);
    let sent: Vec<_> = (1..=40)
        .map(|seed| {
            (
                rack(seed),
                bench.transcript(&rack(seed), NameClaim::Prefix("press".parse().unwrap()), 0),
            )
        })
        .collect();
    let answers = bench.send_together(&sent);
    let names: std::collections::BTreeSet<_> = answers.iter().map(|answer| passport(answer).name).collect();
    assert_eq!(names.len(), 40, "each has a name of its own");
    let racks = bench.registry.racks().unwrap();
    assert_eq!(racks.len(), 40);
    let audit = bench
        .registry
        .audit(&AuditQuery {
            limit: 1000,
            ..AuditQuery::default()
        })
        .unwrap();
    assert_eq!(audit.len(), 40, "{audit:?}");
}

#[test]
fn one_that_is_refused_undoes_nothing_of_the_others() {
    let bench = bench(true);
    let _ = bench.enroll(&rack(1), name("press-1"), 0);
    let _ = bench.enroll(&rack(1), name("press-1"), 1);
    let mut sent = vec![(rack(1), bench.transcript(&rack(1), name("press-1"), 0))];
    for seed in 2..=20 {
        let claim = name(&format!("press-{seed}"));
        sent.push((rack(seed), bench.transcript(&rack(seed), claim, 0)));
    }
    sent.push((rack(21), bench.transcript(&rack(21), name("press-2"), 0)));
    let answers = bench.send_together(&sent);
    assert_eq!(refused(&answers[0]).0, RefusalCode::StalePassport);
    let taken = [&answers[1], &answers[20]].map(|answer| matches!(answer.reply, EnrollReply::Refused(_)));
    assert_eq!(
        taken.iter().filter(|refused| **refused).count(),
        1,
        "one of two gets the name: {taken:?}"
    );
    for (answer, (key, _)) in answers[2..20].iter().zip(&sent[2..20]) {
        let counter = passport(answer).counter;
        assert_eq!(counter, 1, "what was undone gave no passport");
        assert_eq!(
            passport(&bench.enroll(key, NameClaim::Name(passport(answer).name), 1)).counter,
            2
        );
    }
    assert_eq!(bench.registry.racks().unwrap().len(), 20);
}
