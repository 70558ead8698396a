//! The systemd units of `deploy/` confine both programs, and the programs tell systemd what it waits for.

use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use harness::{Failure, TestMixer, TestRack, binary, process};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::readme::project;

const SOON: Duration = Duration::from_secs(60);

/// What both units hold. `systemd-analyze security --offline=true` rates each with 1.4 (0 is best, 10 worst).
const CONFINEMENT: &[(&str, &str)] = &[
    ("AmbientCapabilities", ""),
    ("CapabilityBoundingSet", ""),
    ("KeyringMode", "private"),
    // SIGTERM to all processes would end the bus server before the Mixer has stored the rest.
    ("KillMode", "mixed"),
    ("LimitCORE", "0"),
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
    for (program, (families, calls)) in families {
        let settings = settings_of(&format!("{program}.service"))?;
        let of = |name: &str| settings.get(name).map_or("missing", String::as_str);
        for (name, value) in CONFINEMENT {
            assert_eq!(of(name), *value, "{program}: {name}");
        }
        assert_eq!(of("RestrictAddressFamilies"), families);
        assert_eq!(of("SystemCallFilter"), format!("@system-service ~@privileged{calls}"));
        let file = |folder: &str| std::fs::read_to_string(project().join(format!("deploy/{folder}/{program}.conf")));
        let (users, folders) = (file("sysusers.d")?, file("tmpfiles.d")?);
        assert_eq!(of("StateDirectory"), program);
        assert_eq!((of("Type"), of("WatchdogSec")), ("notify", "60s"));
        assert_eq!(of("ExecReload"), "/bin/kill -HUP $MAINPID");
        assert_eq!(of("WorkingDirectory"), format!("/var/lib/{program}"));
        assert!(users.contains(&format!("u {} - ", of("User"))), "{users}");
        assert_eq!(of("User"), of("Group"));
        let state = format!(
            "d {} {} {} {} -",
            of("WorkingDirectory"),
            of("StateDirectoryMode"),
            of("User"),
            of("Group")
        );
        assert!(folders.lines().any(|line| line == state), "{state}: {folders}");
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

#[test]
fn what_the_packages_configure_is_accepted_and_their_first_scenario_is_valid() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let accepted = |program: &str, args: &[&str], file: &str| -> Result<String, Failure> {
        let path = project()
            .join("deploy/debian")
            .join(file)
            .canonicalize()?
            .display()
            .to_string();
        let done = process::run(
            &binary(program)?,
            &[args, &[path.as_str()]].concat(),
            folder.path(),
            &[],
        )?;
        assert_eq!(done.code, Some(0), "{file}: {}", done.err);
        Ok(done.out)
    };
    let mixer = accepted(
        "platform-mixer",
        &["config", "show", "-c"],
        "platform-mixer/platform-mixer.toml",
    )?;
    assert!(mixer.contains("/var/lib/platform-mixer/data"), "{mixer}");
    let rack = accepted("platform", &["config", "show", "-c"], "platform/platform.toml")?;
    assert!(rack.contains("/var/lib/platform/data"), "{rack}");
    accepted(
        "platform",
        &["scenario", "validate", "--strict"],
        "platform-mixer/first.yaml",
    )?;
    Ok(())
}

/// A socket as systemd gives one to a service, and what the service finds in its environment.
struct ServiceManager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl ServiceManager {
    fn new() -> Result<Self, Failure> {
        let folder = tempfile::tempdir()?;
        let socket = UnixDatagram::bind(folder.path().join("notify"))?;
        socket.set_read_timeout(Some(SOON))?;
        Ok(Self { folder, socket })
    }

    fn place(&self) -> String {
        self.folder.path().join("notify").display().to_string()
    }

    /// The next message that has this line; the others before it are passed over.
    fn next(&self, line: &str) -> Result<String, Failure> {
        let mut bytes = [0; 512];
        loop {
            let length = self
                .socket
                .recv(&mut bytes)
                .map_err(|error| format!("{line}: {error}"))?;
            let message = String::from_utf8(bytes[..length].to_vec())?;
            if message.lines().any(|has| has == line) {
                return Ok(message);
            }
        }
    }

    /// Asks as `systemctl reload` and `systemctl stop` do.
    fn reloads_and_stops(&self, pid: Pid) -> Result<(), Failure> {
        self.next("WATCHDOG=1")?;
        kill(pid, Signal::SIGHUP)?;
        self.next("RELOADING=1")?;
        self.next("READY=1")?;
        kill(pid, Signal::SIGTERM)?;
        self.next("STOPPING=1")?;
        Ok(())
    }
}

#[test]
fn both_programs_tell_systemd_that_they_are_ready_alive_reloading_and_stopping() -> Result<(), Failure> {
    let (of_mixer, of_rack) = (ServiceManager::new()?, ServiceManager::new()?);
    let place = of_mixer.place();
    let mut mixer = TestMixer::with(&[], &[("NOTIFY_SOCKET", &place), ("WATCHDOG_USEC", "500000")])?;
    let ready = of_mixer.next("READY=1")?;
    // The whole of it: what the package runs before the Rack (deploy/debian/platform/join-local) takes it apart.
    let status = format!("STATUS=serves {}, bus {}", mixer.api.base, mixer.bus_url);
    assert_eq!(ready, format!("READY=1\n{status}"));

    // A Rack is ready without its Mixer, and says later who it is.
    let place = of_rack.place();
    let envs = [("NOTIFY_SOCKET", place.as_str()), ("WATCHDOG_USEC", "500000")];
    let mut rack = TestRack::with("rack-a", &mixer.bus_url, &[], &envs)?;
    rack.start()?;
    of_rack.next("READY=1")?;
    of_rack.next("STATUS=active as rack-a")?;
    of_rack.reloads_and_stops(rack.process()?.pid())?;
    assert!(rack.process()?.wait(SOON)?.success());

    let process = mixer.process()?;
    of_mixer.reloads_and_stops(process.pid())?;
    assert!(process.wait(SOON)?.success());
    Ok(())
}

#[test]
fn a_rack_whose_bus_is_away_is_ready_for_systemd() -> Result<(), Failure> {
    let manager = ServiceManager::new()?;
    let place = manager.place();
    let nobody = format!("nats://{}", harness::free_address()?);
    let mut rack = TestRack::with("rack-a", &nobody, &[], &[("NOTIFY_SOCKET", place.as_str())])?;
    rack.spawn()?;
    manager.next("READY=1")?;
    assert!(rack.process()?.terminate(SOON)?.success());
    manager.next("STOPPING=1")?;
    Ok(())
}
