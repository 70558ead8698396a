//! Real Racks that join by invite, and somebody on the way.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chassis::config::LogThrottleConfig;
use chassis::log_rate_limiter::LogRateLimiter;
use futures::FutureExt as _;
use model::RackInvite;
use model::passport::StateBundle;
use parking_lot::Mutex;
use rack::config::RackConfig;
use rack::telemetry::TelemetryLayer;
use rack::{AgentParts, AgentStatus, RackAgent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

use super::real;
use super::*;

const TLS: (&str, &str) = ("snake.tls", "on");

/// What a Rack sent to somebody on the way, and what it was sent.
type Capture = Arc<Mutex<Vec<u8>>>;

/// An address that leads to another one, and all bytes that went there or back.
async fn recorder() -> (SocketAddr, Capture, Arc<Mutex<Option<u16>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (capture, port) = (Capture::default(), Arc::new(Mutex::new(None)));
    let (kept, leads_to) = (Arc::clone(&capture), Arc::clone(&port));
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Some(port) = *leads_to.lock() else { continue };
            let Ok(far) = TcpStream::connect(("127.0.0.1", port)).await else {
                continue;
            };
            let ((near_out, near_in), (far_out, far_in)) = (near.into_split(), far.into_split());
            tokio::spawn(pump(near_out, far_in, Arc::clone(&kept)));
            tokio::spawn(pump(far_out, near_in, Arc::clone(&kept)));
        }
    });
    (address, capture, port)
}

async fn pump(mut from: tokio::net::tcp::OwnedReadHalf, mut to: tokio::net::tcp::OwnedWriteHalf, capture: Capture) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        capture.lock().extend_from_slice(&bytes[..read]);
        if to.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// The text of an invite for `rack-a`.
async fn invite(mixer: &Mixer) -> String {
    let hour = Duration::from_secs(3_600);
    let made = mixer
        .control()
        .invite("rack-a".parse().unwrap(), hour, &AuditActor::Mixer);
    made.await.unwrap().done().unwrap().0
}

/// The secret of an invite: what its form ends with, before the checksum.
fn secret(invite: &str) -> Vec<u8> {
    let bytes = URL_SAFE_NO_PAD.decode(invite.strip_prefix("plinv1_").unwrap()).unwrap();
    bytes[bytes.len() - 36..bytes.len() - 4].to_vec()
}

/// Starts a Rack with an invite and nothing else that says where its cluster is.
async fn joined(folder: &Path, invite: &str, more: &[(&str, &str)]) -> RackAgent {
    let dir = folder.join("rack").display().to_string();
    let files = folder.join("files").display().to_string();
    let flags = [
        ("base.state_dir", dir.as_str()),
        ("store.dir", dir.as_str()),
        ("policy.read_roots", files.as_str()),
        ("policy.write_roots", files.as_str()),
        ("snake.reconnect_wait", "50ms"),
        ("snake.connect_timeout", "5s"),
        ("snake.convergence_delay", "10ms"),
        ("rack.heartbeat_interval", "100ms"),
        ("rack.enrollment_timeout", "5s"),
    ];
    let flags = flags
        .iter()
        .chain(more)
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let sources = ConfigSources {
        flags: flags.collect(),
        env: [("PLATFORM_RACK_INVITE".to_owned(), invite.to_owned())].into(),
        ..ConfigSources::default()
    };
    let config = RackConfig::of(&load(&rack::config::SCHEMA, &sources).unwrap()).unwrap();
    let throttle = Arc::new(LogRateLimiter::new(LogThrottleConfig {
        enabled: true,
        rate: 500.0,
        burst: 50,
    }));
    let parts = AgentParts::new(
        config,
        chassis::system_clock(),
        chassis::os_entropy(),
        throttle,
        TelemetryLayer::default(),
    );
    RackAgent::start(parts).await.unwrap()
}

/// The passport in the state file of an invited Rack.
fn kept_passport(folder: &Path) -> Option<Passport> {
    let bytes = std::fs::read(folder.join("rack/rack.flux")).unwrap();
    let state = StateBundle::from_bytes(&bytes).unwrap();
    assert!(state.joined.is_some());
    state.open().unwrap()
}

/// Starts the Rack in a folder again, with an invite that leads to this Mixer, which admits it.
async fn joins_its_own_cluster(folder: &Path, mixer: &Mixer) {
    let agent = joined(folder, &invite(mixer).await, &[]).await;
    agent.wait_for(is_active).await;
    agent.close().await;
    let passport = kept_passport(folder).unwrap();
    assert_eq!(passport.cluster_id, mixer.control().cluster_id());
}

fn is_active(status: &AgentStatus) -> bool {
    status.identity.is_some() && status.state == Some(RackState::Active)
}

/// A Rack joins through a recorder, is given a scenario and sends messages; the bytes that somebody on the way has then, and the invite.
async fn recorded(tls: &str) -> (Vec<u8>, String) {
    let folder = tempfile::tempdir().unwrap();
    let (address, capture, port) = recorder().await;
    let lines = folder.path().join("files/app.log");
    let scenario = write_scenario(folder.path(), &real::scenario(&lines, folder.path()));
    let (url, bus_port) = (format!("nats://{address}"), free_port());
    *port.lock() = Some(bus_port);
    let bus_port = bus_port.to_string();
    let flags = [
        ("snake.tls", tls),
        ("snake.port", bus_port.as_str()),
        ("snake.url", url.as_str()),
        ("mixer.startup_scenario", scenario.as_str()),
    ];
    let mixer = start(folder.path(), &flags).await;
    let invite = invite(&mixer).await;
    let agent = joined(folder.path(), &invite, &[]).await;
    agent.wait_for(is_active).await;
    real::write(&lines, 0..10);
    eventually("each line over the bus", || async {
        real::is_written(folder.path(), 10)
    })
    .await;
    assert_eq!(view(mixer.control(), "rack-a").key_fingerprint, agent.key_fingerprint());
    agent.close().await;
    // It belongs to the cluster now, and its state knows whom it trusts: the invite is not needed any more.
    let again = joined(folder.path(), "", &[]).await;
    again.wait_for(is_active).await;
    again.close().await;
    mixer.close().await;
    let bytes = capture.lock().clone();
    (bytes, invite)
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_on_the_way_reads_neither_the_invite_nor_the_scenario_nor_messages() {
    let (bytes, invite) = recorded("on").await;
    assert!(bytes.len() > 10_000, "{}", bytes.len());
    let texts = ["line 0000", "file_tail", "flux.", "rack-a"];
    for text in texts {
        assert!(!holds(&bytes, text.as_bytes()), "{text} is readable");
    }
    assert!(!holds(&bytes, &secret(&invite)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_secret_of_an_invite_is_not_sent_in_clear_text_either() {
    let (bytes, invite) = recorded("off").await;
    for text in ["line 0000", "file_tail", "flux.agent.enroll"] {
        assert!(
            holds(&bytes, text.as_bytes()),
            "{text} is what a capture shows without TLS"
        );
    }
    assert!(!holds(&bytes, &secret(&invite)) && !holds(&bytes, invite.as_bytes()));
}

/// A server that says what a bus without TLS says, then accepts TLS with a certificate of its own if it is to; what clients sent it.
async fn impostor(offers: Option<TlsAcceptor>) -> (SocketAddr, Capture, tokio::sync::mpsc::UnboundedReceiver<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let capture = Capture::default();
    let (tell, accepted) = tokio::sync::mpsc::unbounded_channel();
    let kept = Arc::clone(&capture);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let (kept, offers, tell) = (Arc::clone(&kept), offers.clone(), tell.clone());
            tokio::spawn(async move {
                let info = r#"{"server_id":"X","version":"2.15.1","proto":1,"headers":true,"max_payload":1048576,"tls_required":false}"#;
                client.write_all(format!("INFO {info}\r\n").as_bytes()).await.unwrap();
                if let Some(acceptor) = offers {
                    let _ = tell.send(acceptor.accept(client).await.is_ok());
                    return;
                }
                let mut bytes = vec![0; 1 << 16];
                if let Ok(read) = client.read(&mut bytes).await {
                    kept.lock().extend_from_slice(&bytes[..read]);
                    let _ = tell.send(false);
                }
            });
        }
    });
    (address, capture, accepted)
}

/// An invite as the Mixer made it, but for another address.
async fn invite_to(mixer: &Mixer, address: SocketAddr) -> String {
    let mut made: RackInvite = invite(mixer).await.parse().unwrap();
    made.url = format!("nats://{address}");
    made.to_text().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_man_in_the_middle_who_strips_tls_or_has_another_authority_gets_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[TLS]).await;
    let (address, capture, mut heard) = impostor(None).await;
    let agent = joined(folder.path(), &invite_to(&mixer, address).await, &[]).await;
    heard.recv().await.unwrap();
    agent.close().await;
    assert_eq!(kept_passport(folder.path()), None);
    let bytes = capture.lock().clone();
    assert_eq!(
        bytes.first(),
        Some(&0x16),
        "a handshake of TLS, whatever the greeting says"
    );
    assert!(!holds(&bytes, b"CONNECT") && !holds(&bytes, b"nkey"));

    let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::try_from(own.signing_key.serialize_der()).unwrap();
    let provider = tokio_rustls::rustls::crypto::ring::default_provider();
    let server = ServerConfig::builder_with_provider(Arc::new(provider)).with_safe_default_protocol_versions();
    let server = server
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![own.cert.der().clone()], key);
    let (address, _, mut accepted) = impostor(Some(TlsAcceptor::from(Arc::new(server.unwrap())))).await;
    let rack = folder.path().join("other");
    let agent = joined(&rack, &invite_to(&mixer, address).await, &[]).await;
    for _ in 0..2 {
        assert!(!accepted.recv().await.unwrap(), "the Rack ended the handshake");
    }
    assert_eq!(agent.status(), AgentStatus::default());
    agent.close().await;
    assert_eq!(kept_passport(&rack), None);
    joins_its_own_cluster(&rack, &mixer).await;
    mixer.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_clusters_mixer_is_not_believed_by_who_was_invited() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mixer, impostor) = (
        start(ours.path(), &[]).await,
        start(theirs.path(), &[("enrollment.auto_adopt", "true")]).await,
    );
    let theirs = impostor.control().bus.client();
    let mut hellos = theirs.subscribe(subject::HELLO).await.unwrap();
    let mut transcripts = theirs.subscribe(subject::ENROLL).await.unwrap();
    theirs.flush().await.unwrap();
    let address = impostor
        .control()
        .bus_status()
        .url
        .replace("nats://", "")
        .parse()
        .unwrap();
    let agent = joined(
        ours.path(),
        &invite_to(&mixer, address).await,
        &[("rack.enrollment_timeout", "300ms")],
    )
    .await;
    // A hello is answered and the answer passed over, so the Rack says hello again, and proves nothing.
    for _ in 0..2 {
        hellos.next().await.unwrap();
    }
    assert!(transcripts.next().now_or_never().is_none());
    assert_eq!(impostor.control().racks().unwrap(), []);
    assert_eq!(agent.status(), AgentStatus::default());
    agent.close().await;
    assert_eq!(kept_passport(ours.path()), None);
    joins_its_own_cluster(ours.path(), &mixer).await;
    mixer.close().await;
    impostor.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_hears_nothing_of_what_another_one_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = start(folder.path(), &[("enrollment.auto_adopt", "true")]).await;
    let url = mixer.control().bus_status().url;
    let door = || async_nats::ConnectOptions::new().custom_inbox_prefix(subject::inbox(subject::ENROLL_USER));
    let curious = door().connect(&url).await.unwrap();
    let inbox = format!("{}.>", subject::inbox(subject::ENROLL_USER));
    let mut heard = curious.subscribe(inbox).await.unwrap();
    curious.flush().await.unwrap();
    let agent = joined(folder.path(), &invite(&mixer).await, &[]).await;
    agent.wait_for(is_active).await;
    for _ in 0..2 {
        let answer = heard.next().await.unwrap().payload;
        assert!(answer.len() > 100 && !holds(&answer, b"rack-a") && SignedPayload::from_bytes(&answer).is_err());
    }
    agent.close().await;
    // Who names no key is answered as everybody hears it.
    let mut plain = FakeRack::connect(&mixer, 7).await;
    plain.client = door().connect(&url).await.unwrap();
    plain.adopted("rack-b").await;
    assert!(SignedPayload::from_bytes(&heard.next().await.unwrap().payload).is_ok());
    mixer.close().await;
}
