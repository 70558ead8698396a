//! The systemd units of `deploy/` confine both programs.

use std::collections::BTreeMap;

use harness::{Failure, binary, process};

use crate::readme::project;

/// What both units hold. `systemd-analyze security --offline=true` rates each with 1.4 (0 is best, 10 worst).
const CONFINEMENT: &[(&str, &str)] = &[
    ("AmbientCapabilities", ""),
    ("CapabilityBoundingSet", ""),
    ("KeyringMode", "private"),
    ("LockPersonality", "yes"),
    ("MemoryDenyWriteExecute", "yes"),
    ("NoNewPrivileges", "yes"),
    ("PrivateDevices", "yes"),
    ("PrivateTmp", "yes"),
    ("PrivateUsers", "yes"),
    ("ProtectClock", "yes"),
    ("ProtectControlGroups", "yes"),
    ("ProtectHome", "yes"),
    ("ProtectHostname", "yes"),
    ("ProtectKernelLogs", "yes"),
    ("ProtectKernelModules", "yes"),
    ("ProtectKernelTunables", "yes"),
    ("ProtectProc", "invisible"),
    ("ProtectSystem", "strict"),
    ("RestrictNamespaces", "yes"),
    ("RestrictRealtime", "yes"),
    ("RestrictSUIDSGID", "yes"),
    ("SystemCallArchitectures", "native"),
    ("UMask", "0027"),
];

/// The settings of a unit, by name; those that are given twice with a space between.
fn settings_of(unit: &str) -> std::io::Result<BTreeMap<String, String>> {
    let mut settings: BTreeMap<String, String> = BTreeMap::new();
    let text = std::fs::read_to_string(project().join("deploy").join(unit))?;
    let lines = text.lines().filter(|line| !line.starts_with(['#', '[']));
    for (name, value) in lines.filter_map(|line| line.split_once('=')) {
        let held = settings.entry(name.to_owned()).or_default();
        *held = format!("{held} {value}").trim().to_owned();
    }
    Ok(settings)
}

#[test]
fn units_confine_both_programs_to_their_state_folder() -> Result<(), Failure> {
    let families = BTreeMap::from([
        ("platform-mixer", ("AF_UNIX AF_INET AF_INET6 AF_NETLINK", "")),
        // A Rack confines itself further.
        (
            "platform",
            (
                "AF_UNIX AF_INET AF_INET6",
                " landlock_create_ruleset landlock_add_rule landlock_restrict_self",
            ),
        ),
    ]);
    let users = std::fs::read_to_string(project().join("deploy/sysusers.conf"))?;
    for (program, (families, calls)) in families {
        let settings = settings_of(&format!("{program}.service"))?;
        let of = |name: &str| settings.get(name).map_or("missing", String::as_str);
        for (name, value) in CONFINEMENT {
            assert_eq!(of(name), *value, "{program}: {name}");
        }
        assert_eq!(of("RestrictAddressFamilies"), families);
        assert_eq!(of("SystemCallFilter"), format!("@system-service ~@privileged{calls}"));
        assert_eq!(of("StateDirectory"), program);
        assert_eq!(of("WorkingDirectory"), format!("/var/lib/{program}"));
        assert!(users.contains(&format!("u {} - ", of("User"))), "{users}");
        assert_eq!(of("User"), of("Group"));
    }
    Ok(())
}

#[test]
fn units_start_the_programs_with_arguments_that_they_know() -> Result<(), Failure> {
    for program in ["platform-mixer", "platform"] {
        let settings = settings_of(&format!("{program}.service"))?;
        let mut words = settings["ExecStart"].split_whitespace();
        assert_eq!(words.next(), Some(format!("/usr/bin/{program}").as_str()));
        // A wrong command line would be 64; the file is not there, which is a wrong configuration.
        let folder = tempfile::tempdir()?;
        let missing = folder.path().join("missing.toml").display().to_string();
        let args: Vec<&str> = words
            .map(|word| {
                if word.ends_with(".toml") {
                    missing.as_str()
                } else {
                    word
                }
            })
            .collect();
        let done = process::run(&binary(program)?, &args, folder.path(), &[])?;
        assert_eq!(done.code, Some(78), "{program}: {}", done.err);
        assert!(settings["RestartPreventExitStatus"].split(' ').any(|code| code == "78"));
    }
    Ok(())
}
