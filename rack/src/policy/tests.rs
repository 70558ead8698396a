//! Tests of policies: what is refused when a scenario is applied, and what when a file is opened or a name resolved.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;

use chassis::config::schema_check::load_from;
use nix::unistd::{Uid, setfsuid};
use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::config::{RackConfig, SCHEMA};

/// A Rack in a folder of its own, with this section of its file.
struct PolicyBench {
    folder: TempDir,
    policy: Result<RackPolicy, Error>,
}

impl PolicyBench {
    fn new(section: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let policy = policy_of(folder.path(), section);
        Self { folder, policy }
    }

    fn files(&self) -> PathBuf {
        self.folder.path().join("data/files")
    }

    fn refuses(&self, kind: &str, config: Value) -> String {
        let checked = self.policy.as_ref().unwrap().check(kind, config.as_object().unwrap());
        checked.unwrap_err().to_string()
    }

    fn allows(&self, kind: &str, config: Value) {
        let checked = self.policy.as_ref().unwrap().check(kind, config.as_object().unwrap());
        assert_eq!(checked, Ok(()), "{kind} {config}");
    }
}

fn policy_of(folder: &Path, section: &str) -> Result<RackPolicy, Error> {
    let data = folder.join("data");
    let text = format!("[base]\nstate_dir = {data:?}\n[store]\ndir = {data:?}\n[policy]\n{section}\n");
    let config = RackConfig::of(&load_from(&SCHEMA, &text, &[]).unwrap()).unwrap();
    RackPolicy::of(&config.policy, &config.places())
}

#[test]
fn by_default_files_are_those_of_the_store_and_sockets_those_of_this_machine() {
    let bench = PolicyBench::new("");
    let (files, policy) = (bench.files(), bench.policy.as_ref().unwrap());
    assert!(files.is_dir(), "the default folder is made");
    bench.allows("file_tail", json!({ "path": files.join("app.log") }));
    bench.allows("file_out", json!({ "path": "orders.ndjson" }));
    bench.allows("http_in", json!({ "listen": "127.0.0.1:0" }));
    bench.allows("tcp_out", json!({ "address": "collector.example:9000" }));
    bench.allows("http_out", json!({ "url": "https://192.0.2.1/in" }));
    let (files, shown) = (policy.writable(), files.display().to_string());
    drop(files.open_to_append(Path::new("orders.ndjson")).unwrap());
    assert!(bench.files().join("orders.ndjson").is_file());
    for (kind, config, asked, key) in [
        (
            "file_tail",
            json!({ "path": "/etc/shadow" }),
            "reading /etc/shadow",
            "policy.read_roots",
        ),
        (
            "file_tail",
            json!({ "path": "../rack.flux" }),
            "reading ../rack.flux",
            "policy.read_roots",
        ),
        (
            "file_tail",
            json!({ "path": "/proc/self/environ" }),
            "reading /proc/self/environ",
            "policy.read_roots",
        ),
        (
            "wasm",
            json!({ "module": "/opt/a.wasm" }),
            "reading /opt/a.wasm",
            "policy.read_roots",
        ),
        (
            "http_get",
            json!({ "url": "https://x", "ca_file": "/etc/ca.pem" }),
            "reading /etc/ca.pem",
            "policy.read_roots",
        ),
        (
            "mqtt_in",
            json!({ "broker": { "tls": { "key_file": "/etc/key" } } }),
            "reading /etc/key",
            "policy.read_roots",
        ),
        (
            "file_out",
            json!({ "path": "/etc/cron.d/x" }),
            "writing /etc/cron.d/x",
            "policy.write_roots",
        ),
        (
            "tcp_in",
            json!({ "listen": "0.0.0.0:80" }),
            "listening on 0.0.0.0:80",
            "policy.listen",
        ),
        (
            "http_get",
            json!({ "url": "http://127.0.0.1:8090/" }),
            "connecting to 127.0.0.1:8090",
            "policy.connect",
        ),
        (
            "http_get",
            json!({ "url": "http://[::ffff:7f00:1]/" }),
            "connecting to [::ffff:7f00:1]:80",
            "policy.connect",
        ),
        (
            "http_out",
            json!({ "url": "http://169.254.169.254/x" }),
            "connecting to 169.254.169.254:80",
            "policy.connect",
        ),
        (
            "mqtt_out",
            json!({ "broker": { "address": "127.0.0.1:1883" } }),
            "connecting to 127.0.0.1:1883",
            "policy.connect",
        ),
        (
            "http_out",
            json!({ "url": "https://x", "headers": { "x-key": "a ${AWS_SECRET} b" } }),
            "variable AWS_SECRET",
            "policy.env",
        ),
        ("exec", json!({ "env": ["HOME"] }), "variable HOME", "policy.env"),
    ] {
        let says = bench.refuses(kind, config);
        assert!(says.contains(&format!("{asked} is not allowed on this Rack")), "{says}");
        assert!(says.contains(&format!("adds it to {key} in platform.toml")), "{says}");
        if key.ends_with("roots") {
            assert!(says.contains(&format!("which allows {shown}")), "{says}");
        }
    }
}

#[test]
fn what_the_file_lists_is_allowed_and_nothing_beside_it() {
    let bench = PolicyBench::new(
        "gears = [\"tcp_in\", \"http_out\", \"tcp_out\"]\nlisten = [\"0.0.0.0:7000-7009\"]\n\
         connect = [\"10.0.0.0/8\", \"127.0.0.1:8090\", \"collector.example:443\"]\nenv = [\"TOKEN\", \"APP_*\"]",
    );
    bench.allows("tcp_in", json!({ "listen": "0.0.0.0:7009" }));
    bench.allows(
        "http_out",
        json!({ "url": "http://127.0.0.1:8090/", "headers": { "a": "${TOKEN}${APP_X}" } }),
    );
    bench.allows("tcp_out", json!({ "address": "10.1.2.3:9" }));
    bench.allows("tcp_out", json!({ "address": "collector.example:443" }));
    for (kind, config, says) in [
        (
            "file_out",
            json!({ "path": "a" }),
            "the gear type file_out is not allowed",
        ),
        (
            "tcp_in",
            json!({ "listen": "127.0.0.1:7009" }),
            "listening on 127.0.0.1:7009",
        ),
        (
            "tcp_in",
            json!({ "listen": "0.0.0.0:7010" }),
            "which allows 0.0.0.0:7000-7009",
        ),
        (
            "tcp_out",
            json!({ "address": "127.0.0.1:8091" }),
            "connecting to 127.0.0.1:8091",
        ),
        ("tcp_out", json!({ "address": "192.0.2.1:443" }), "policy.connect"),
        (
            "http_out",
            json!({ "url": "https://x", "headers": { "a": "${TOKENS}" } }),
            "variable TOKENS",
        ),
    ] {
        let refused = bench.refuses(kind, config);
        assert!(refused.contains(says), "{refused}");
    }
}

#[test]
fn a_link_beneath_a_root_is_followed_to_another_place_beneath_it_and_nowhere_else() {
    let bench = PolicyBench::new("");
    let (root, policy) = (bench.files(), bench.policy.as_ref().unwrap());
    let secret = bench.folder.path().join("secret");
    fs::write(&secret, "hush").unwrap();
    fs::write(root.join("real.log"), "line").unwrap();
    fs::create_dir(root.join("out")).unwrap();
    symlink(&secret, root.join("secret.log")).unwrap();
    symlink("../../secret", root.join("relative.log")).unwrap();
    symlink("/proc/self/environ", root.join("environ.log")).unwrap();
    symlink("/proc/self/root", root.join("everything")).unwrap();
    symlink(bench.folder.path(), root.join("folder")).unwrap();
    symlink(root.join("real.log"), root.join("absolute.log")).unwrap();
    symlink("real.log", root.join("near.log")).unwrap();
    symlink(root.join("real.log"), root.join("loop-free.log")).unwrap();
    symlink("new.log", root.join("out/dangling.log")).unwrap();
    symlink(root.join("later.log"), root.join("out/absolute.log")).unwrap();
    symlink(bench.folder.path().join("made"), root.join("made.log")).unwrap();
    let files = policy.readable();
    for name in ["real.log", "absolute.log", "near.log", "loop-free.log"] {
        assert_eq!(files.read(&root.join(name), 9).unwrap(), b"line", "{name}");
    }
    let out = policy.writable();
    for name in [
        "secret.log",
        "relative.log",
        "environ.log",
        "everything/etc/passwd",
        "folder/secret",
    ] {
        for error in [
            files.open_to_read(&root.join(name)).unwrap_err(),
            files.metadata(&root.join(name)).unwrap_err(),
            out.open_to_append(&root.join(name)).unwrap_err(),
        ] {
            let says = error.to_string();
            assert!(
                says.contains(", which leads to /") && says.contains("_roots in platform.toml"),
                "{says}"
            );
        }
    }
    assert!(files.names_in(&root.join("folder")).is_err());
    assert!(out.open_folder(&root.join("folder")).is_err());
    assert!(out.open_to_append(&root.join("folder/new")).is_err() && !bench.folder.path().join("new").exists());
    assert!(files.names_in(&root).unwrap().iter().any(|name| name == "real.log"));
    drop(out.open_to_append(&root.join("out/dangling.log")).unwrap());
    assert!(root.join("out/new.log").is_file());
    drop(out.open_to_append(&root.join("out/absolute.log")).unwrap());
    assert!(root.join("later.log").is_file());
    assert!(out.open_to_append(&root.join("made.log")).is_err() && !bench.folder.path().join("made").exists());
    assert_eq!(fs::read_to_string(&secret).unwrap(), "hush");
}

#[tokio::test]
async fn a_name_that_resolves_to_this_machine_is_refused_when_it_is_known() {
    let bench = PolicyBench::new("connect = [\"*\"]");
    let policy = bench.policy.as_ref().unwrap();
    bench.allows("tcp_out", json!({ "address": "localhost:8090" }));
    for (host, says) in [
        ("localhost", "connecting to localhost:8090, which is at "),
        ("127.0.0.1", "connecting to 127.0.0.1:8090 is not allowed"),
        // The system takes these spellings for the address.
        (
            "127.1",
            "connecting to 127.1:8090, which is at 127.0.0.1, is not allowed",
        ),
        (
            "2130706433",
            "connecting to 2130706433:8090, which is at 127.0.0.1, is not allowed",
        ),
        ("0x7f000001", "which is at 127.0.0.1, is not allowed"),
        ("[::1]", "connecting to [::1]:8090 is not allowed"),
        ("0.0.0.0", "connecting to 0.0.0.0:8090 is not allowed"),
    ] {
        let error = policy.resolve(host, 8090).await.unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("policy.connect"), "{error}");
    }
    for own in nix::ifaddrs::getifaddrs().unwrap() {
        let address = own
            .address
            .as_ref()
            .and_then(|address| address.as_sockaddr_in().copied());
        let Some(ip) = address.map(|address| address.ip()).filter(|ip| !ip.is_loopback()) else {
            continue;
        };
        let error = policy.resolve(&ip.to_string(), 8090).await.unwrap_err().to_string();
        assert!(
            error.contains(&format!("connecting to {ip}:8090 is not allowed")),
            "{error}"
        );
        let network = format!("connect = [\"{ip}/8\"]");
        let meant = format!("connect = [\"{ip}:8090\"]");
        for (section, is_opened) in [(network, false), (meant, true)] {
            let bench = PolicyBench::new(&section);
            let resolved = bench.policy.as_ref().unwrap().resolve(&ip.to_string(), 8090).await;
            assert_eq!(resolved.is_ok(), is_opened, "{section}");
        }
    }
    let bench = PolicyBench::new("connect = [\"127.0.0.1:8090\"]");
    let policy = bench.policy.as_ref().unwrap();
    let found = policy.resolve("localhost", 8090).await.unwrap();
    assert_eq!(found, ["127.0.0.1:8090".parse().unwrap()]);
    assert!(policy.resolve("localhost", 8091).await.is_err());
}

#[test]
fn a_root_that_holds_the_state_or_the_kernels_files_is_refused_with_the_key() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    symlink("/proc", place.join("kernel")).unwrap();
    fs::create_dir_all(place.join("data/spool")).unwrap();
    symlink(place.join("data"), place.join("link")).unwrap();
    let own = |name: &str| place.join(name).display().to_string();
    for (root, says) in [
        (place.display().to_string(), "the state of the Rack itself"),
        (own("data"), "the state of the Rack itself"),
        (own("link"), "the state of the Rack itself"),
        (own("data/spool"), "the state of the Rack itself"),
        (own("data/outbox/x"), "the state of the Rack itself"),
        ("/proc".to_owned(), "/proc holds no files but the kernel's"),
        ("/sys/class".to_owned(), "/sys holds no files but the kernel's"),
        (own("kernel"), "/proc holds no files but the kernel's"),
    ] {
        for key in ["read_roots", "write_roots"] {
            let error = policy_of(place, &format!("{key} = [{root:?}]")).unwrap_err();
            let text = error.to_string();
            assert!(
                text.starts_with(&format!("policy.{key} = {root:?}")) && text.contains(says),
                "{text}"
            );
            assert_eq!(error.exit(), chassis::ExitReason::Config);
        }
    }
    for key in ["read_roots", "write_roots"] {
        let everything = load_from(&SCHEMA, &format!("[policy]\n{key} = [\"/\"]\n"), &[]).unwrap();
        let refused = RackConfig::of(&everything).unwrap_err().to_string();
        assert!(refused.contains("in which this policy stands"), "{key}: {refused}");
    }
    let missing = format!("read_roots = [{:?}]", own("not/yet"));
    assert!(policy_of(place, &missing).is_ok(), "a folder may come later");
}

#[test]
fn a_file_that_is_longer_than_what_is_read_is_an_error_that_names_the_bound() {
    let bench = PolicyBench::new("");
    let (path, policy) = (bench.files().join("ca.pem"), bench.policy.as_ref().unwrap());
    fs::write(&path, "0123456789").unwrap();
    assert_eq!(policy.readable().read(&path, 10).unwrap(), b"0123456789");
    let error = policy.readable().read(&path, 9).unwrap_err().to_string();
    assert!(error.contains("more than 9 bytes"), "{error}");
}

#[test]
fn files_are_renamed_in_a_folder_that_may_not_be_listed() {
    let bench = PolicyBench::new("");
    let (root, policy) = (bench.files(), bench.policy.as_ref().unwrap().clone());
    let nobody = 65_534;
    for folder in [bench.folder.path(), &bench.folder.path().join("data"), &root] {
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711)).unwrap();
    }
    fs::write(root.join("out.log"), "line").unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o333)).unwrap();
    if Uid::effective().is_root() {
        chown(&root, Some(nobody), Some(nobody)).unwrap();
    }
    let renaming = std::thread::spawn(move || {
        // Of this thread alone: root may list everything.
        if Uid::effective().is_root() {
            setfsuid(Uid::from_raw(nobody));
        }
        let folder = policy.writable().open_folder(&root).unwrap();
        folder.rename(OsStr::new("out.log"), OsStr::new("out.log.1")).unwrap();
        (root.join("out.log.1").is_file(), folder.sync().unwrap_err().to_string())
    });
    let (is_renamed, says) = renaming.join().unwrap();
    assert!(is_renamed && says.contains("needs the right to read it"), "{says}");
    fs::set_permissions(bench.files(), fs::Permissions::from_mode(0o755)).unwrap();
}

const SETTING: &str = "PLATFORM_SNAKE_TOKEN";
const PLAIN: &str = "TOKEN_OF_A_POLICY_TEST";
const WITH_VARIABLES: &str = "policy::tests::variables_in_a_process_that_has_a_setting_and_a_plain_one";

/// Run as a process of its own by the test below; alone it does nothing.
#[test]
#[ignore = "a helper process of settings_of_the_rack_are_not_given_away_where_every_variable_is_listed"]
fn variables_in_a_process_that_has_a_setting_and_a_plain_one() {
    if std::env::var_os(SETTING).is_none() {
        return;
    }
    for listed in [
        r#"["*"]"#,
        r#"["PLATFORM_*", "TOKEN_*"]"#,
        r#"["PLATFORM_SNAKE_TOKEN", "*"]"#,
    ] {
        let bench = PolicyBench::new(&format!("env = {listed}"));
        let policy = bench.policy.as_ref().unwrap();
        assert_eq!(policy.variable(SETTING), None, "{listed}");
        assert_eq!(policy.variable(PLAIN).as_deref(), Some("given"), "{listed}");
    }
}

#[test]
fn settings_of_the_rack_are_not_given_away_where_every_variable_is_listed() {
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", WITH_VARIABLES, "--ignored", "--nocapture"])
        .envs([(SETTING, "hush"), (PLAIN, "given")])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    let failure = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}{failure}");
}
