//! Requests behind a guaranteed wire, one at a time and several.

use serde_json::json;

use super::super::super::output_transaction::{DeliveryGuarantee, GearOutput, collect_output};
use super::super::super::supervisor::{ATTEMPTS, supervise};
use super::*;
use crate::gears::WiredGear;
use crate::gears::testing::held::{deliver, outbox, spec, surroundings, taken_from};
use crate::gears::testing::message;
use crate::inbox::GearInbox;

fn out(server: &Server, in_flight: u8) -> WiredGear {
    let url = format!("http://{}", server.at);
    let config =
        json!({ "url": url, "in_flight": in_flight, "retry": { "count": 0 }, "breaker": { "failures": 1000 } });
    spec("http_out", &config, &["reply"])
}

/// Refuses the body `bad` so many times.
fn refuses_bad(times: usize) -> Script {
    Script {
        bad: AtomicUsize::new(times),
        ..Script::default()
    }
}

/// How often the server saw each of these bodies.
fn count(server: &mut Server, bodies: &[&str]) -> Vec<usize> {
    let mut all = Vec::new();
    while let Ok(seen) = server.seen.try_recv() {
        all.push(seen.body);
    }
    let count = |body: &&str| all.iter().filter(|seen| *seen == body.as_bytes()).count();
    bodies.iter().map(count).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_for_a_while_holds_no_other_twice_and_each_reply_leaves_once() {
    for in_flight in [1, 4] {
        one_fails_for_a_while(in_flight).await;
    }
}

async fn one_fails_for_a_while(in_flight: u8) {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let mut server = Server::start(refuses_bad(3)).await;
    let (spec, inbox) = (out(&server, in_flight), GearInbox::new());
    let bodies = ["one", "bad", "three", "four", "five"];
    let taken: Vec<_> = (1..)
        .zip(bodies)
        .map(|(number, body)| deliver(&inbox, number, body.as_bytes()))
        .collect();
    let (cx, stop) = surroundings(&spec, &bench, &outbox);
    let life = tokio::spawn(supervise(None, spec, cx, Some(inbox)));
    for taken in taken {
        assert_eq!(taken.await.unwrap(), Ok(()));
    }
    assert_eq!(count(&mut server, &bodies), [1, 4, 1, 1, 1], "in_flight {in_flight}");
    let replies = taken_from(&outbox, 5).await;
    let parents: Vec<_> = replies
        .iter()
        .map(|reply| Message::from_cbor(reply.body()).unwrap().parent)
        .collect();
    let wanted: Vec<_> = (1..=5)
        .map(|number| Some(message(number, Value::Null, b"").id))
        .collect();
    assert_eq!(parents, wanted, "each leaves with the word that its message was taken");
    stop.cancel();
    life.await.unwrap();
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_fails_again_and_again_becomes_a_dead_letter_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let (outbox, thread) = outbox(&folder.path().join("outbox"), 1 << 20);
    let mut server = Server::start(refuses_bad(usize::MAX)).await;
    let spec = out(&server, 4);
    let (cx, _stop) = surroundings(&spec, &bench, &outbox);
    let given = [message(1, Value::Null, b"good"), message(2, Value::Null, b"bad")];
    let (mut lives, mut last) = (0, GearOutput::default());
    while last.later.is_empty() {
        lives += 1;
        let Gear::Passive(mut gear) = build(&spec.config).unwrap() else {
            panic!("http_out is passive")
        };
        gear.init(&cx).await.unwrap();
        for message in given.clone() {
            let delivery = InputMessage { port: "in", message };
            let (done, _) = collect_output(DeliveryGuarantee::Again, gear.process(&cx, delivery)).await;
            done.unwrap();
        }
        let (flushed, made) = collect_output(DeliveryGuarantee::Again, gear.flush(&cx)).await;
        assert_eq!(flushed.is_ok(), lives == ATTEMPTS, "{lives}");
        last = made;
    }
    assert_eq!(count(&mut server, &["good", "bad"]), [1, 16]);
    let [good, bad] = &last.later[..] else {
        panic!("{last:?}")
    };
    assert_eq!(
        [(good.first, good.last), (bad.first, bad.last)],
        [0, 1].map(|at: usize| (given[at].id, given[at].id))
    );
    let (reply, letter) = (&good.transaction, &bad.transaction);
    assert_eq!((reply.leaving.len(), reply.dead.len()), (1, 0));
    assert_eq!((letter.leaving.len(), letter.dead[0].attempts), (0, 16));
    assert!(
        letter.dead[0].reason.contains("it answered 500"),
        "{}",
        letter.dead[0].reason
    );
    drop(cx);
    bench.close().await;
    assert!(thread.close(Duration::from_secs(10)).await);
}
