//! Who may call: tokens on the command line, over HTTP and as PostgreSQL passwords; users of this machine; web pages.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use harness::credentials::{admin_token, self_signed};
use harness::{Failure, TestMixer, binary, eventually, psql};
use nix::unistd::geteuid;
use serde_json::{Value, json};
use tokio_postgres::NoTls;

mod audit;
mod capture;
mod postgres;
mod second_person;

const SOON: Duration = Duration::from_secs(30);
/// A user that owns nothing here.
const NOBODY: u32 = 65_534;

/// What a command printed, and its exit code; `input` comes on its standard input.
fn platform(
    home: &Path,
    mixer: &TestMixer,
    args: &[&str],
    (token, input): (&str, &str),
) -> Result<(i32, String, String), Failure> {
    let mut child = Command::new(binary("platform")?)
        .args(args)
        .current_dir(home)
        .env("HOME", home)
        .env_remove("XDG_CONFIG_HOME")
        .env("PLATFORM_TOKEN", token)
        .env("PLATFORM_API_URL", &mixer.api.base)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child.stdin.take().ok_or("no input")?.write_all(input.as_bytes())?;
    let done = child.wait_with_output()?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes);
    Ok((done.status.code().unwrap_or(-1), text(done.stdout)?, text(done.stderr)?))
}

/// A Mixer where everybody needs a token, and the token of its administrator, from a file.
fn guarded(extra: &[(&str, &str)]) -> Result<(tempfile::TempDir, TestMixer, String), Failure> {
    let folder = tempfile::tempdir()?;
    let (file, admin) = admin_token(folder.path())?;
    let path = format!("{:?}", file.display().to_string());
    let keys: Vec<_> = [("api.auth", "\"tokens\""), ("api.tokens_file", path.as_str())]
        .into_iter()
        .chain(extra.iter().copied())
        .collect();
    let mixer = TestMixer::with(&keys, &[])?;
    Ok((folder, mixer, admin))
}

#[test]
fn the_command_line_makes_uses_and_revokes_tokens() -> Result<(), Failure> {
    let (folder, mixer, admin) = guarded(&[])?;
    let home = folder.path();
    let run = |args: &[&str], token: &str| platform(home, &mixer, args, (token, ""));
    let (code, _, said) = run(&["racks", "list"], "")?;
    assert_eq!(code, 77, "{said}");
    assert!(said.contains("platform token create"), "{said}");

    let (code, reader, said) = run(
        &[
            "token",
            "create",
            "grafana",
            "--role",
            "reader",
            "--table",
            "logs",
            "--expires-in",
            "90d",
            "--quota",
            "requests=500,queries=2",
        ],
        &admin,
    )?;
    assert_eq!(code, 0, "{said}");
    let reader = reader.trim();
    assert!(
        reader.starts_with("plt_") && said.contains("not shown again"),
        "{reader} {said}"
    );
    let (code, _, said) = run(&["logs"], reader)?;
    assert_eq!(code, 0, "{said}");
    for (args, says) in [
        (&["metrics", "--name", "cpu"][..], "does not have the table metrics"),
        (&["audit"], "auditor"),
    ] {
        let (code, _, said) = run(args, reader)?;
        assert_eq!(code, 77, "{args:?}: {said}");
        assert!(said.contains(says), "{args:?}: {said}");
    }

    let (code, _, said) = platform(home, &mixer, &["login", &mixer.api.base], ("", &format!("{reader}\n")))?;
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("token grafana"), "{said}");
    let (code, who, said) = run(&["whoami", "--output", "json"], "")?;
    assert_eq!(code, 0, "the kept token is used: {said}");
    let who: Value = serde_json::from_str(&who)?;
    assert_eq!(who[0]["roles"], json!(["reader"]));
    let (_, list, _) = run(&["token", "list", "--output", "json"], &admin)?;
    let list: Value = serde_json::from_str(&list)?;
    assert_eq!(
        (&list[1]["name"], &list[1]["scope"], &list[1]["quotas"]),
        (
            &json!("grafana"),
            &json!({ "tables": ["logs"] }),
            &json!({ "requests": 500, "queries": 2 })
        )
    );
    assert!(
        list[1]["last_used"].is_string() && !list.to_string().contains(&reader[4..]),
        "{list}"
    );

    let (code, _, said) = run(&["token", "revoke", "grafana"], &admin)?;
    assert_eq!(code, 64, "{said}");
    let id = list[1]["id"].as_str().ok_or("no id")?;
    for part in [
        "the token grafana (reader, last used 2",
        &format!(", {id}) would be revoked"),
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(run(&["token", "revoke", "grafana", "--yes"], &admin)?.0, 0);
    assert_eq!(run(&["logs"], "")?.0, 77, "at once");
    assert_eq!(run(&["logout"], "")?.0, 0);
    let (_, audit, _) = run(&["audit", "--output", "json"], &admin)?;
    let audit: Vec<Value> = serde_json::from_str(&audit)?;
    let by = audit
        .iter()
        .find(|entry| entry["kind"] == "token_revoked")
        .map(|entry| entry["by"].clone());
    let by = by.unwrap_or_default();
    assert!(
        by.as_str()
            .is_some_and(|by| by.starts_with("api 127.0.0.1 (token admin ")),
        "{by}"
    );
    Ok(())
}

#[test]
fn another_user_of_the_machine_needs_a_token_and_the_mixers_own_does_not() -> Result<(), Failure> {
    if !geteuid().is_root() {
        println!("LEFT OUT: only root can be another user");
        return Ok(());
    }
    let mixer = TestMixer::start("")?;
    let port = mixer.api.base.rsplit(':').next().unwrap_or_default().to_owned();
    // A shell that connects by itself: nobody else's program is needed.
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port}; printf 'GET /api/v1/racks HTTP/1.1\\r\\nhost: localhost\\r\\nconnection: close\\r\\n\\r\\n' >&3; cat <&3"
    );
    let ask = |user: u32| -> Result<String, Failure> {
        let done = Command::new("/bin/bash")
            .args(["-c", &script])
            .current_dir("/")
            .env_clear()
            .env("PATH", "/bin:/usr/bin")
            .uid(user)
            .gid(user)
            .output()?;
        let answer = String::from_utf8_lossy(&done.stdout).into_owned();
        Ok(answer.lines().next().unwrap_or_default().to_owned())
    };
    assert_eq!(ask(0)?, "HTTP/1.1 200 OK");
    assert_eq!(ask(NOBODY)?, "HTTP/1.1 401 Unauthorized");
    Ok(())
}

#[test]
fn a_request_that_closed_its_end_is_not_taken_for_roots() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let mut stream = TcpStream::connect(mixer.api.base.trim_start_matches("http://"))?;
    stream.write_all(b"GET /api/v1/racks HTTP/1.1\r\nhost: localhost\r\n")?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

#[test]
fn a_web_page_of_another_site_gets_nothing() -> Result<(), Failure> {
    let mixer = TestMixer::with(&[("api.allowed_hosts", "[\"mixer.example\"]")], &[])?;
    for (headers, status) in [
        (&[("Host", "evil.example:8090")][..], 421),
        (&[("Host", "evil.example"), ("Origin", "http://evil.example")], 421),
        (&[("Origin", "http://evil.example")], 403),
        (&[("Origin", "null")], 403),
        (&[("Sec-Fetch-Site", "cross-site")], 403),
        (&[("Sec-Fetch-Site", "same-origin")], 200),
        (&[("Host", "localhost")], 200),
        (&[("Host", "mixer.example:8090")], 200),
    ] {
        let answer = mixer.api.send(
            "/api/v1/sql",
            &[headers, &[("Content-Type", "application/sql")]].concat(),
            b"SELECT 1",
        )?;
        assert_eq!(answer.status, status, "{headers:?}: {}", answer.text);
    }
    Ok(())
}

fn run<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// How a PostgreSQL client connects with a name and a password.
fn config_of(mixer: &TestMixer, user: &str, password: &str) -> Result<tokio_postgres::Config, Failure> {
    let address = mixer.postgres.ok_or("no PostgreSQL port")?;
    let mut config = tokio_postgres::Config::new();
    config
        .host(address.ip().to_string())
        .port(address.port())
        .user(user)
        .password(password)
        .dbname("platform");
    Ok(config)
}

/// What such a client reads.
fn selected(mixer: &TestMixer, user: &str, password: &str, statement: &str) -> Result<String, Failure> {
    let config = config_of(mixer, user, password)?;
    run(async {
        let (client, connection) = config.connect(NoTls).await?;
        let connection = tokio::spawn(connection);
        let rows = client.simple_query(statement).await;
        connection.abort();
        let rows = rows?.into_iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        Ok(rows.collect::<Vec<_>>().join(","))
    })
}

fn sqlstate(failed: &Failure) -> String {
    let error = failed.downcast_ref::<tokio_postgres::Error>();
    error
        .and_then(|error| Some(error.code()?.code().to_owned()))
        .unwrap_or_else(|| failed.to_string())
}

/// Whether a command succeeded, and all that it printed.
fn output(command: &mut Command) -> Result<(bool, String), Failure> {
    let done = command.output()?;
    let said = [done.stdout, done.stderr].concat();
    Ok((done.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn curl_and_psql_come_over_tls_and_a_new_certificate_needs_no_restart() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let (certificate_file, key_file) = self_signed(folder.path())?;
    let former = folder.path().join("former.pem");
    std::fs::copy(&certificate_file, &former)?;
    let quoted = [&certificate_file, &key_file].map(|path| format!("{path:?}"));
    let mut mixer = TestMixer::with(
        &[
            ("api.tls_cert", &quoted[0]),
            ("api.tls_key", &quoted[1]),
            ("postgres.enabled", "true"),
            ("postgres.port", "0"),
        ],
        &[],
    )?;
    let port = mixer.api.base.rsplit(':').next().unwrap_or_default().to_owned();
    let ask = |ca: &str| {
        let url = format!("https://localhost:{port}/api/v1/whoami");
        output(Command::new("curl").args(["-sS", "--cacert", ca, &url]))
    };
    let (is_answered, said) = ask(&certificate_file)?;
    assert!(is_answered && said.contains("admin"), "{said}");
    let (is_answered, _) = output(Command::new("curl").args(["-sS", &format!("http://localhost:{port}/healthz")]))?;
    assert!(!is_answered, "in clear text nothing is answered");

    let address = mixer.postgres.ok_or("no PostgreSQL port")?;
    if psql::is_installed() {
        let sum = |envs: &[(&str, &str)]| {
            let mut command = psql::command("localhost", address.port(), "tester");
            output(command.args(["-c", "SELECT 40 + 2"]).envs(envs.iter().copied()))
        };
        let verified = [
            ("PGSSLMODE", "verify-full"),
            ("PGSSLROOTCERT", certificate_file.as_str()),
        ];
        assert_eq!(sum(&verified)?, (true, "42\n".to_owned()));
        assert_eq!(
            sum(&[("PGSSLMODE", "disable")])?.1,
            "42\n",
            "over loopback clear text will do"
        );
    }

    self_signed(folder.path())?;
    harness::eventually("the new certificate", std::time::Duration::from_secs(60), || {
        ask(&certificate_file)
            .ok()
            .filter(|(is_answered, _)| *is_answered)
            .map(drop)
    })?;
    assert!(!ask(&former.display().to_string())?.0, "the former one is gone");
    mixer.kill9()
}

#[test]
fn the_command_line_trusts_the_authority_that_it_is_given_and_shows_its_certificate() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let home = folder.path();
    let (certificate, key) = self_signed(home)?;
    let clients = home.join("clients");
    std::fs::create_dir(&clients)?;
    let (client, client_key) = self_signed(&clients)?;
    let quoted = [&certificate, &key, &client].map(|path| format!("{path:?}"));
    let (file, admin) = admin_token(home)?;
    let tokens = format!("{:?}", file.display().to_string());
    let mut mixer = TestMixer::with(
        &[
            ("api.tls_cert", &quoted[0]),
            ("api.tls_key", &quoted[1]),
            ("api.tls_client_ca", &quoted[2]),
            ("api.tokens_file", &tokens),
        ],
        &[],
    )?;
    let port = mixer.api.base.rsplit(':').next().unwrap_or_default();
    mixer.api.base = format!("https://localhost:{port}");
    let base = mixer.api.base.clone();
    let run = |args: &[&str], token: &str, input: &str| platform(home, &mixer, args, (token, input));
    let (code, _, said) = run(&["whoami"], &admin, "")?;
    assert!(
        code != 0 && said.contains("certificate"),
        "the system does not know it: {said}"
    );
    let (code, _, said) = run(&["login", &base, "--ca-file", &certificate], "", &format!("{admin}\n"))?;
    assert!(code != 0, "a certificate is asked for: {said}");
    let shows = [
        "login",
        &base,
        "--ca-file",
        &certificate,
        "--client-cert",
        &client,
        "--client-key",
        &client_key,
    ];
    let (code, _, said) = run(&shows, "", &format!("{admin}\n"))?;
    assert_eq!(code, 0, "{said}");
    let (code, who, said) = run(&["whoami"], "", "")?;
    assert!(code == 0 && who.contains("admin"), "{who} {said}");
    let (code, _, said) = run(&["login", &base, "--ca-file", &client_key], "", &format!("{admin}\n"))?;
    assert!(code == 64 && said.contains("has no certificate"), "{said}");
    Ok(())
}

#[test]
fn one_caller_has_half_of_the_connections_to_the_api() -> Result<(), Failure> {
    let (_folder, mixer, admin) = guarded(&[])?;
    let address = mixer.api.base.trim_start_matches("http://").to_owned();
    let ask = |stream: &mut TcpStream| -> Result<String, Failure> {
        write!(
            stream,
            "GET /api/v1/whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {admin}\r\n\r\n"
        )?;
        let mut said = [0; 4096];
        let length = stream.read(&mut said)?;
        Ok(String::from_utf8_lossy(&said[..length])
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned())
    };
    let mut open = Vec::new();
    let refused = loop {
        let mut stream = TcpStream::connect(&address)?;
        stream.set_read_timeout(Some(SOON))?;
        let said = ask(&mut stream)?;
        if !said.contains("200") {
            break said;
        }
        open.push(stream);
        assert!(open.len() < 400, "there is no bound");
    };
    assert!(
        refused.contains("429") && open.len() == 256,
        "{} open: {refused}",
        open.len()
    );
    let again = open.first_mut().ok_or("none is open")?;
    assert!(ask(again)?.contains("200"), "over those that it has it goes on");
    assert_eq!(mixer.api.get("/healthz")?.status, 200);
    open.pop();
    eventually("a place for another one", SOON, || {
        let mut stream = TcpStream::connect(&address).ok()?;
        ask(&mut stream).ok()?.contains("200").then_some(())
    })
}
