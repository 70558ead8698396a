//! For whom a message is.

use super::sending::leave;
use super::*;
use crate::gears::testing::held;
use crate::spool::SpoolCursor;

/// Where messages of the port go.
fn destinations(text: &str) -> PortDestinations {
    let port = BTreeMap::from([("out", text.parse().unwrap())]);
    PortDestinations::from([("tail".parse().unwrap(), port)])
}

#[tokio::test]
async fn a_message_is_for_whom_the_wires_said_when_it_was_handed_over_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (before, thread) = held::outbox(folder.path(), 1 << 20);
    for text in ["internal near", "outbound far", "outbound"] {
        before.set_destinations(destinations(text), BTreeSet::new());
        leave(&before, 3).await;
    }
    before.set_destinations(PortDestinations::new(), BTreeSet::new());
    leave(&before, 3).await;
    before.flush().await.unwrap();
    assert!(thread.close(PATIENCE).await);
    drop(before);
    let (after, _thread) = held::outbox(folder.path(), 1 << 20);
    after.set_destinations(destinations("internal other"), BTreeSet::new());
    let letters = held::taken_behind(&after, &mut SpoolCursor::default(), 4).await;
    let said = letters.iter().map(|letter| {
        let mut headers = HeaderMap::new();
        letter.write_headers(None, &mut headers);
        let header = |name| headers.get(name).map(|value| value.as_str().to_owned());
        (header(telemetry_codec::DIRECTION), header(telemetry_codec::TO))
    });
    let said: Vec<_> = said.collect();
    let wanted = [
        (Some("internal"), Some("near")),
        (Some("outbound"), Some("far")),
        (Some("outbound"), None),
        (None, None),
    ];
    let wanted = wanted.map(|(direction, to)| (direction.map(str::to_owned), to.map(str::to_owned)));
    assert_eq!(said, wanted);
}
