//! Taps of a Rack that has restarted, and of watchers who leave before it answers.

use std::sync::Arc;

use model::subject::RackCommand;
use model::tap::{TapAnswer, TapLease, TapRequest};
use tokio_util::task::TaskTracker;

use super::*;
use crate::control::TapEvent;

#[tokio::test(flavor = "multi_thread")]
async fn a_tap_ends_with_its_reason_when_the_rack_restarts_or_its_watcher_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let control = Arc::clone(mixer.control());
    let mut rack = FakeRack::connect(&mixer, 1).await;
    let passport = rack.adopted("rack-a").await;
    let mut commands = rack.commands(&passport.entity_id).await;
    let tasks = TaskTracker::new();
    let watch = || {
        let port = ("numbers".parse().unwrap(), "out".parse().unwrap());
        tokio::spawn(Arc::clone(&control).tap("rack-a", port, tasks.clone()))
    };

    let leaving = watch();
    let subject = subject::rack(&passport.entity_id, RackCommand::Tap);
    let asked = loop {
        let command = commands.next().await.unwrap();
        if command.subject.as_str() == subject {
            break command;
        }
    };
    leaving.abort();
    assert!(leaving.await.unwrap_err().is_cancelled());
    let done = signed::encode(&TapAnswer::Done).unwrap();
    rack.client.publish(asked.reply.unwrap(), done.into()).await.unwrap();
    let told: TapLease = next(&mut commands, &rack.client, "tap", &passport, &TapAnswer::Done).await;
    assert_eq!(told.request, TapRequest::End);

    let watching = watch();
    let told: TapLease = next(&mut commands, &rack.client, "tap", &passport, &TapAnswer::Done).await;
    assert_eq!(told.request, TapRequest::Begin);
    let mut stream = watching.await.unwrap().unwrap();
    let told: TapLease = next(&mut commands, &rack.client, "tap", &passport, &TapAnswer::Ended).await;
    assert_eq!(told.request, TapRequest::Renew);
    let news = stream.next().await;
    assert!(
        matches!(&news, Some(TapEvent::Ended(reason)) if reason.contains("restarted")),
        "{news:?}"
    );
    let _: TapLease = next(&mut commands, &rack.client, "tap", &passport, &TapAnswer::Done).await;
    tasks.close();
    tasks.wait().await;
    mixer.close().await;
}
