//! Checks of security: what the Mixer says of itself, and what the Rack's file permits.
//!
//! Invariant: what could not be asked is a check that was skipped, never one that is well.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rack::config::{RackConfig, SandboxMode};
use serde_json::Value;

use super::{CheckOutcome, DoctorCheck};
use crate::client::{self, ApiClient};

/// What the Mixer says of its own security; what is off is `off`.
pub(super) fn mixer(client: &ApiClient, off: CheckOutcome) -> Vec<DoctorCheck> {
    let findings = client
        .get("/api/v1/security", &())
        .and_then(|mut answer| client::rows(&mut answer));
    let findings = match findings {
        Ok(findings) => findings,
        Err(error) => return vec![DoctorCheck::new("mixer", off, error.to_string(), "")],
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let checks = findings.iter().map(|finding| {
        let ok = finding.get("ok") == Some(&Value::Bool(true));
        let state = if ok { CheckOutcome::Ok } else { off };
        DoctorCheck::new(
            text(finding.get("check")),
            state,
            text(finding.get("found")),
            text(finding.get("fix")),
        )
    });
    checks.collect()
}

/// What the Rack's own file permits; what is off is `off`.
pub(super) fn rack(rack: &RackConfig, off: CheckOutcome) -> Vec<DoctorCheck> {
    let policy = &rack.policy;
    let check = |name: &'static str, ok: bool, found: String, fix: &'static str| {
        let (state, fix) = if ok { (CheckOutcome::Ok, "") } else { (off, fix) };
        DoctorCheck::new(name, state, found, fix)
    };
    let is_everything = |path: &&std::path::PathBuf| path.as_path() == Path::new("/");
    let wide = policy
        .read_roots
        .iter()
        .chain(&policy.write_roots)
        .any(|path| is_everything(&path));
    let is_encrypted = rack.base.state_key_file.is_some() || rack.base.state_key.is_some();
    let open = policy.listen.iter().any(|rule| rule == "*");
    let owner = std::fs::metadata(&rack.base.state_file).map(|facts| facts.uid());
    let user = match owner {
        Ok(0) => check(
            "rack user",
            false,
            "the Rack runs as root".to_owned(),
            "run it as a user of its own, with the unit in deploy/",
        ),
        Ok(uid) => check("rack user", true, format!("the Rack runs as user {uid}"), ""),
        Err(error) => DoctorCheck::skipped("rack user", &format!("{}: {error}", rack.base.state_file.display())),
    };
    vec![
        user,
        check(
            "rack files",
            !wide,
            format!(
                "scenarios read beneath {:?} and write beneath {:?}",
                policy.read_roots, policy.write_roots
            ),
            "name the folders that gears need in policy.read_roots and policy.write_roots",
        ),
        check(
            "rack listeners",
            !open,
            format!("gears may listen at {}", policy.listen.join(", ")),
            "name the addresses in policy.listen",
        ),
        check(
            "rack bus",
            !rack.snake.allow_insecure,
            format!("snake.allow_insecure is {}", rack.snake.allow_insecure),
            "join with an invite (platform join), or set snake.tls_ca; then set snake.allow_insecure to false",
        ),
        check(
            "rack sandbox",
            policy.sandbox != SandboxMode::Off,
            match policy.sandbox {
                SandboxMode::Auto => "the kernel confines the Rack where it has Landlock",
                SandboxMode::Require => "the kernel confines the Rack, or it does not start",
                SandboxMode::Off => "the kernel does not confine the Rack",
            }
            .to_owned(),
            "set policy.sandbox to auto or require",
        ),
        check(
            "rack state",
            is_encrypted,
            match is_encrypted {
                true => "the Rack's keys are encrypted".to_owned(),
                false => "the Rack's keys lie in clear in its state file".to_owned(),
            },
            "set base.state_key_file",
        ),
    ]
}
