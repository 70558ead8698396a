//! TLS of gears that listen, with clients of rustls, openssl and curl.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Stdio;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::gears::testing::certificates::TestAuthority;
use crate::gears::testing::{Bench, push};
use crate::gears::tls::{ClientIdentity, DefaultTrust, client_config};
use crate::policy::RackPolicy;
use crate::runtime::GearRuntime;

/// A Rack with an authority in its folder that has signed the certificate of its doors.
struct TlsBench {
    folder: tempfile::TempDir,
    bench: Bench,
    authority: TestAuthority,
}

impl TlsBench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = TestAuthority::new(folder.path());
        authority.sign("door");
        let bench = Bench::open(folder.path());
        Self {
            folder,
            bench,
            authority,
        }
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A gear that listens with TLS, and whose messages become records.
    fn door(&self, name: &str, kind: &str, more: &str) -> String {
        let (certificate, key) = (self.file("door.pem"), self.file("door.key"));
        format!(
            "\n  - {{ name: {name}, type: {kind}, deploy: rack-a, config: {{ listen: '127.0.0.1:0', tls: {{ certificate_file: '{certificate}', \
             key_file: '{key}' {more} }}"
        )
    }

    async fn start(&self, gears: &str, wires: &str) -> GearRuntime {
        let mut runtime = self.bench.runtime();
        let sink = "\n  - { name: sink, type: log_sink, deploy: rack-a }";
        let applied = runtime.apply(&push("h", &format!("{gears}{sink}"), wires)).await;
        assert_eq!(applied.error, None);
        runtime
    }

    /// A client of rustls, with a certificate of this name or without one.
    async fn connect(&self, to: SocketAddr, identity: Option<&str>) -> io::Result<TlsStream<TcpStream>> {
        let file = |name: &str, end: &str| self.folder.path().join(name).with_extension(end);
        let files = identity.map(|name| (file(name, "pem"), file(name, "key")));
        let identity = files.as_ref().map(|(certificate_file, key_file)| ClientIdentity {
            certificate_file,
            key_file,
        });
        let (policy, ca) = (RackPolicy::for_tests(), file("ca", "pem"));
        let config = client_config(policy.readable(), Some(&ca), DefaultTrust::Nobody, identity).unwrap();
        let stream = TcpStream::connect(to).await?;
        let name = ServerName::try_from("localhost").unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn close(self, runtime: GearRuntime) {
        runtime.close().await;
        self.bench.close().await;
    }
}

/// What a program writes as its first line when it is given this; `None` where there is no such program.
async fn first_line(program: &str, args: &[&str], input: &str) -> Option<String> {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    let mut child = command.spawn().ok()?;
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.next_line().await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gears_speak_tls_with_programs_of_others() {
    let tls = TlsBench::new();
    let gears = [
        tls.door("hook", "http_in", "} }"),
        tls.door("echo", "tcp_in", "} }"),
        tls.door("log", "syslog_in", "}, udp: false }"),
    ];
    let wires = "{ from: hook.out, to: sink.in }, { from: echo.out, to: echo.reply }, { from: log.out, to: sink.in }";
    let runtime = tls.start(&gears.concat(), wires).await;
    let (hook, echo, log) = (
        tls.bench.address("hook", "https").await,
        tls.bench.address("echo", "tls").await,
        tls.bench.address("log", "tls").await,
    );
    let mut stream = tls.connect(echo, None).await.unwrap();
    let large = "x".repeat(1_000_000) + "\n";
    let (read, mut write) = tokio::io::split(&mut stream);
    let mut lines = BufReader::new(read).lines();
    let (written, line) = tokio::join!(write.write_all(large.as_bytes()), lines.next_line());
    written.unwrap();
    assert_eq!(line.unwrap().unwrap().len(), large.len() - 1);
    let mut syslog = tls.connect(log, None).await.unwrap();
    syslog.write_all(b"12 <13>from mars").await.unwrap();
    syslog.flush().await.unwrap();
    let record = tls.bench.records("sink", 1).await.remove(0);
    assert_eq!(record["attributes"]["network.transport"], "tcp");
    assert_eq!(record["attributes"]["tls.protocol.name"], "tls");
    let mut post = tls.connect(hook, None).await.unwrap();
    post.write_all(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\norder")
        .await
        .unwrap();
    let mut status = [0; 12];
    post.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 202");
    let (ca, at) = (tls.file("ca.pem"), echo.to_string());
    let openssl = [
        "s_client",
        "-quiet",
        "-verify_return_error",
        "-CAfile",
        &ca,
        "-connect",
        &at,
    ];
    let echoed = first_line("openssl", &openssl, "from openssl\n").await;
    assert!(echoed.is_none_or(|line| line == "from openssl"), "openssl");
    let url = format!("https://localhost:{}/", hook.port());
    let curl = [
        "-sS",
        "--cacert",
        &ca,
        "--data-binary",
        "@-",
        "-o",
        "/dev/null",
        "-w",
        "%{http_code}",
        "--max-time",
        "20",
        &url,
    ];
    let mut command = Command::new("curl");
    if let Ok(curl) = command.args(curl).stdin(Stdio::null()).output().await {
        assert_eq!(
            String::from_utf8_lossy(&curl.stdout),
            "202",
            "{}",
            String::from_utf8_lossy(&curl.stderr)
        );
    }
    tls.close(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_clients_with_a_certificate_of_the_authority_connect_where_one_is_named() {
    let tls = TlsBench::new();
    tls.authority.sign("client");
    let stranger = tempfile::tempdir().unwrap();
    TestAuthority::new(stranger.path()).sign("stranger");
    for end in ["pem", "key"] {
        let name = format!("stranger.{end}");
        std::fs::copy(stranger.path().join(&name), tls.file(&name)).unwrap();
    }
    let more = format!(", client_ca_file: '{}' }} }}", tls.file("ca.pem"));
    let runtime = tls
        .start(&tls.door("echo", "tcp_in", &more), "{ from: echo.out, to: echo.reply }")
        .await;
    let at = tls.bench.address("echo", "tls").await;
    for (identity, wanted) in [(None, ""), (Some("stranger"), ""), (Some("client"), "hello\n")] {
        let mut line = String::new();
        if let Ok(mut stream) = tls.connect(at, identity).await {
            stream.write_all(b"hello\n").await.ok();
            BufReader::new(stream).read_line(&mut line).await.ok();
        }
        assert_eq!(line, wanted, "{identity:?}");
    }
    tls.bench.says("echo", "its TLS handshake failed").await;
    tls.close(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_speak_tls_is_closed_and_holds_up_nobody() {
    let tls = TlsBench::new();
    let runtime = tls
        .start(&tls.door("echo", "tcp_in", "} }"), "{ from: echo.out, to: sink.in }")
        .await;
    let at = tls.bench.address("echo", "tls").await;
    let _silent = TcpStream::connect(at).await.unwrap();
    let mut plain = TcpStream::connect(at).await.unwrap();
    plain.write_all(b"a line in clear\n").await.unwrap();
    let mut answer = Vec::new();
    plain.read_to_end(&mut answer).await.ok();
    tls.bench.says("echo", "its TLS handshake failed").await;
    let mut stream = tls.connect(at, None).await.unwrap();
    stream.write_all(b"encrypted\n").await.unwrap();
    let records = tls.bench.records("sink", 1).await;
    assert_eq!((records.len(), &records[0]["message"]), (1, &"encrypted".into()));
    tls.close(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_lead_elsewhere_and_keys_that_everybody_reads_are_refused() {
    let tls = TlsBench::new();
    let mut runtime = tls.bench.runtime();
    let push = push(
        "h",
        &tls.door("door", "tcp_in", "} }"),
        "{ from: door.out, to: door.reply }",
    );
    set_permissions(tls.file("door.key"), Permissions::from_mode(0o644)).unwrap();
    let refused = runtime.apply(&push).await.error.unwrap();
    assert!(refused.contains("tls: ") && refused.contains("chmod 600"), "{refused}");
    std::fs::remove_file(tls.file("door.pem")).unwrap();
    symlink("/etc/hostname", tls.file("door.pem")).unwrap();
    let refused = runtime.apply(&push).await.error.unwrap();
    let says = "which leads to /etc/hostname, is not allowed on this Rack";
    assert!(refused.contains(says), "{refused}");
    tls.close(runtime).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tcp_out_speaks_tls_with_a_certificate_of_its_own_and_refuses_another_side() {
    let tls = TlsBench::new();
    tls.authority.sign("client");
    let ca = tls.file("ca.pem");
    let gears = tls.door("door", "tcp_in", &format!(", client_ca_file: '{ca}' }} }}"));
    let runtime = tls
        .start(
            &gears,
            "{ from: door.out, to: door.reply }, { from: door.out, to: sink.in }",
        )
        .await;
    let port = tls.bench.address("door", "tls").await.port();
    let (certificate, key) = (tls.file("client.pem"), tls.file("client.key"));
    let identity = format!("certificate_file: '{certificate}', key_file: '{key}'");
    let out = |name: &str, tls: &str| {
        format!(
            "\n  - {{ name: {name}, type: tcp_out, deploy: rack-a, config: {{ address: 'localhost:{port}', reconnect_min: 1s, tls: {{ {tls} }} }} }}"
        )
    };
    let gears = [
        "\n  - { name: numbers, type: generator, deploy: rack-a, config: { rate: 1000, count: 3 } }".to_owned(),
        out("good", &format!("ca_file: '{ca}', {identity}")),
        out(
            "other",
            &format!("ca_file: '{ca}', {identity}, server_name: elsewhere.example"),
        ),
        out("untrusted", &format!("ca_file: '{certificate}'")),
        "\n  - { name: back, type: log_sink, deploy: rack-a }".to_owned(),
    ];
    let wires = "{ from: numbers.out, to: good.in }, { from: good.reply, to: back.in }, { from: other.reply, to: back.in }, \
                 { from: untrusted.reply, to: back.in }";
    let mut sender = tls.bench.runtime();
    assert_eq!(sender.apply(&push("h", &gears.concat(), wires)).await.error, None);
    assert_eq!(tls.bench.records("sink", 3).await.len(), 3);
    assert_eq!(tls.bench.records("back", 3).await.len(), 3);
    tls.bench.says("other", "cannot connect to localhost").await;
    tls.bench.says("untrusted", "cannot connect to localhost").await;
    sender.close().await;
    tls.close(runtime).await;
}
