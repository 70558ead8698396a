//! `mqtt_in` with brokers and configurations that cannot be: what is told of them.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;

const KEY: &str = include_str!("../../http_out/testdata/localhost.key");
const CERTIFICATE: &str = include_str!("../../http_out/testdata/localhost.crt");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_sends_garbage_is_logged_and_retried() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = json!({
        "address": listener.local_addr().unwrap().to_string(),
        "client_id": "it", "reconnect_min": "1ms", "reconnect_max": "10ms",
    });
    let rack = Rack::open(1 << 20);
    let life = rack.begin(&config, 2);
    let accepted = |more: &[u8]| [ACCEPTED, more].concat();
    for (says, bytes) in [
        ("the broker closed the connection", Vec::new()),
        (
            "flags that no broker sends",
            b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(9),
        ),
        ("a length of more than four bytes", vec![0xff; 64]),
        ("ends within a field", vec![0x20, 1, 0]),
        (
            "a property that version 5 does not know",
            vec![0x20, 5, 0, 0, 2, 0x7f, 0],
        ),
        ("before it accepted", vec![0xd0, 0]),
        ("not authorized (reason code 0x87)", vec![0x20, 3, 0, 0x87, 0]),
        ("too large and no message", accepted(&[0x90, 0xff, 0xff, 0xff, 0x7f])),
        ("empty or has a wildcard", accepted(&[0x30, 4, 0, 1, b'#', 0])),
        ("without an identifier", accepted(&[0x32, 6, 0, 1, b't', 0, 0, 0])),
        ("QoS 3", accepted(&[0x36, 6, 0, 1, b't', 0, 1, 0])),
        ("a second time", accepted(ACCEPTED)),
        ("what was never sent", accepted(&[0x40, 2, 0, 1])),
        ("session taken over", accepted(&[0xe0, 1, 0x8e])),
        (
            "answers other subscriptions than there are",
            accepted(&[0x90, 4, 0, 9, 0, 0]),
        ),
        (
            "answers other subscriptions than there are",
            accepted(&[0x90, 5, 0, 1, 0, 0, 0]),
        ),
        (
            "refuses the subscription to \"t/#\": topic filter invalid",
            accepted(&[0x90, 4, 0, 1, 0, 0x8f]),
        ),
    ] {
        let (mut stream, _) = happens("the gear connects", listener.accept()).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let said = rack.bench.says("it", says).await;
        assert!(said.contains("trying again in"), "{said}");
    }
    life.end().await;
    rack.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_certificates_and_passwords_are_used_and_refusals_are_logged() {
    let access = "cafile {folder}/localhost.crt\ncertfile {folder}/localhost.crt\nkeyfile {folder}/localhost.key\n\
                  require_certificate true\nallow_anonymous false\npassword_file {folder}/passwords\nacl_file {folder}/acl";
    // The password is the name of this package; the hash is PBKDF2 with SHA-512.
    let password = include_str!("../testdata/passwords");
    let acl = "user rack\ntopic readwrite t/#\n";
    let files = [
        ("localhost.crt", CERTIFICATE),
        ("localhost.key", KEY),
        ("passwords", password),
        ("acl", acl),
    ];
    let Some(broker) = Mosquitto::start_with(access, &files).await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (certificate, key) = (path("localhost.crt", CERTIFICATE), path("localhost.key", KEY));
    let tls =
        json!({ "ca_file": certificate, "certificate_file": certificate, "key_file": key, "server_name": "localhost" });
    for version in VERSIONS {
        let mut good = broker.client_config(&format!("it-{version}"), version);
        good["tls"] = tls.clone();
        good["user"] = json!("rack");
        good["password"] = json!("${CARGO_PKG_NAME}");
        let with = |change: &dyn Fn(&mut Value)| {
            let mut config = good.clone();
            change(&mut config);
            config
        };
        let wrong = path("wrong", "no password");
        let stranger = json!({ "ca_file": certificate, "server_name": "localhost" });
        for (config, says) in [
            (
                with(&|config| (config["password"], config["password_file"]) = (Value::Null, json!(wrong))),
                "not authorized",
            ),
            (
                with(&|config| config["tls"]["server_name"] = json!("elsewhere")),
                "certificate",
            ),
            (with(&|config| config["tls"] = stranger.clone()), "cannot connect"),
        ] {
            let rack = Rack::open(1 << 20);
            let life = rack.begin(&config, 1);
            let said = rack.bench.says("it", "trying again in").await;
            assert!(said.contains(says), "version {version}: {said}");
            life.end().await;
            rack.close().await;
        }
        let rack = Rack::open(1 << 20);
        let life = rack.begin(&good, 1);
        rack.bench.says("it", "subscribed").await;
        let mut config = with(&|config| config["client_id"] = json!("test"));
        config["version"] = json!("5");
        let mut client = crate::gears::mqtt::testing::Client::connect(config).await;
        client.publish("t/x", QosLevel::AtLeastOnce, b"safe").await;
        assert_eq!(bodies(&taken_from(&rack.outbox, 1).await), ["safe"]);
        life.end().await;
        rack.close().await;
    }
}

#[test]
fn topics_that_make_no_sense_are_refused_by_their_place() {
    let config = |topics: Value| json!({ "broker": { "address": "b:1883", "client_id": "c" }, "topics": topics });
    let check = |config: Value| gear_manifest::check::<MqttInConfig>(config.as_object().unwrap());
    for filter in ["a", "a/+/b", "#", "+", "a/#", "$share/g/a/+", "/", "$SYS/#"] {
        assert_eq!(check(config(json!([{ "filter": filter }]))), Ok(()), "{filter}");
    }
    for filter in [
        "",
        "a+/b",
        "a/b#",
        "#/a",
        "a/#/b",
        "$share/g",
        "$share//a",
        "$share/+/a",
        "a\0",
    ] {
        let error = check(config(json!([{ "filter": "a" }, { "filter": filter }]))).unwrap_err();
        assert!(error.contains("topics[1].filter"), "{filter}: {error}");
    }
    for (topics, says) in [
        (json!([]), "topics must have"),
        (json!([{ "filter": "a", "qos": 3 }]), "qos must be 0, 1 or 2, not 3"),
    ] {
        let error = check(config(topics)).unwrap_err();
        assert!(error.contains(says), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unanswered_subscription_is_logged_and_retried() {
    let rack = Rack::open(1 << 20);
    let broker = ScriptedBroker::start().await;
    let mut config = broker.client_config();
    config["connect_timeout"] = json!("1s");
    let life = rack.begin(&config, 2);
    let _guest = broker.accept(ACCEPTED).await;
    let text = rack
        .bench
        .says("it", "does not answer the subscriptions within 1s")
        .await;
    assert!(text.contains("trying again in"), "{text}");
    life.end().await;
    rack.close().await;
}
