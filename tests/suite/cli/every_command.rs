//! Commands that print what another test holds against its source, seen from outside.

use std::collections::BTreeSet;

use harness::{Failure, TestRack, binary, eventually, process};
use serde_json::Value;

use crate::cli::Desk;

#[test]
fn a_new_configuration_file_has_every_key_and_means_the_defaults() -> Result<(), Failure> {
    for program in ["platform", "platform-mixer"] {
        let folder = tempfile::tempdir()?;
        let run = |args: &[&str]| {
            let done = process::run(&binary(program)?, args, folder.path(), &[])?;
            assert_eq!(done.code, Some(0), "{program} {args:?}: {}", done.err);
            Ok::<_, Failure>(done.out)
        };
        let defaults = run(&["config", "show"])?;
        let file = run(&["config", "init"])?;
        std::fs::write(folder.path().join(format!("{program}.toml")), &file)?;
        assert_eq!(run(&["config", "show"])?, defaults, "{program}");
        let keys = |text: &str| -> BTreeSet<String> {
            let lines = text.lines().filter_map(|line| line.split_once(" = "));
            lines
                .map(|(key, _)| key.trim_start_matches(['#', ' ']).to_owned())
                .collect()
        };
        let (there, shown) = (keys(&file), keys(&defaults));
        // Variables of the environment are no keys of a file.
        let missing: Vec<_> = shown
            .iter()
            .filter(|key| !key.starts_with("PLATFORM_") && !there.contains(*key))
            .collect();
        assert!(shown.len() > 20 && missing.is_empty(), "{program}: {missing:?}");
    }
    Ok(())
}

#[test]
fn the_reference_of_the_keys_is_printed_as_it_is_published() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let done = process::run(&binary("platform-mixer")?, &["config", "reference"], folder.path(), &[])?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let page = std::fs::read_to_string(page)?;
    let rows = |text: &str| -> Vec<String> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        rows.map(str::to_owned).collect()
    };
    let printed = rows(&done.out);
    assert!(printed.len() > 30, "{}", done.out);
    let published = rows(&page);
    for row in printed {
        assert!(published.contains(&row), "docs/configuration.md does not have: {row}");
    }
    Ok(())
}

#[test]
fn racks_gear_types_and_the_store_are_listed_and_one_rack_is_shown() -> Result<(), Failure> {
    let desk = Desk::open()?;
    let mut rack = TestRack::new("rack-a", &desk.mixer.bus_url, "")?;
    rack.start()?;
    let listed = crate::cli::json_rows(&desk.answer(&["racks", "list", "--output", "json"])?)?;
    assert_eq!((listed.len(), &listed[0]["name"]), (1, &"rack-a".into()));
    let shown = desk.answer(&["racks", "show", "rack-a", "--output", "json"])?;
    let shown: Value = serde_json::from_str(&shown)?;
    let shown = shown.as_array().map_or(&shown, |rows| &rows[0]);
    assert_eq!((&shown["name"], &shown["state"]), (&"rack-a".into(), &"active".into()));
    eventually("people see the heartbeat", crate::cli::SOON, || {
        let page = desk.answer(&["racks", "show", "rack-a"]).ok()?;
        let value = |key: &str| {
            let line = page.lines().find(|line| line.split(' ').next() == Some(key))?;
            Some(line.get(key.len()..)?.trim().to_owned())
        };
        let is_in = |key: &str, unit: &str| {
            let value = value(key)?;
            let number = value.strip_suffix(unit)?.trim_end();
            Some(
                number
                    .trim_end_matches([' ', 'K', 'M', 'G', 'T', 'i'])
                    .parse::<f64>()
                    .is_ok(),
            )
        };
        let units = [
            ("cpu.usage", "%"),
            ("memory.used", "B"),
            ("disk.free", "B"),
            ("spool_bytes", "B"),
        ];
        let has_figures = units.iter().all(|(key, unit)| is_in(key, unit) == Some(true));
        (has_figures && value("state")? == "active" && value("running")? == "none").then_some(())
    })?;
    assert_eq!(desk.ask(&["racks", "show", "rack-b"])?.code, Some(1));
    for command in ["logs", "traces"] {
        let slip = desk.ask(&[command, "--rack", "rck-a"])?;
        assert!(slip.err.contains("did you mean rack-a?"), "{command}: {}", slip.err);
    }

    let types = desk.answer(&["gears", "list", "--output", "ndjson"])?;
    let manifests = desk.mixer.api.rows("/api/v1/gears")?;
    let printed = types
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<Vec<Value>, _>>()?;
    assert!(manifests.len() > 15 && printed.len() == manifests.len(), "{types}");
    for (printed, manifest) in printed.iter().zip(&manifests) {
        for key in ["type", "summary"] {
            assert_eq!(printed[key], manifest[key], "{printed}");
        }
    }
    let storage = desk.answer(&["storage", "--output", "json"])?;
    let figures = crate::cli::json_rows(&storage)?;
    let answered = desk.mixer.api.get("/api/v1/storage")?.json;
    let keys = |of: &Value| of.as_object().map(|of| of.keys().cloned().collect::<BTreeSet<_>>());
    let figures = figures.into_iter().next().ok_or("no figures")?;
    assert_eq!(keys(&figures), keys(&answered["data"]));
    assert!(figures["tables"]["logs"]["rows"].is_u64(), "{figures}");
    let page = desk.answer(&["storage"])?;
    for table in ["logs", "metrics", "traces", "messages", "dead_letters"] {
        let row = page.lines().find(|line| line.split_whitespace().next() == Some(table));
        assert!(
            row.is_some_and(|row| row.contains(|c: char| c.is_ascii_digit())),
            "{table}: {page}"
        );
    }

    let scenarios = "meta: { name: demo, version: '1' }\nracks: [ { name: rack-a } ]\ngears:\n  \
                     - { name: numbers, type: generator, deploy: rack-a }\n";
    std::fs::write(desk.mixer.path().join("demo.yaml"), scenarios)?;
    desk.answer(&["scenario", "import", "demo.yaml"])?;
    let again = desk.ask(&["scenario", "import", "demo.yaml"])?;
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert!(again.err.contains("nothing changed"), "{}", again.err);
    let listed = desk.answer(&["scenario", "list", "--output", "ndjson"])?;
    assert!(listed.lines().count() == 1 && listed.contains("\"demo:1\""), "{listed}");
    Ok(())
}

#[test]
fn without_a_command_each_program_is_the_mixer_or_the_agent_and_the_word_run_starts_the_agent_too()
-> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let begin = |program: &str, args: &[&str]| {
        let log = folder.path().join(format!("{program}.stderr"));
        process::Process::start(&binary(program)?, args, folder.path(), &log)
    };
    let server = harness::tool("nats-server")?.display().to_string();
    let toml =
        format!("[api]\nport = 0\n[enrollment]\nauto_adopt = true\n[snake]\nport = 0\nserver_binary = {server:?}\n");
    std::fs::write(folder.path().join("platform-mixer.toml"), toml)?;
    let mut mixer = begin("platform-mixer", &[])?;
    let ready = mixer.line("ready ", crate::cli::SOON)?;
    let bus = ready
        .split_whitespace()
        .find_map(|part| part.strip_prefix("bus="))
        .ok_or("no bus")?;
    let toml = format!("[base]\nname = \"rack-a\"\nstate_dir = \"rack\"\n[snake]\nurl = {bus:?}\n");
    std::fs::write(folder.path().join("platform.toml"), toml)?;
    for args in [&[][..], &["run"][..]] {
        let mut agent = begin("platform", args)?;
        let ready = agent.line("ready ", crate::cli::SOON)?;
        assert!(ready.contains("rack-a"), "{args:?}: {ready}");
        assert!(agent.terminate(crate::cli::SOON)?.success());
    }
    assert!(mixer.terminate(crate::cli::SOON)?.success());
    Ok(())
}
