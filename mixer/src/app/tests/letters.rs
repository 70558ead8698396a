//! Dead letters that several requests have go back at one moment.

use std::sync::Arc;

use async_nats::HeaderMap;
use model::control::{ReplayAnswer, ReplayCommand};
use model::dead_letter::LetterState;
use model::filter::LetterFilter;
use model::message::Message;
use model::{FluxId, MessageId, telemetry_codec};
use tokio::io::AsyncWriteExt;

use super::*;
use crate::dlq::LetterUpdate;

/// A message that the sink of `rack-a` could not handle, as its Rack sends it.
fn dead(number: u8) -> Vec<u8> {
    let ts = Timestamp::from_micros(1_800_000_000_000_000);
    let message = Message {
        id: MessageId::at(ts, [number; 10]),
        ts,
        raw: vec![number],
        data: serde_json::Value::Null,
        hops: 1,
        meta: Attributes::new(),
        parent: None,
        flux_id: FluxId::at(ts, [number; 10]),
        sampled: true,
        span_id: "b7ad6b7169203331".parse().unwrap(),
        trace_id: "0af7651916cd43dd8448eb211c80319c".parse().unwrap(),
        trace_state: None,
    };
    message.to_cbor().unwrap()
}

/// The Rack sends it.
async fn fails(rack: &FakeRack, number: u8) {
    let mut headers = HeaderMap::new();
    headers.insert(telemetry_codec::DEAD_PORT, "in");
    let subject = "flux.gear.rack-a.sink";
    let sent = rack.client.publish_with_headers(subject, headers, dead(number).into());
    sent.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixer_does_not_wait_for_a_replay_when_it_stops() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    rack.adopted("rack-a").await;
    fails(&rack, 1).await;
    let dlq = mixer.api_parts().unwrap().dlq;
    let letter = eventually("the letter", || async {
        let found = dlq.list(dlq.querier(), &LetterFilter::default()).await.unwrap().letters;
        found.first().map(|letter| letter.id)
    })
    .await;
    let body = r#"{"wait": "60s"}"#;
    let request = format!(
        "POST /api/v1/dlq/{letter}/replay HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = tokio::net::TcpStream::connect(mixer.api_addr()).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    eventually("the replay is written down", || async {
        let mark = mixer.control().registry.mark(&letter).unwrap();
        mark.map(|mark| assert_eq!(mark.state, LetterState::Waiting))
    })
    .await;
    drop(dlq);
    let began = std::time::Instant::now();
    mixer.close().await;
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    let registry = crate::registry::ClusterRegistry::open(&folder.path().join("data/registry.redb")).unwrap();
    assert_eq!(registry.mark(&letter).unwrap().unwrap().state, LetterState::Waiting);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rack_gets_letters_in_the_order_of_their_numbers_though_who_asked_first_goes_on_last() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let mut commands = rack.commands(&passport.entity_id).await;
    let hash = model::scenario::content_hash(SCENARIO);
    let beat = FakeRack::beat(passport.entity_id, Some(&hash));
    rack.heartbeat(&beat, &passport.cluster_key).await;
    for number in 1..=2 {
        fails(&rack, number).await;
    }
    let dlq = mixer.api_parts().unwrap().dlq;
    let letters = eventually("both letters", || async {
        let found = dlq.list(dlq.querier(), &LetterFilter::default()).await.unwrap().letters;
        (found.len() == 2).then_some(found)
    })
    .await;
    let ask = |at: usize| {
        let begun = Arc::clone(&dlq).replay(
            Arc::clone(dlq.querier()),
            LetterUpdate {
                ids: vec![letters[at].id],
                ..LetterUpdate::default()
            },
        );
        let dlq = &dlq;
        async move { dlq.wait_for_gears(begun.await?).await }
    };
    let mut early = std::pin::pin!(ask(0));
    let has_number = || mixer.control().registry.mark(&letters[0].id).unwrap().is_some();
    while !has_number() {
        assert!(
            futures::poll!(early.as_mut()).is_pending(),
            "it went on before it was looked for"
        );
        // Its turn comes while nobody lets it go on.
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if has_number() {
                break;
            }
        }
    }
    assert_eq!(ask(1).await.unwrap().changed, 1);
    let taken = ReplayAnswer {
        taken: 2,
        not_taken: None,
    };
    let sent = next::<ReplayCommand>(&mut commands, &rack.client, "replay", &passport, &taken).await;
    assert_eq!(early.await.unwrap().changed, 1);
    let numbers: Vec<u64> = sent.letters.iter().map(|letter| letter.number).collect();
    assert_eq!(numbers, [1, 2], "who takes 2 has taken 1");
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn letters_wait_for_a_rack_that_works_by_its_old_labels_still() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = write_scenario(folder.path(), SCENARIO);
    let flags = [
        ("mixer.startup_scenario", scenario.as_str()),
        ("enrollment.auto_adopt", "true"),
        ("enrollment.push_delay", "1h"),
    ];
    let mixer = start(folder.path(), &flags).await;
    let control = mixer.control();
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let id = passport.entity_id;
    let mut commands = rack.commands(&id).await;
    let hash = model::scenario::content_hash(SCENARIO);
    rack.heartbeat(&FakeRack::beat(id, Some(&hash)), &passport.cluster_key)
        .await;
    fails(&rack, 1).await;
    let dlq = mixer.api_parts().unwrap().dlq;
    let letter = eventually("the letter", || async {
        let found = dlq.list(dlq.querier(), &LetterFilter::default()).await.unwrap().letters;
        found.first().map(|letter| letter.id)
    })
    .await;
    let labels = [("role".to_owned(), "edge".to_owned())].into();
    control.set_labels("rack-a", labels, &AuditActor::Mixer).await.unwrap();
    let wish = LetterUpdate {
        ids: vec![letter],
        ..LetterUpdate::default()
    };
    let begun = Arc::clone(&dlq).replay(Arc::clone(dlq.querier()), wish).await.unwrap();
    eventually("why it waits", || async {
        let whole = dlq.list(dlq.querier(), &LetterFilter::default()).await.unwrap().letters;
        let note = whole.first()?.note.clone()?;
        note.contains("does not run the active scenario").then_some(())
    })
    .await;
    assert_eq!(dlq.wait_for_gears(begun).await.unwrap().waiting, 1);
    // It says that it runs by them.
    let settled = control.registry.commit(move |change| {
        let mut row = change.rack(&id)?.unwrap();
        row.relabelled = None;
        change.put_rack(&row)
    });
    settled.await.unwrap();
    let taken = ReplayAnswer {
        taken: 1,
        not_taken: None,
    };
    next::<ReplayCommand>(&mut commands, &rack.client, "replay", &passport, &taken).await;
    mixer.close().await;
}
