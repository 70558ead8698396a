//! For tests: the broker mosquitto, a client, and a proxy that cuts connections.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod scripted;

pub(crate) use scripted::{ACCEPTED, Guest, RESUMED, ScriptedBroker};

use std::collections::{HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use gear_spec::mqtt::BrokerConfig;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{
    AckPacketKind, BrokerConnection, BrokerEndpoint, BrokerPacket, PacketProperties, PublishPacket, QosLevel,
    SessionOptions, TopicSubscription, acknowledge, publish, subscribe,
};
use crate::policy::RackPolicy;

/// Longer than anything takes that happens at all.
const PATIENCE: Duration = Duration::from_secs(60);
/// Versions as a scenario writes them.
pub(crate) const VERSIONS: [&str; 2] = ["3.1.1", "5"];

/// Awaits what must happen.
pub(crate) async fn happens<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// The broker, in a folder of its own.
pub(crate) struct Mosquitto {
    folder: tempfile::TempDir,
    pub(crate) port: u16,
    process: Child,
    /// What it says.
    log: mpsc::UnboundedReceiver<String>,
}

/// The program, where there is one.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders
        .map(|folder| folder.join("mosquitto"))
        .find(|file| file.exists())
}

impl Mosquitto {
    /// Starts a broker; none, and a line that says so, where it is not installed.
    pub(crate) async fn start(more: &str) -> Option<Self> {
        Self::start_with(more, &[]).await
    }

    /// The same, with files in its folder, which `{folder}` names.
    pub(crate) async fn start_with(more: &str, files: &[(&str, &str)]) -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("skipped: mosquitto is missing; install it with: apt-get install mosquitto");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        loop {
            // Nobody else is given this port so soon; if somebody is, another one is tried.
            let port = TcpListener::bind("127.0.0.1:0")
                .await
                .unwrap()
                .local_addr()
                .unwrap()
                .port();
            let config = configuration(folder.path(), port, more);
            std::fs::write(folder.path().join("mosquitto.conf"), config).unwrap();
            if let Some((process, log)) = launch(&program, folder.path()).await {
                return Some(Self {
                    folder,
                    port,
                    process,
                    log,
                });
            }
        }
    }

    /// Ends it as an operator does, and starts it again where it was.
    pub(crate) async fn restart(&mut self) {
        let id = nix::unistd::Pid::from_raw(self.process.id().unwrap().try_into().unwrap());
        nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
        happens("mosquitto ends", self.process.wait()).await.unwrap();
        let (process, log) = launch(&program().unwrap(), self.folder.path()).await.unwrap();
        (self.process, self.log) = (process, log);
    }

    /// Waits until it logs a text.
    pub(crate) async fn logs(&mut self, text: &str) {
        let found = async {
            while let Some(line) = self.log.recv().await {
                if line.contains(text) {
                    return true;
                }
            }
            false
        };
        assert!(happens(text, found).await, "mosquitto ended and did not log {text:?}");
    }

    pub(crate) fn client_config(&self, client_id: &str, version: &str) -> Value {
        json!({ "address": format!("127.0.0.1:{}", self.port), "client_id": client_id, "version": version, "reconnect_max": "200ms" })
    }

    pub(crate) async fn client(&self, client_id: &str) -> Client {
        Client::connect(self.client_config(client_id, "5")).await
    }
}

fn configuration(folder: &Path, port: u16, more: &str) -> String {
    let folder = folder.display().to_string();
    let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
    let more = more.replace("{folder}", &folder);
    let access = if more.contains("allow_anonymous") {
        ""
    } else {
        "allow_anonymous true\n"
    };
    format!(
        "listener {port} 127.0.0.1\nuser {user}\npersistence true\npersistence_location {folder}/\nmax_queued_messages 0\n\
         log_dest stderr\nlog_type all\n{access}{more}\n"
    )
}

/// Starts the program; none if it could not begin.
async fn launch(program: &Path, folder: &Path) -> Option<(Child, mpsc::UnboundedReceiver<String>)> {
    let mut process = Command::new(program)
        .arg("-c")
        .arg(folder.join("mosquitto.conf"))
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    while let Some(line) = happens("mosquitto begins", lines.next_line()).await.unwrap() {
        if line.ends_with(" running") {
            let (say, log) = mpsc::unbounded_channel();
            tokio::spawn(async move {
                while let Ok(Some(line)) = lines.next_line().await {
                    say.send(line).ok();
                }
            });
            return Some((process, log));
        }
        said.push(line);
    }
    assert!(
        said.iter().any(|line| line.contains("Address already in use")),
        "{said:#?}"
    );
    None
}

/// A client that speaks for the test.
pub(crate) struct Client {
    config: Value,
    connection: BrokerConnection,
    packets: VecDeque<BrokerPacket>,
    last_id: u16,
    /// Messages of QoS 2 that have arrived and were not released.
    arrived: HashSet<u16>,
}

impl Client {
    pub(crate) async fn connect(config: Value) -> Self {
        Self {
            connection: Self::open(&config).await,
            config,
            packets: VecDeque::new(),
            last_id: 0,
            arrived: HashSet::new(),
        }
    }

    /// Connects again, in the same session.
    pub(crate) async fn reconnect(&mut self) {
        self.packets.clear();
        self.connection = Self::open(&self.config).await;
        assert!(self.connection.connected.session_present);
    }

    async fn open(config: &Value) -> BrokerConnection {
        let broker: BrokerConfig = serde_json::from_value(config.clone()).unwrap();
        let options = SessionOptions {
            is_clean: false,
            session_expiry: 3600,
            receive_maximum: 100,
            max_message: 1 << 20,
        };
        BrokerConnection::open(
            &BrokerEndpoint::of(&broker, None, &RackPolicy::for_tests()).unwrap(),
            options,
        )
        .await
        .unwrap()
    }

    async fn packet(&mut self) -> BrokerPacket {
        while self.packets.is_empty() {
            let next = happens("a packet comes", self.connection.next()).await;
            self.packets.extend(next.unwrap());
        }
        self.packets.pop_front().unwrap()
    }

    async fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.connection.send(&out).await.unwrap();
    }

    pub(crate) async fn subscribe(&mut self, filter: &str, qos: QosLevel) {
        let topics = std::iter::once(TopicSubscription { filter, qos });
        self.send(|out| subscribe(super::MqttVersion::V5, 1, topics, out)).await;
        let answer = BrokerPacket::Subscribed {
            id: 1,
            codes: vec![qos.into()],
            text: None,
        };
        assert_eq!(self.packet().await, answer);
    }

    /// Publishes a message until the broker has it.
    pub(crate) async fn publish(&mut self, topic: &str, qos: QosLevel, payload: &[u8]) {
        self.publish_with(topic, qos, payload, PacketProperties::default())
            .await;
    }

    pub(crate) async fn publish_with(
        &mut self,
        topic: &str,
        qos: QosLevel,
        payload: &[u8],
        properties: PacketProperties,
    ) {
        self.last_id += 1;
        let message = PublishPacket {
            properties,
            ..message(topic, qos, self.last_id, payload)
        };
        self.send(|out| publish(super::MqttVersion::V5, &message, out)).await;
        let steps: &[_] = match qos {
            QosLevel::AtMostOnce => &[],
            QosLevel::AtLeastOnce => &[AckPacketKind::PubAck],
            QosLevel::ExactlyOnce => &[AckPacketKind::PubRec, AckPacketKind::PubComp],
        };
        for step in steps {
            let packet = self.packet().await;
            assert!(
                matches!(&packet, BrokerPacket::Acknowledged { kind, .. } if kind == step),
                "{packet:?}"
            );
            if *step == AckPacketKind::PubRec {
                let id = self.last_id;
                self.send(|out| acknowledge(AckPacketKind::PubRel, id, out)).await;
            }
        }
    }

    /// The next message, acknowledged; one of QoS 2 that comes again is the same one.
    pub(crate) async fn receive(&mut self) -> PublishPacket {
        loop {
            match self.packet().await {
                BrokerPacket::Publish(message) => {
                    if self.take(&message).await {
                        return message;
                    }
                }
                BrokerPacket::Acknowledged { id, .. } => {
                    self.arrived.remove(&id);
                    self.send(|out| acknowledge(AckPacketKind::PubComp, id, out)).await;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// Acknowledges a message; whether it is a new one.
    async fn take(&mut self, message: &PublishPacket) -> bool {
        let kind = match message.qos {
            QosLevel::AtMostOnce => return true,
            QosLevel::AtLeastOnce => AckPacketKind::PubAck,
            QosLevel::ExactlyOnce => AckPacketKind::PubRec,
        };
        self.send(|out| acknowledge(kind, message.id, out)).await;
        message.qos == QosLevel::AtLeastOnce || self.arrived.insert(message.id)
    }
}

/// A message.
pub(crate) fn message(topic: &str, qos: QosLevel, id: u16, payload: &[u8]) -> PublishPacket {
    PublishPacket {
        topic: topic.to_owned(),
        qos,
        retain: false,
        dup: false,
        id: if qos == QosLevel::AtMostOnce { 0 } else { id },
        properties: PacketProperties::default(),
        payload: payload.to_vec(),
    }
}

/// Stands between a gear and a broker, and cuts their connections.
pub(crate) struct Proxy {
    pub(crate) address: String,
    connections: Arc<Mutex<JoinSet<()>>>,
    accepted: mpsc::UnboundedReceiver<()>,
    _accepting: JoinSet<()>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let connections = Arc::new(Mutex::new(JoinSet::new()));
        let (accept, accepted) = mpsc::unbounded_channel();
        let (all, mut accepting) = (Arc::clone(&connections), JoinSet::new());
        accepting.spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                all.lock().spawn(async move {
                    if let Ok(mut far) = TcpStream::connect(("127.0.0.1", port)).await {
                        tokio::io::copy_bidirectional(&mut near, &mut far).await.ok();
                    }
                });
                accept.send(()).ok();
            }
        });
        Self {
            address,
            connections,
            accepted,
            _accepting: accepting,
        }
    }

    /// Awaits the next connection.
    pub(crate) async fn accepted(&mut self) {
        happens("a gear connects", self.accepted.recv()).await.unwrap();
    }

    /// Ends all connections.
    pub(crate) fn cut(&self) {
        self.connections.lock().abort_all();
    }
}
