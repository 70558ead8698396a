//! Debian's rsyslog: to a Rack's `syslog_in` by TCP and UDP, and as documents of Elasticsearch.

use std::path::Path;

use harness::process::{Process, run};
use harness::{Failure, TestRack, eventually, free_address};
use serde_json::{Value, json};

use super::sender_table::SenderTable;
use super::{MISSING, RECORDS, SOON, compare_logs, file, installed, listens, python, said, stored};
use crate::first_light::mixer_with;

/// Where rsyslog sends to: the gear, how its lines come, and what is in braces in its configuration.
const WAYS: [(&str, &str, &str); 3] = [
    ("lines", "tcp", "over TCP, by lines"),
    ("counted", "tcp", "over TCP, counted"),
    ("datagrams", "udp", "over UDP"),
];

/// Where Debian's libraries are.
fn libraries(root: &Path) -> String {
    let folder = format!("usr/lib/{}-linux-gnu", std::env::consts::ARCH);
    root.join(folder).display().to_string()
}

/// rsyslog with its version, as it says it itself.
fn version(program: &Path, libraries: &str) -> Result<String, Failure> {
    let said = run(
        program,
        &["-v"],
        &std::env::temp_dir(),
        &[("LD_LIBRARY_PATH", libraries)],
    )?
    .out;
    let version = said
        .split_whitespace()
        .nth(1)
        .ok_or("rsyslog does not say its version")?;
    Ok(format!("rsyslog ({version})"))
}

/// Gears for each way, at these ports.
fn scenario(ports: &[u16; 3]) -> String {
    let gears = WAYS.iter().zip(ports).map(|((gear, ..), port)| {
        format!(
            "  - {{ name: {gear}, type: syslog_in, deploy: rack-a, config: {{ listen: '127.0.0.1:{port}' }} }}\n  \
             - {{ name: {gear}-sink, type: log_sink, deploy: rack-a }}\n"
        )
    });
    let wires = WAYS.map(|(gear, ..)| format!("  - {{ from: {gear}.out, to: {gear}-sink.in }}\n"));
    format!(
        "meta: {{ name: syslog, version: '1' }}\nracks: [ {{ name: rack-a }} ]\ngears:\n{}wires:\n{}",
        gears.collect::<String>(),
        wires.concat()
    )
}

pub(super) fn rsyslog(table: &mut SenderTable) -> Result<(), Failure> {
    let Some((root, python)) = installed("senders-debian/usr/sbin/rsyslogd")?.zip(python()?) else {
        table.not_run("rsyslog", MISSING);
        return Ok(());
    };
    let program = root.as_path();
    let root = program.ancestors().nth(3).ok_or("rsyslog lies nowhere")?;
    let libraries = libraries(root);
    let rsyslog = version(program, &libraries)?;
    let addresses = [free_address()?, free_address()?, free_address()?];
    let (mixer, folder) = mixer_with(&scenario(&addresses.map(|address| address.port())))?;
    let mut rack = TestRack::new("rack-a", &mixer.bus_url, "")?;
    rack.start()?;
    addresses.into_iter().try_for_each(listens)?;

    let path = |name: &str| folder.path().join(name).display().to_string();
    let socket = path("log.sock");
    let mut configuration = std::fs::read_to_string(file("rsyslog.conf")?)?;
    configuration = configuration
        .replace("{socket}", &socket)
        .replace("{mixer}", &mixer.api.base);
    for ((gear, ..), address) in WAYS.iter().zip(addresses) {
        configuration = configuration.replace(&format!("{{{gear}}}"), &address.port().to_string());
    }
    std::fs::write(path("rsyslog.conf"), configuration)?;
    let modules = format!("{libraries}/rsyslog");
    let (settings, pid) = (path("rsyslog.conf"), path("rsyslog.pid"));
    let args = ["-n", "-f", &settings, "-i", &pid, "-M", &modules];
    let log = folder.path().join("rsyslog.log");
    let environment = [("LD_LIBRARY_PATH".to_owned(), libraries.clone())];
    let _daemon = Process::start_with(program, &args, folder.path(), &log, &environment)?;
    eventually("the socket of rsyslog", SOON, || {
        Path::new(&socket).exists().then_some(())
    })?;

    let messages = said(&python, folder.path(), &[&file("syslog.py")?, &socket, RECORDS], &[])?;
    let part = |name: &str| -> Vec<Value> { messages.iter().map(|message| message[name].clone()).collect() };
    for (gear, transport, how) in WAYS {
        let sent: Vec<Value> = part("data").iter().map(|data| json!([transport, data])).collect();
        let statement = format!(
            "SELECT message, attributes FROM logs WHERE entity_name = 'rack-a' AND attributes->>'gear.id' = '{gear}-sink' \
             AND attributes->>'network.transport' IS NOT NULL"
        );
        let rows = stored(&mixer, &statement, sent.len())?;
        // The sink writes the data of the message as JSON.
        let found = rows.iter().map(|row| -> Result<Value, Failure> {
            let data: Value = serde_json::from_str(row["message"].as_str().unwrap_or_default())?;
            Ok(json!([row["attributes"]["network.transport"], data]))
        });
        let found = found.collect::<Result<Vec<_>, _>>()?;
        table.compare(&format!("{rsyslog} {how}"), "logs", &sent, &found);
    }
    compare_logs(
        table,
        (&mixer, "rsyslog"),
        &format!("{rsyslog} as documents"),
        &part("row"),
    )
}
