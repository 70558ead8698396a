//! Names that would lead out of a folder, a subject or an address, at every door that takes one.
//!
//! Those of Racks, scenarios and gears over REST and at the start of a Rack are in `tests/suite/racks/names.rs`, those of a
//! handshake in `mixer/src/enrollment/tests.rs`.

use std::path::Path;

use harness::binary;
use harness::bus::Outgoing;
use harness::process::{Finished, run};
use model::telemetry_codec;

use super::*;

const NAMES: [&str; 9] = [
    "../../evil",
    "..",
    "a/evil",
    "/tmp/evil",
    "a\\evil",
    "evil\u{0}",
    "e.vil",
    "evil*",
    "%2e%2e%2fevil",
];

/// What a publisher may say of itself.
const LIARS: [&[(&str, &str)]; 4] = [
    &[
        (telemetry_codec::CONTENT_TYPE, "application/json"),
        (telemetry_codec::ENTITY_ID, "../../evil"),
    ],
    &[
        (telemetry_codec::CONTENT_TYPE, "application/json"),
        (telemetry_codec::ENTITY_ID, "/tmp/evil"),
    ],
    &[
        (telemetry_codec::CONTENT_TYPE, "../../evil"),
        (telemetry_codec::ENTITY_NAME, "../../evil"),
    ],
    &[
        (telemetry_codec::CONTENT_TYPE, "application/json"),
        (telemetry_codec::ENTITY_ID, "evil"),
        (telemetry_codec::ENTITY_NAME, "/tmp/evil"),
        (telemetry_codec::BOOT_EPOCH, "1"),
        (telemetry_codec::SEQUENCE, "1"),
    ],
];

/// Every file below a folder.
fn files(folder: &Path, found: &mut Vec<String>) -> Result<(), Failure> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path.display().to_string());
        }
    }
    Ok(())
}

/// No file was made under such a name, inside or just outside of these folders.
fn nothing_evil(folders: &[&Path]) -> Result<(), Failure> {
    let mut found = Vec::new();
    for folder in folders {
        files(folder, &mut found)?;
    }
    found.retain(|path| path.contains("evil"));
    assert!(found.is_empty(), "{found:?}");
    assert!(!Path::new("/tmp/evil").exists());
    Ok(())
}

/// A name as one part of a path.
fn part(name: &str) -> String {
    name.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[test]
fn no_name_in_an_address_leads_to_another_thing_than_its_own() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    for name in NAMES {
        let name = part(name);
        for path in [
            format!("/api/v1/racks/{name}"),
            format!("/api/v1/scenarios/{name}"),
            format!("/api/v1/scenarios/{name}:1"),
            format!("/api/v1/gears/{name}"),
            format!("/api/v1/dlq/{name}"),
            format!("/api/v1/flux/{name}"),
            format!("/api/v1/messages/{name}"),
            format!("/api/v1/telemetry/traces/{name}"),
            format!("/api/v1/telemetry/metrics/{name}"),
        ] {
            let answer = mixer.api.get(&path)?;
            assert!([400, 404].contains(&answer.status), "{path}: {}", answer.text);
            assert!(answer.json["code"].is_string(), "{path}: {}", answer.text);
        }
        for path in [
            format!("/api/v1/racks/{name}/approve"),
            format!("/api/v1/racks/{name}/remove"),
            format!("/api/v1/scenarios/{name}/activate"),
            format!("/api/v1/dlq/{name}/drop"),
            format!("/api/v1/dlq/{name}/replay"),
        ] {
            let answer = mixer.api.post(&path, &json!({}))?;
            assert!([400, 404].contains(&answer.status), "{path}: {}", answer.text);
        }
    }
    nothing_evil(&[mixer.path()])
}

#[test]
fn no_name_on_the_command_line_or_in_a_file_leads_out_of_its_folder() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let mixer = TestMixer::start("")?;
    let platform = |args: &[&str]| -> Result<Finished, Failure> {
        let args = [args, &["--api-url", &mixer.api.base]].concat();
        run(&binary("platform")?, &args, folder.path(), &[])
    };
    for name in NAMES.iter().filter(|name| !name.contains('\0')) {
        for args in [
            ["racks", "show", name],
            ["racks", "remove", name],
            ["scenario", "show", name],
            ["dlq", "show", name],
            ["gears", "doc", name],
        ] {
            let done = platform(&args)?;
            assert!(
                done.code.is_some_and(|code| code != 0) && !done.err.is_empty(),
                "{args:?}: {done:?}"
            );
        }
    }
    let specs = mixer.path().join("data/specs");
    std::fs::create_dir_all(&specs)?;
    let mut count = 0;
    for name in NAMES {
        let quoted = serde_json::to_string(name)?;
        let spec = |name: &str, prefix: &str| {
            format!(
                "name: {name}\nversion: 1\nmatch: {{ msg_type: order }}\nprefix: {prefix}\nfields:\n  \
                 - {{ name: n, path: /n, type: int }}\n"
            )
        };
        for text in [spec(&quoted, "ord"), spec("order", &quoted)] {
            std::fs::write(folder.path().join("bad.yaml"), &text)?;
            let checked = run(
                &binary("platform")?,
                &["spec", "validate", "bad.yaml"],
                folder.path(),
                &[],
            )?;
            assert_eq!(checked.code, Some(65), "{text}: {checked:?}");
            std::fs::rename(folder.path().join("bad.yaml"), specs.join(format!("bad-{count}.yaml")))?;
            count += 1;
        }
    }
    eventually("the Mixer refuses every file", SOON, || {
        let shown = mixer.api.get("/api/v1/specs").ok()?.json;
        (shown["data"]["refused"].as_array()?.len() == count).then_some(())
    })
    .map_err(|error| {
        format!(
            "{error}: {:?}",
            mixer.api.get("/api/v1/specs").map(|answer| answer.text)
        )
    })?;
    assert_eq!(mixer.api.get("/api/v1/specs")?.json["data"]["specs"], json!([]));
    nothing_evil(&[mixer.path(), folder.path()])
}

#[test]
fn no_name_on_the_bus_becomes_a_folder_and_each_is_a_letter() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let bus = mixer.bus()?;
    let rows = json!([{ "ts": "2026-11-21T10:00:00Z", "level": "info", "message": "hello" }]).to_string();
    let mut sent = 0;
    for name in NAMES.iter().filter(|name| !name.contains('\0')) {
        // A subject has no dots, spaces or wildcards within a word; what it may have besides is tried.
        if !name.contains(['.', '*']) {
            bus.publish(&format!("flux.telemetry.logs.{name}"), rows.clone().into_bytes())?;
            bus.publish(&format!("flux.msg.{name}.gear.out"), rows.clone().into_bytes())?;
            sent += 2;
        }
    }
    for headers in LIARS {
        let message = |subject: &str| Outgoing {
            subject: subject.to_owned(),
            headers,
            body: rows.clone().into_bytes(),
        };
        bus.publish_all(vec![
            message("flux.telemetry.logs.rack-a"),
            message("flux.msg.rack-a.gear.out"),
        ])?;
        sent += 2;
    }
    eventually("each of them is a letter", SOON, || {
        (letters(&mixer, "true")? == sent).then_some(())
    })
    .map_err(|error| {
        let there = letters(&mixer, "true");
        format!("{error}: {sent} sent, {there:?} there")
    })?;
    nothing_evil(&[mixer.path()])
}
