//! Handshakes of Racks that come back.

use async_nats::ConnectOptions;
use nkeys::KeyPair;

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn racks_that_return_unchanged_do_not_rewrite_the_users_of_the_bus() {
    let folder = tempfile::tempdir().unwrap();
    let flags = [("enrollment.auto_adopt", "true")];
    let mixer = start(folder.path(), &flags).await;
    let control = mixer.control();
    let stranger = ConnectOptions::new().custom_inbox_prefix(subject::inbox(subject::ENROLL_USER));
    let mut rack = FakeRack {
        key: SigningKey::from_bytes(&[1; 32]),
        client: stranger.connect(control.bus_status().url).await.unwrap(),
        counter: 0,
        bus_key: Some(KeyPair::new_user().public_key()),
        bus_jwt: None,
        run: None,
    };
    rack.adopted("rack-a").await;
    let made = control.acl.asked();
    assert!(made > 0, "it was new");
    for _ in 0..100 {
        rack.adopted("rack-a").await;
    }
    assert_eq!(control.acl.asked(), made);
    rack.adopted("rack-b").await;
    assert_eq!(control.acl.asked(), made + 1, "another name");
    mixer.close().await;
}
