//! The bus with a real server.
#![allow(clippy::unwrap_used, clippy::panic, clippy::expect_used, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use async_nats::ConnectOptions;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use chassis::ExitReason;
use chassis::config::SecretString;
use futures::StreamExt as _;
use model::subject::RackCommand;
use model::{EntityId, subject, telemetry_codec};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nkeys::KeyPair;
use tokio::sync::watch;

use super::client::{CommandError, MixerBus, MixerCredentials, ReplyRouting, ServerProfile};
use super::health::ServerHealth;
use super::system_connection::SystemConnection;
use super::{
    AclEntry, AclSnapshot, BusAuthorization, BusError, BusServer, BusSettings, ManagedServer, ProcessStatus,
    ServerDeployment,
};
use crate::cluster::Cluster;
use crate::registry::ClusterRegistry;
use crate::tasks::{FailureReporter, failure_channel};
use crate::testing::{bus_settings, eventually, managed, nats_server, operator};

fn fatal() -> FailureReporter {
    failure_channel().0
}

async fn start(settings: BusSettings) -> BusServer {
    BusServer::start(settings, &fatal()).await.unwrap()
}

async fn refused(settings: BusSettings) -> BusError {
    BusServer::start(settings, &fatal()).await.map(|_| ()).unwrap_err()
}

async fn config_of(server: &BusServer, stream: &str) -> Option<Config> {
    let stream = server.bus().jetstream().get_stream(stream).await.ok()?;
    Some(stream.cached_info().config.clone())
}

fn pid_of(server: &BusServer) -> Pid {
    Pid::from_raw(i32::try_from(server.bus().status().pid.unwrap()).unwrap())
}

fn is_running(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

#[tokio::test]
async fn a_managed_server_has_every_stream_with_its_limits_and_ends_with_its_owner() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(bus_settings(managed(folder.path()))).await;
    let business = config_of(&server, "flux-msg").await.unwrap();
    assert_eq!(business.subjects, ["flux.msg.>", "flux.gear.>"]);
    assert_eq!(
        (business.discard, business.storage),
        (DiscardPolicy::New, StorageType::File)
    );
    assert_eq!(business.max_age, Duration::ZERO, "the server believes every clock");
    let telemetry = config_of(&server, "flux-telemetry").await.unwrap();
    assert_eq!(telemetry.subjects, ["flux.telemetry.>"]);
    assert_eq!(telemetry.discard, DiscardPolicy::Old);
    assert_eq!(telemetry.duplicate_window, Duration::from_secs(600));
    let events = config_of(&server, "flux-events").await.unwrap();
    assert!(events.no_ack);
    let bytes = business.max_bytes + telemetry.max_bytes + events.max_bytes;
    assert!(events.max_bytes > 0 && bytes <= 512 << 20, "{bytes}");

    let status = server.bus().status();
    assert!(status.connected && status.managed && status.healthy);
    assert_eq!((status.power_safe, status.restarts), (Some(false), 0));
    assert!(status.durability.contains("not power-safe"));
    for (path, wanted) in [
        ("js/nats.conf", 0o600),
        ("keys/bus-operator.nk", 0o600),
        ("keys", 0o700),
    ] {
        let mode = std::fs::metadata(folder.path().join(path))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, wanted, "{path}");
    }
    let pid = pid_of(&server);
    server.close().await;
    assert!(!is_running(pid));
}

#[tokio::test]
async fn a_killed_server_comes_back_on_its_port_and_the_same_connection_finds_its_streams() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(bus_settings(managed(folder.path()))).await;
    let js = server.bus().jetstream().clone();
    let acked = js
        .publish("flux.msg.a.b.c", "kept".into())
        .await
        .unwrap()
        .await
        .unwrap();
    js.delete_stream("flux-telemetry").await.unwrap();
    let (pid, url) = (pid_of(&server), server.bus().url().to_owned());
    kill(pid, Signal::SIGKILL).unwrap();
    eventually("a new process", || async {
        let status = server.bus().status();
        (status.restarts == 1 && status.connected && status.pid.is_some()).then_some(())
    })
    .await;
    assert_ne!(pid_of(&server), pid);
    assert_eq!(server.bus().url(), url);
    eventually("the deleted stream, ensured again", || {
        config_of(&server, "flux-telemetry")
    })
    .await;
    let stream = js.get_stream("flux-msg").await.unwrap();
    let kept = stream.get_raw_message(acked.sequence).await.unwrap();
    assert_eq!(kept.payload.as_ref(), b"kept");
    server.close().await;
}

#[tokio::test]
async fn changed_ages_and_subjects_reach_existing_streams() {
    let folder = tempfile::tempdir().unwrap();
    start(bus_settings(managed(folder.path()))).await.close().await;
    let mut settings = bus_settings(managed(folder.path()));
    settings.streams.telemetry_max_age = Duration::from_secs(60);
    settings.streams.subjects = ["flux.msg.>", "flux.gear.>", "shop.>"].map(str::to_owned).into();
    let server = start(settings).await;
    let business = config_of(&server, "flux-msg").await.unwrap();
    assert_eq!(business.subjects.len(), 3);
    let telemetry = config_of(&server, "flux-telemetry").await.unwrap();
    assert_eq!(telemetry.max_age.as_secs(), 60);
    assert!(telemetry.duplicate_window <= telemetry.max_age);
    server.close().await;
}

#[tokio::test]
async fn another_name_for_the_stream_of_messages_is_refused_with_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    start(bus_settings(managed(folder.path()))).await.close().await;
    let mut settings = bus_settings(managed(folder.path()));
    settings.streams.name = "orders".to_owned();
    let refused = BusServer::start(settings, &failure_channel().0)
        .await
        .unwrap_err()
        .to_string();
    assert!(refused.contains("the stream flux-msg has these subjects"), "{refused}");
}

#[tokio::test]
async fn a_second_server_on_one_store_is_refused_and_names_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let first = start(bus_settings(managed(folder.path()))).await;
    let error = refused(bus_settings(managed(folder.path()))).await;
    assert!(matches!(error, BusError::Locked { .. }), "{error}");
    assert!(
        error.to_string().contains(&*folder.path().join("js").to_string_lossy()),
        "{error}"
    );
    assert!(
        config_of(&first, "flux-msg").await.is_some(),
        "the first one is not disturbed"
    );
    first.close().await;
    start(bus_settings(managed(folder.path()))).await.close().await;
}

#[tokio::test]
async fn a_taken_port_is_named_with_its_key() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let folder = tempfile::tempdir().unwrap();
    let error = refused(bus_settings(ManagedServer {
        port,
        ..managed(folder.path())
    }))
    .await;
    assert!(matches!(error, BusError::PortInUse { .. }), "{error}");
    let text = error.to_string();
    assert!(
        text.contains("snake.port") && text.contains(&port.to_string()),
        "{text}"
    );
    assert_eq!(error.exit(), ExitReason::Config);
}

fn script(folder: &Path, version: &str) -> std::path::PathBuf {
    let path = folder.join("nats-server");
    std::fs::write(&path, format!("#!/bin/sh\necho 'nats-server: {version}'\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn a_missing_an_old_and_a_replaced_binary_are_refused_with_the_fix() {
    let folder = tempfile::tempdir().unwrap();
    let with = |binary: &Path, sha256: Option<&str>| {
        bus_settings(ManagedServer {
            binary: Some(binary.to_owned()),
            sha256: sha256.map(str::to_owned),
            ..managed(folder.path())
        })
    };
    let missing = refused(with(&folder.path().join("nowhere"), None)).await;
    let text = missing.to_string();
    for part in ["nowhere", "snake.server_binary", "scripts/install-nats-server.sh"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let old = refused(with(&script(folder.path(), "v2.9.10"), None)).await;
    assert!(matches!(old, BusError::TooOld { .. }), "{old}");
    assert!(old.to_string().contains("2.9.10"), "{old}");
    let odd = refused(with(&script(folder.path(), "hello"), None)).await;
    assert!(matches!(odd, BusError::Unusable { .. }), "{odd}");

    let pinned = "0".repeat(64);
    let exchanged = refused(with(&nats_server(), Some(&pinned))).await;
    let BusError::WrongHash { found, .. } = &exchanged else {
        panic!("{exchanged}");
    };
    assert!(exchanged.to_string().contains("snake.server_sha256"), "{exchanged}");
    start(with(&nats_server(), Some(&found.to_uppercase())))
        .await
        .close()
        .await;
}

#[tokio::test]
async fn an_external_server_is_used_and_another_domain_is_called_a_mismatch() {
    let folder = tempfile::tempdir().unwrap();
    let conf = format!(
        "port: -1\nhost: \"127.0.0.1\"\nports_file_dir: {0:?}\nauthorization {{ token: \"of another\" }}\njetstream {{ store_dir: {0:?}, domain: flux }}\n",
        folder.path()
    );
    std::fs::write(folder.path().join("nats.conf"), conf).unwrap();
    let mut owner = Command::new(nats_server())
        .arg("-c")
        .arg(folder.path().join("nats.conf"))
        .spawn()
        .unwrap();
    let ports = folder.path().join(format!("nats-server_{}.ports", owner.id()));
    let ports = eventually("the server's port", || async {
        serde_json::from_slice::<serde_json::Value>(&std::fs::read(&ports).ok()?).ok()
    })
    .await;
    let url = ports["nats"][0].as_str().unwrap().to_owned();
    let external = |domain: &str| BusSettings {
        server: ServerDeployment::External {
            url: url.clone(),
            token: Some(SecretString::new("of another")),
            operator: None,
        },
        domain: domain.to_owned(),
        ..bus_settings(managed(folder.path()))
    };
    let guest = start(external("flux")).await;
    let status = guest.bus().status();
    assert!(!status.managed && status.healthy && status.pid.is_none());
    assert_eq!(status.power_safe, None);
    guest.close().await;
    let error = refused(external("other")).await;
    let text = error.to_string();
    for part in ["domain", "\"other\"", "\"flux\"", "snake.domain"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(error.exit(), ExitReason::Config);
    assert!(
        owner.try_wait().unwrap().is_none(),
        "a guest does not stop another's server"
    );
    owner.kill().unwrap();
    owner.wait().unwrap();
}

#[tokio::test]
async fn the_operators_key_has_the_mixers_rights_and_is_another_one_after_each_start() {
    let folder = tempfile::tempdir().unwrap();
    let seed = || std::fs::read_to_string(folder.path().join("keys/bus-operator.nk")).unwrap();
    let server = start(bus_settings(managed(folder.path()))).await;
    let client = operator(folder.path(), server.bus().url()).await;
    let js = async_nats::jetstream::with_domain(client.clone(), "flux");
    js.publish("flux.telemetry.logs.script", "x".into())
        .await
        .unwrap()
        .await
        .unwrap();
    let mut events = client.subscribe("platform.event.>").await.unwrap();
    // An answer means that the server has read the subscription.
    js.get_stream("flux-msg").await.unwrap().purge().await.unwrap();
    server
        .bus()
        .client()
        .publish("platform.event.x", "".into())
        .await
        .unwrap();
    assert!(events.next().await.is_some());
    let before = seed();
    server.close().await;
    let server = start(bus_settings(managed(folder.path()))).await;
    assert_ne!(seed(), before);
    let stale = ConnectOptions::with_nkey(before.trim().to_owned());
    let refused = stale.connect(server.bus().url()).await.unwrap_err();
    assert_eq!(refused.kind(), async_nats::ConnectErrorKind::AuthorizationViolation);
    server.close().await;
}

#[tokio::test]
async fn a_message_as_large_as_allowed_passes_and_a_larger_one_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(bus_settings(managed(folder.path()))).await;
    let js = server.bus().jetstream();
    let allowed = js
        .publish("flux.telemetry.logs.a", vec![0; 2 << 20].into())
        .await
        .unwrap();
    assert!(allowed.await.is_ok());
    let larger = js.publish("flux.telemetry.logs.a", vec![0; 3 << 20].into()).await;
    assert!(larger.is_err());
    server.close().await;
}

const OWNER: &str = "bus_server::tests::owner_of_a_server_until_it_is_killed";
const STORE: &str = "PLATFORM_TEST_BUS_STORE";

/// Run as a process of its own by the test below; alone it does nothing.
#[tokio::test]
#[ignore = "a helper process of a_killed_mixer_takes_its_server_with_it"]
async fn owner_of_a_server_until_it_is_killed() {
    let Some(store) = std::env::var_os(STORE) else { return };
    let server = start(bus_settings(managed(Path::new(&store)))).await;
    println!("\nserver={}", pid_of(&server));
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_mixer_takes_its_server_with_it_and_the_next_one_gets_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let mut owner = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", OWNER, "--ignored", "--nocapture"])
        .env(STORE, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(owner.stdout.take().unwrap()).lines();
    let pid = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("server=")?.parse().ok())
        .map(Pid::from_raw)
        .expect("the owner started a server");
    assert!(is_running(pid));
    let environment = std::fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
    let names = environment
        .split('\0')
        .filter_map(|variable| variable.split('=').next());
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    assert!(
        names.iter().all(|name| ["PATH", "GOMEMLIMIT"].contains(name)),
        "{names:?}"
    );
    owner.kill().unwrap();
    owner.wait().unwrap();
    start(bus_settings(managed(folder.path()))).await.close().await;
    assert!(!is_running(pid));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_says_whether_it_has_read_its_configuration_and_has_no_monitor() {
    let folder = tempfile::tempdir().unwrap();
    let managed = managed(folder.path());
    let ours = managed.users.system.clone();
    let server = start(bus_settings(managed)).await;
    let (pid, patiently) = (pid_of(&server), Duration::from_secs(20));
    let system = SystemConnection::open(server.bus().url(), &ours, None).await.unwrap();
    assert_eq!(system.health().await, ServerHealth::Well);
    assert_eq!(system.reload(patiently).await, Ok(()));
    // One that hangs does not answer, and does it later.
    kill(pid, Signal::SIGSTOP).unwrap();
    let silent = system.reload(Duration::from_millis(300)).await;
    kill(pid, Signal::SIGCONT).unwrap();
    assert!(silent.is_err(), "nothing is said of what it did");
    assert_eq!(system.reload(patiently).await, Ok(()));
    std::fs::write(folder.path().join("js/nats.conf"), "accounts {").unwrap();
    let refused = system.reload(patiently).await.unwrap_err();
    assert!(refused.contains("Parse error"), "{refused}");

    let ports = folder.path().join(format!("js/nats-server_{pid}.ports"));
    let ports: serde_json::Value = serde_json::from_slice(&std::fs::read(ports).unwrap()).unwrap();
    let listens: Vec<&String> = ports.as_object().unwrap().keys().collect();
    assert_eq!(listens, ["nats"], "for clients only");
    server.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_reaches_a_rack_while_the_server_reads_its_users_again() {
    let folder = tempfile::tempdir().unwrap();
    let keys: Vec<KeyPair> = (0..400).map(|_| KeyPair::new_user()).collect();
    let entry = |(number, key): (usize, &KeyPair)| AclEntry {
        key: key.public_key(),
        entity_id: EntityId::for_name(&format!("rack-{number}")),
        name: format!("rack-{number}").parse().unwrap(),
        adopted: true,
        consumers: Vec::new(),
    };
    let entries: Vec<AclEntry> = keys.iter().enumerate().map(entry).collect();
    let id = entries[0].entity_id;
    let (list, access) = watch::channel(AclSnapshot {
        version: 1,
        entries,
        owners: BTreeMap::new(),
        removed: BTreeSet::new(),
    });
    let (applied, mut follows) = watch::channel(0);
    let users = BusAuthorization::new(&chassis::os_entropy(), access, applied).unwrap();
    let server = start(bus_settings(ManagedServer {
        users,
        ..managed(folder.path())
    }))
    .await;
    let options = ConnectOptions::new().nkey(keys[0].seed().unwrap());
    let options = options.custom_inbox_prefix(subject::inbox(&keys[0].public_key()));
    let rack = options.connect(server.bus().url()).await.unwrap();
    let mut commands = rack.subscribe(subject::rack_all(&id)).await.unwrap();
    rack.flush().await.unwrap();
    let (loses, mut lost) = watch::channel(false);
    let losing = loses.clone();
    let answers = tokio::spawn(async move {
        while let Some(command) = commands.next().await {
            if losing.send_if_modified(std::mem::take) {
                continue;
            }
            let to = command
                .headers
                .unwrap()
                .get(telemetry_codec::ANSWER_TO)
                .unwrap()
                .to_string();
            rack.publish(to, "".into()).await.unwrap();
        }
    });
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let (clock, entropy) = (crate::testing::Hand::new().clock(), crate::testing::entropy());
    let cluster = Cluster::open(&registry, &folder.path().join("cluster.key"), &clock, &entropy).unwrap();
    for version in 2..8 {
        let within = Duration::from_secs(20);
        // The Rack hears a command before a reload, and its answer is lost.
        loses.send_replace(true);
        let told = server.bus().command(&cluster, &id, RackCommand::State, &"", within);
        let reload = async {
            lost.wait_for(|loses| !loses).await.unwrap();
            list.send_modify(|list| {
                list.version = version;
                list.entries.pop();
            });
        };
        tokio::join!(told, reload).0.unwrap();
        while *follows.borrow_and_update() < version {
            let told = server.bus().command(&cluster, &id, RackCommand::State, &"", within);
            told.await.unwrap();
        }
    }
    answers.abort();
    server.close().await;
}

#[tokio::test]
async fn a_rack_that_nobody_heard_of_before_the_end_of_a_long_reload_is_not_connected() {
    let folder = tempfile::tempdir().unwrap();
    let managed = managed(folder.path());
    let ours = MixerCredentials::Key(managed.users.mixer.seed.clone());
    let settings = bus_settings(managed);
    let domain = settings.domain.clone();
    let server = start(settings).await;
    let (process, watch) = watch::channel(ProcessStatus::default());
    process.send_modify(ProcessStatus::begin_reload);
    let url = server.bus().url().to_owned();
    let profile = ServerProfile::managed(&url, true, watch);
    let access = (ours, ReplyRouting::InAnInbox);
    let bus = MixerBus::connect(&url, &domain, (access, None), Duration::from_secs(20), profile);
    let bus = bus.await.unwrap();
    let registry = ClusterRegistry::open(&folder.path().join("registry.redb")).unwrap();
    let (clock, entropy) = (crate::testing::Hand::new().clock(), crate::testing::entropy());
    let cluster = Cluster::open(&registry, &folder.path().join("cluster.key"), &clock, &entropy).unwrap();
    let id = EntityId::for_name("rack-a");
    for command in [RackCommand::State, RackCommand::Scenario] {
        let told = bus
            .command(&cluster, &id, command, &"", Duration::from_millis(500))
            .await;
        assert!(matches!(told, Err(CommandError::NotConnected)), "{command:?}: {told:?}");
    }
    bus.close().await;
    server.close().await;
}

#[test]
fn a_reload_that_has_just_ended_is_one_since_then() {
    let calm = ProcessStatus::default();
    let mut reloading = calm.clone();
    reloading.begin_reload();
    let mut reloaded = reloading.clone();
    reloaded.end_reload();
    for (now, before, is_since) in [
        (&calm, &calm, false),
        (&reloading, &calm, true),
        (&reloaded, &calm, true),
        (&reloaded, &reloading, true),
        (&reloaded, &reloaded, false),
    ] {
        assert_eq!(now.has_reloaded_since(before), is_since, "{now:?} since {before:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_whose_files_a_power_cut_destroyed_is_made_anew_without_its_state() {
    for (file, content) in [("meta.inf", vec![]), ("o.dat", vec![0; 14])] {
        let folder = tempfile::tempdir().unwrap();
        let server = start(bus_settings(managed(folder.path()))).await;
        let wanted = || pull::Config {
            durable_name: Some("wire-a".to_owned()),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: 1 },
            ack_policy: AckPolicy::All,
            ..Default::default()
        };
        let stream = server.bus().jetstream().get_stream("flux-msg").await.unwrap();
        let consumer = stream.create_consumer(wanted()).await.unwrap();
        for number in 1..=10 {
            let sent = server.bus().jetstream().publish("flux.msg.a.b.c", "x".into());
            assert_eq!(sent.await.unwrap().await.unwrap().sequence, number);
        }
        let mut messages = consumer.fetch().max_messages(10).messages().await.unwrap();
        while let Some(message) = messages.next().await {
            message.unwrap().double_ack().await.unwrap();
        }
        server.close().await;
        let obs = folder.path().join("js/jetstream/mixer/streams/flux-msg/obs");
        assert!(std::fs::read(obs.join("wire-a").join(file)).unwrap().len() > 2);
        std::fs::write(obs.join("wire-a").join(file), content).unwrap();

        let server = start(bus_settings(managed(folder.path()))).await;
        let stream = server.bus().jetstream().get_stream("flux-msg").await.unwrap();
        let mut consumer = stream.create_consumer(wanted()).await.unwrap();
        let info = consumer.info().await.unwrap();
        let begun = (info.delivered.consumer_sequence, info.num_pending);
        assert_eq!(begun, (0, 10), "{file}: it begins anew");
        server.close().await;
        // Its files are sound again.
        let server = start(bus_settings(managed(folder.path()))).await;
        let stream = server.bus().jetstream().get_stream("flux-msg").await.unwrap();
        assert!(stream.get_consumer::<pull::Config>("wire-a").await.is_ok(), "{file}");
        server.close().await;
    }
}
