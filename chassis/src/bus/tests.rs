//! Tests against a real bus server: the one of `.tools/bin`, which is part of what tests need, or one on `PATH`.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::StreamExt;

use super::fast_batch::{BatchReply, ExpectedSequence, FastBatch, error_code};
use super::*;
use crate::config::SecretString;

/// A server of ours, ended with the test.
struct Server {
    child: Child,
    port: u16,
    dir: tempfile::TempDir,
    config: String,
}

impl Server {
    /// Starts a server with some lines of configuration.
    async fn start(config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (child, port) = spawn(&program(), dir.path(), config, -1).await;
        Self {
            child,
            port,
            dir,
            config: config.to_owned(),
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    async fn restart(&mut self) {
        let port = i32::from(self.port);
        (self.child, self.port) = spawn(&program(), self.dir.path(), &self.config, port).await;
    }

    fn options(&self, domain: &str) -> BusOptions {
        let mut options = BusOptions::new(format!("nats://127.0.0.1:{}", self.port), domain, "test");
        options.reconnect_wait = Duration::from_millis(20);
        options
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn program() -> PathBuf {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/bin");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::iter::once(tools)
        .chain(std::env::split_paths(&path))
        .map(|dir| dir.join("nats-server"))
        .find(|program| program.is_file());
    assert!(
        found.is_some(),
        "no nats-server in .tools/bin or on PATH: run `make tools` first"
    );
    found.unwrap()
}

/// Starts the program and waits until it listens; gives its port.
#[allow(clippy::zombie_processes, reason = "the server it becomes a part of waits for it")]
async fn spawn(program: &Path, dir: &Path, config: &str, port: i32) -> (Child, u16) {
    let text = format!(
        "listen: \"127.0.0.1:{port}\"\nports_file_dir: {:?}\n{config}",
        dir.display().to_string()
    );
    let file = dir.join("server.conf");
    fs::write(&file, text.replace("STORE", &dir.join("js").display().to_string())).unwrap();
    let child = Command::new(program)
        .arg("-c")
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let ports = dir.join(format!("nats-server_{}.ports", child.id()));
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let text = fs::read_to_string(&ports).unwrap_or_default();
        if let Some(port) = text
            .split("nats://127.0.0.1:")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
        {
            return (child, port.parse().unwrap());
        }
        assert!(Instant::now() < deadline, "the server did not start");
        tokio::task::yield_now().await;
    }
}

const STREAMS: &str = "jetstream { store_dir: \"STORE\", domain: plant }\n";

async fn reaches(bus: &BusConnection, wanted: BusState) {
    let mut state = bus.state();
    tokio::time::timeout(Duration::from_secs(10), state.wait_for(|state| *state == wanted))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn the_preflight_distinguishes_a_wrong_domain_from_missing_streams() {
    let server = Server::start(STREAMS).await;
    BusConnection::connect(server.options("plant"))
        .await
        .unwrap()
        .preflight()
        .await
        .unwrap();
    let error = BusConnection::connect(server.options("flux"))
        .await
        .unwrap()
        .preflight()
        .await
        .unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, Error::DomainMismatch { .. }), "{text}");
    assert!(
        text.contains("snake.domain is \"flux\" here") && text.contains("serves \"plant\""),
        "{text}"
    );
    let bare = Server::start("").await;
    let error = BusConnection::connect(bare.options("flux"))
        .await
        .unwrap()
        .preflight()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::NoStreams { .. }), "{error}");
}

#[tokio::test]
async fn a_missing_token_is_denied_and_the_right_one_accepted() {
    let server = Server::start("authorization { token: hush }\n").await;
    let error = BusConnection::connect(server.options("plant")).await.unwrap_err();
    assert!(matches!(error, Error::BusDenied { .. }), "{error}");
    assert!(error.to_string().contains("PLATFORM_SNAKE_TOKEN"));
    let mut options = server.options("plant");
    options.token = Some(SecretString::new("hush"));
    BusConnection::connect(options).await.unwrap();
}

#[tokio::test]
async fn a_wrong_token_is_denied_with_the_key_to_set_and_without_either_token() {
    let server = Server::start("authorization { token: hush }\n").await;
    let mut options = server.options("plant");
    options.token = Some(SecretString::new("guessed"));
    let error = BusConnection::connect(options.clone()).await.unwrap_err();
    assert!(matches!(error, Error::BusDenied { .. }), "{error}");
    assert_eq!(error.exit(), crate::ExitReason::Denied);
    let text = error.to_string();
    assert!(
        text.contains("refuses our credentials") && text.contains("PLATFORM_SNAKE_TOKEN"),
        "{text}"
    );
    for said in [text, format!("{error:?}"), format!("{options:?}")] {
        assert!(!said.contains("guessed") && !said.contains("hush"), "{said}");
    }
    options.token = Some(SecretString::new("hush"));
    BusConnection::connect(options).await.unwrap();
}

#[tokio::test]
async fn a_killed_server_is_noticed_and_found_again() {
    let mut server = Server::start(STREAMS).await;
    let bus = BusConnection::connect(server.options("plant")).await.unwrap();
    reaches(&bus, BusState::Connected).await;
    server.kill();
    reaches(&bus, BusState::Disconnected).await;
    server.restart().await;
    reaches(&bus, BusState::Connected).await;
    bus.close(Duration::from_secs(5)).await;
    assert_eq!(*bus.state().borrow(), BusState::Closed);
}

#[tokio::test]
async fn a_server_whose_name_is_gone_keeps_nobody_from_the_others() {
    let mut server = Server::start(STREAMS).await;
    let mut options = server.options("plant");
    options.url = format!("nats://a.invalid:4222,{}", options.url);
    for _ in 0..4 {
        let bus = BusConnection::connect(options.clone()).await.unwrap();
        bus.close(Duration::from_secs(5)).await;
    }
    let bus = BusConnection::connect_forever(options).await.unwrap();
    for _ in 0..2 {
        reaches(&bus, BusState::Connected).await;
        server.kill();
        reaches(&bus, BusState::Disconnected).await;
        server.restart().await;
    }
    reaches(&bus, BusState::Connected).await;
}

#[tokio::test]
async fn a_rack_that_starts_before_the_bus_waits_for_it() {
    let mut server = Server::start(STREAMS).await;
    server.kill();
    let bus = BusConnection::connect_forever(server.options("plant")).await.unwrap();
    assert_eq!(*bus.state().borrow(), BusState::Disconnected);
    server.restart().await;
    tokio::time::timeout(Duration::from_secs(10), bus.wait_connected())
        .await
        .unwrap();
    bus.preflight().await.unwrap();
}

#[tokio::test]
async fn the_first_valid_reply_is_taken_and_a_request_without_one_reports_why() {
    let server = Server::start("").await;
    let bus = BusConnection::connect(server.options("plant")).await.unwrap();
    let within = Duration::from_secs(5);
    let any = |body: &[u8]| Some(body.to_vec());
    let error = bus.ask("nobody.there", Vec::new(), within, any).await.unwrap_err();
    assert!(matches!(error, Error::NoResponder { .. }), "{error}");
    let mut asked = bus.client.subscribe("echo").await.unwrap();
    bus.client.flush().await.unwrap();
    let client = bus.client.clone();
    let answers = tokio::spawn(async move {
        let question = asked.next().await.unwrap();
        let to = question.reply.unwrap();
        for answer in ["not", "", "hello", "late"] {
            client.publish(to.clone(), answer.into()).await.unwrap();
        }
    });
    let mut seen = Vec::new();
    let hello = |body: &[u8]| {
        seen.push(body.to_vec());
        (body == b"hello").then_some(7)
    };
    assert_eq!(bus.ask("echo", b"hi".to_vec(), within, hello).await.unwrap(), 7);
    assert_eq!(seen, [&b"not"[..], b"", b"hello"]);
    let mut silent = bus.client.subscribe("silent").await.unwrap();
    bus.client.flush().await.unwrap();
    let client = bus.client.clone();
    let noise = tokio::spawn(async move {
        let to = silent.next().await.unwrap().reply.unwrap();
        // Answers without end do not make it wait longer.
        while client.publish(to.clone(), "noise".into()).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    let none = |_: &[u8]| None::<()>;
    let error = bus
        .ask("silent", Vec::new(), Duration::from_millis(50), none)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "no answer on silent within 50ms");
    noise.abort();
    answers.await.unwrap();
}

#[tokio::test]
async fn a_request_while_disconnected_fails_at_once_and_is_not_sent_later() {
    let mut server = Server::start("").await;
    let bus = BusConnection::connect(server.options("plant")).await.unwrap();
    // Over the same connection it is subscribed to before anything that was kept is sent.
    let mut asked = bus.client.subscribe("desk").await.unwrap();
    let patient = Duration::from_secs(60);
    let ask = |question: &'static str| {
        let bus = bus.clone();
        tokio::spawn(async move {
            bus.ask("desk", question.into(), patient, |body| Some(body.to_vec()))
                .await
        })
    };
    let under_way = ask("under way");
    assert_eq!(asked.next().await.unwrap().payload, "under way");
    let began = Instant::now();
    server.kill();
    let error = under_way.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::NotConnected { .. }), "{error}");
    for _ in 0..20 {
        let error = ask("stale").await.unwrap().unwrap_err();
        assert!(matches!(error, Error::NotConnected { .. }), "{error}");
    }
    assert!(began.elapsed() < patient, "nobody waited for an answer");
    server.restart().await;
    reaches(&bus, BusState::Connected).await;
    let fresh = ask("fresh");
    let question = asked.next().await.unwrap();
    assert_eq!(question.payload, "fresh");
    let answer = bus.client.publish(question.reply.unwrap(), "yes".into());
    answer.await.unwrap();
    assert_eq!(fresh.await.unwrap().unwrap(), b"yes");
}

#[tokio::test]
async fn a_request_that_may_be_late_is_delivered_after_a_reconnect() {
    let mut server = Server::start("").await;
    let bus = BusConnection::connect(server.options("plant")).await.unwrap();
    let mut asked = bus.client.subscribe("desk").await.unwrap();
    bus.client.flush().await.unwrap();
    server.kill();
    reaches(&bus, BusState::Disconnected).await;
    let asking = bus.clone();
    let late = tokio::spawn(async move {
        let whole = |body: &[u8]| Some(body.to_vec());
        asking
            .ask_over_outages("desk", b"late".to_vec(), Duration::from_secs(60), whole)
            .await
    });
    server.restart().await;
    let question = asked.next().await.unwrap();
    assert_eq!(question.payload, "late");
    let answer = bus.client.publish(question.reply.unwrap(), "yes".into());
    answer.await.unwrap();
    assert_eq!(late.await.unwrap().unwrap(), b"yes");
}

/// A server with one stream of subjects `s.>` that accepts batches.
async fn batching_server() -> (Server, BusConnection) {
    let server = Server::start(STREAMS).await;
    let bus = BusConnection::connect(server.options("plant")).await.unwrap();
    let config = async_nats::jetstream::stream::Config {
        name: "S".to_owned(),
        subjects: vec!["s.>".to_owned()],
        max_message_size: 1000,
        allow_batch_publish: true,
        ..Default::default()
    };
    bus.js.create_stream(config).await.unwrap();
    (server, bus)
}

/// Publishes bodies of these sizes in one batch; the replies but those of the flow, through the one that closes it.
async fn publish_batch(bus: &BusConnection, sizes: &[usize], expected: Option<&ExpectedSequence>) -> Vec<BatchReply> {
    let mut batch = FastBatch::open(bus, 100).await.unwrap();
    for size in sizes {
        let body = vec![b'x'; *size].into();
        batch
            .send("s.a".into(), async_nats::HeaderMap::new(), body, expected)
            .await
            .unwrap();
    }
    batch.commit().await.unwrap();
    let mut replies = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(10), batch.next_reply());
        let reply = next.await.unwrap().unwrap();
        let is_last = match &reply {
            BatchReply::Stored(_) => continue,
            BatchReply::Closed { .. } => true,
            BatchReply::Rejected(rejection) => rejection.number == 1,
        };
        replies.push(reply);
        if is_last {
            return replies;
        }
    }
}

#[tokio::test]
async fn a_batch_is_stored_up_to_its_first_rejected_message() {
    let (_server, bus) = batching_server().await;
    let closed = |count, sequence| BatchReply::Closed { count, sequence };
    assert_eq!(publish_batch(&bus, &[10; 300], None).await, [closed(300, 300)]);
    let replies = publish_batch(&bus, &[10, 10, 2000, 10, 10], None).await;
    let BatchReply::Rejected(rejection) = &replies[0] else {
        panic!("{replies:?}");
    };
    assert_eq!((rejection.number, rejection.code), (3, error_code::MESSAGE_TOO_LARGE));
    assert_eq!(replies.last(), Some(&closed(2, 302)));
    let replies = publish_batch(&bus, &[2000, 10], None).await;
    assert!(
        matches!(&replies[..], [BatchReply::Rejected(first)] if first.code == error_code::MESSAGE_TOO_LARGE),
        "{replies:?}"
    );
    let mut stream = bus.js.get_stream("S").await.unwrap();
    assert_eq!(stream.info().await.unwrap().state.messages, 302);
}

#[tokio::test]
async fn a_batch_starts_only_on_the_expected_last_message() {
    let (_server, bus) = batching_server().await;
    let expected = |sequence| ExpectedSequence {
        subject: "s.a".into(),
        sequence,
    };
    publish_batch(&bus, &[10; 3], None).await;
    let replies = publish_batch(&bus, &[10; 2], Some(&expected(3))).await;
    assert_eq!(replies, [BatchReply::Closed { count: 2, sequence: 5 }]);
    let replies = publish_batch(&bus, &[10; 2], Some(&expected(3))).await;
    assert!(
        matches!(&replies[..], [BatchReply::Rejected(first)] if first.code == error_code::WRONG_LAST_SEQUENCE),
        "{replies:?}"
    );
    let mut stream = bus.js.get_stream("S").await.unwrap();
    assert_eq!(stream.info().await.unwrap().state.messages, 5);
}
