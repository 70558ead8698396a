//! Where a PostgreSQL client comes from: another user of the machine needs a token, and beyond loopback it must encrypt.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::process::Command;

use harness::credentials::self_signed;
use harness::{Failure, TestMixer};
use nix::unistd::geteuid;
use serde_json::json;

use super::{begun, make_token, message, opened, outcome};
use crate::access::{NOBODY, selected};

/// psql with a statement, which does not ask for a password; `None`, and said loudly, if there is none.
fn psql(address: SocketAddr, user: &str) -> Option<Command> {
    if Command::new("psql").arg("--version").output().is_err() {
        println!("LEFT OUT: there is no psql here; apt-get install postgresql-client has it");
        return None;
    }
    let mut command = Command::new("psql");
    command
        .args(["-X", "-A", "-t", "-w", "-h", &address.ip().to_string()])
        .args(["-p", &address.port().to_string(), "-U", user, "-d", "platform"])
        .args(["-c", "SELECT 40 + 2"]);
    Some(command)
}

/// Whether a command succeeded, and all that it printed.
fn printed(mut command: Command) -> Result<(bool, String), Failure> {
    let done = command.output()?;
    let said = [done.stdout, done.stderr].concat();
    Ok((done.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// An IPv4 address of this machine at which others may reach it.
fn outer_address() -> Result<Option<Ipv4Addr>, Failure> {
    let mut addresses = nix::ifaddrs::getifaddrs()?.filter_map(|own| {
        let address = own.address.as_ref().and_then(|address| address.as_sockaddr_in());
        address.map(|address| address.ip())
    });
    Ok(addresses.find(|ip| !ip.is_loopback()))
}

#[test]
fn another_user_of_the_machine_needs_a_token_as_a_postgresql_client_too() -> Result<(), Failure> {
    if !geteuid().is_root() {
        println!("LEFT OUT: only root can be another user");
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
        let Some(mut command) = psql(address, user) else {
            return Ok(());
        };
        command.current_dir("/").env_clear().env("PATH", &programs);
        command.uid(uid).gid(uid);
        if let Some(password) = password {
            command.env("PGPASSWORD", password);
        }
        let (succeeded, said) = printed(command)?;
        assert!(
            succeeded == is_answered && said.contains(says),
            "{uid} as {user}: {said}"
        );
    }
    Ok(())
}

#[test]
fn from_beyond_loopback_a_client_must_encrypt_before_it_is_asked_for_a_password() -> Result<(), Failure> {
    let Some(outer) = outer_address()? else {
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
    let outer = SocketAddr::from((outer, port));
    mixer.postgres = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    assert_eq!(
        selected(&mixer, "admin", &admin, "SELECT 1 + 1")?,
        "2",
        "over loopback clear text will do"
    );
    for user in ["admin", "nobody"] {
        let mut stream = begun(outer, user)?;
        let (kind, text) = message(&mut stream)?;
        assert!(kind == b'E' && text.contains("\0C28000\0"), "{user}: {kind} {text:?}");
        assert!(message(&mut stream).is_err(), "{user}: the session goes on");
    }
    mixer.postgres = Some(outer);
    assert_eq!(outcome(&mixer, ("admin", &admin), "SELECT 1").0, "28000");
    for (mode, password, (is_answered, says)) in [
        ("disable", admin.as_str(), (false, "must be encrypted")),
        ("verify-ca", "wrong", (false, "password authentication failed")),
        ("verify-ca", &admin, (true, "42\n")),
    ] {
        let Some(mut command) = psql(outer, "admin") else {
            return Ok(());
        };
        command
            .env("PGSSLMODE", mode)
            .env("PGSSLROOTCERT", &certificate)
            .env("PGPASSWORD", password);
        let (succeeded, said) = printed(command)?;
        assert!(succeeded == is_answered && said.contains(says), "{mode}: {said}");
    }
    Ok(())
}
