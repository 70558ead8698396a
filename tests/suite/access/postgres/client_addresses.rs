//! Addresses of PostgreSQL clients: over loopback another user of the machine needs a token, and beyond loopback a client must encrypt.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;

use harness::credentials::self_signed;
use harness::{Failure, TestMixer, outside_address, psql};
use nix::unistd::geteuid;
use serde_json::json;

use super::{make_token, opened, outcome, told};
use crate::access::{NOBODY, output, selected};
use crate::postgres::wire::{message, open, send_startup};

/// The statement that psql runs.
const SUM: [&str; 2] = ["-c", "SELECT 40 + 2"];

#[test]
fn another_user_of_the_machine_needs_a_token_as_a_postgresql_client_too() -> Result<(), Failure> {
    if !geteuid().is_root() {
        println!("LEFT OUT: only root can be another user");
        return Ok(());
    }
    if !psql::is_installed() {
        return Ok(());
    }
    let mixer = TestMixer::with(&[("postgres.enabled", "true"), ("postgres.port", "0")], &[])?;
    let address = mixer.postgres.ok_or("no PostgreSQL port")?;
    let (name, secret) = make_token(&mixer.api, "bi", &["reader"], json!({}))?;
    let programs = std::env::var_os("PATH").ok_or("no PATH")?;
    let answer = (true, "42\n");
    for (uid, user, password, (is_answered, says)) in [
        (0, "tester", None, answer),
        (NOBODY, "tester", None, (false, "no password supplied")),
        (
            NOBODY,
            "tester",
            Some(&secret),
            (false, "password authentication failed"),
        ),
        (NOBODY, &name, Some(&secret), answer),
        // Who names a token proves that it has it, root too.
        (0, &name, None, (false, "no password supplied")),
    ] {
        let mut command = psql::command(&address.ip().to_string(), address.port(), user);
        command
            .args(SUM)
            .current_dir("/")
            .env_clear()
            .env("PATH", &programs)
            .uid(uid)
            .gid(uid);
        if let Some(password) = password {
            command.env("PGPASSWORD", password);
        }
        let (succeeded, said) = output(&mut command)?;
        assert!(
            succeeded == is_answered && said.contains(says),
            "{uid} as {user}: {said}"
        );
    }
    Ok(())
}

#[test]
fn from_beyond_loopback_a_client_must_encrypt_before_it_is_asked_for_a_password() -> Result<(), Failure> {
    let Some(outer) = outside_address()? else {
        println!("LEFT OUT: this machine has no IPv4 address beyond loopback");
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let (certificate, key) = self_signed(folder.path())?;
    let quoted = [&certificate, &key].map(|path| format!("{path:?}"));
    let (_home, mut mixer, admin) = opened(&[
        ("api.tls_cert", &quoted[0]),
        ("api.tls_key", &quoted[1]),
        ("postgres.host", "\"0.0.0.0\""),
    ])?;
    let port = mixer.postgres.ok_or("no PostgreSQL port")?.port();
    mixer.postgres = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    assert_eq!(
        selected(&mixer, "admin", &admin, "SELECT 1 + 1")?,
        "2",
        "over loopback clear text will do"
    );
    mixer.postgres = Some(SocketAddr::from((outer, port)));
    for user in ["admin", "nobody"] {
        let mut stream = open(&mixer)?;
        send_startup(&mut stream, user, b"")?;
        let (kind, text) = told(&mut stream)?;
        assert!(kind == b'E' && text.contains("\0C28000\0"), "{user}: {kind} {text:?}");
        assert_eq!(message(&mut stream)?, None, "{user}: the session goes on");
    }
    assert_eq!(outcome(&mixer, ("admin", &admin), "SELECT 1").0, "28000");
    if !psql::is_installed() {
        return Ok(());
    }
    for (mode, password, (is_answered, says)) in [
        ("disable", admin.as_str(), (false, "must be encrypted")),
        ("verify-ca", "wrong", (false, "password authentication failed")),
        ("verify-ca", &admin, (true, "42\n")),
    ] {
        let mut command = psql::command(&outer.to_string(), port, "admin");
        command
            .args(SUM)
            .env("PGSSLMODE", mode)
            .env("PGSSLROOTCERT", &certificate)
            .env("PGPASSWORD", password);
        let (succeeded, said) = output(&mut command)?;
        assert!(succeeded == is_answered && said.contains(says), "{mode}: {said}");
    }
    Ok(())
}
