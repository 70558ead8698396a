//! The real psql as a client of a Mixer.

use std::process::Command;

/// Whether there is a psql; says it loudly if not.
#[must_use]
pub fn is_installed() -> bool {
    let is_installed = Command::new("psql").arg("--version").output().is_ok();
    if !is_installed {
        println!("LEFT OUT: there is no psql here; apt-get install postgresql-client has it");
    }
    is_installed
}

/// One that prints rows alone and asks nobody for a password.
#[must_use]
pub fn command(host: &str, port: u16, user: &str) -> Command {
    let mut command = Command::new("psql");
    command
        .args(["-X", "-A", "-t", "-w", "-h", host])
        .args(["-p", &port.to_string(), "-U", user, "-d", "platform"]);
    command
}
