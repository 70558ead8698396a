//! The same by the command.

use std::path::Path;

use harness::binary;
use harness::process::{Finished, run};

use super::*;

/// The command in a folder, pointed at a Mixer.
fn ask(folder: &Path, api: &str, args: &[&str]) -> Result<Finished, Failure> {
    let done = run(&binary("platform")?, args, folder, &[("PLATFORM_API_URL", api)])?;
    Ok(done)
}

/// Nobody listens there.
const NOBODY: &str = "http://127.0.0.1:9";

#[test]
fn a_file_is_validated_with_a_line_for_each_fault_and_each_warning() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("good.yaml"), demo("1", 10))?;
    let bad = demo("1", 10).replace("generator", "genrator").replace("rate", "rat");
    std::fs::write(folder.path().join("bad.yaml"), &bad)?;
    let round = demo("1", 10).replace(
        "gears:\n",
        "  # nobody\nwires: []\ngears:\n  - { name: x, type: log_sink, deploy: edge }\n",
    );
    let round = round.replace("racks: [", "racks: [ { group: edge, labels: { role: edge } },");
    std::fs::write(folder.path().join("lonely.yaml"), round)?;
    let ask = |args: &[&str]| ask(folder.path(), NOBODY, args);

    let good = ask(&["scenario", "validate", "good.yaml"])?;
    assert_eq!(
        (good.code, good.out.as_str(), good.err.as_str()),
        (Some(0), "good.yaml: demo:1 is valid: 1 gears, 0 wires\n", "")
    );
    let bad = ask(&["scenario", "validate", "bad.yaml"])?;
    assert_eq!((bad.code, bad.out.as_str()), (Some(65), ""));
    assert!(
        bad.err
            .contains("bad.yaml:4:28: gear numbers has the unknown type \"genrator\""),
        "{}",
        bad.err
    );
    let lonely = ask(&["scenario", "validate", "lonely.yaml"])?;
    assert_eq!(lonely.code, Some(0), "{}", lonely.err);
    assert!(
        lonely.err.contains("lonely.yaml:2:33: no Rack") && lonely.err.contains("(warning)"),
        "{}",
        lonely.err
    );
    let gears = "  - { name: one, type: filter, deploy: rack-a, config: { where: 'true' } }\n  - { name: two, type: filter, deploy: rack-a, config: { where: 'true' } }\n\
                 wires: [ { from: one.out, to: two.in }, { from: two.out, to: one.in } ]\n";
    std::fs::write(folder.path().join("round.yaml"), demo("1", 10) + gears)?;
    assert_eq!(ask(&["scenario", "validate", "round.yaml"])?.code, Some(0));
    let round = ask(&["scenario", "validate", "round.yaml", "--max-hops", "1"])?;
    assert_eq!(round.code, Some(65));
    assert!(
        round
            .err
            .contains("no message completes the cycle of wires one -> two -> one"),
        "{}",
        round.err
    );
    let missing = ask(&["scenario", "validate", "none.yaml"])?;
    assert_eq!(missing.code, Some(74), "{}", missing.err);
    Ok(())
}

#[test]
fn strict_refuses_what_is_only_a_warning_otherwise_and_a_group_that_racks_are_in_is_none() -> Result<(), Failure> {
    let (mixer, rack) = pair()?;
    let group = demo("1", 10).replace("[ { name: rack-a } ]", "[ { group: edge, labels: { role: edge } } ]");
    let group = group.replace("deploy: rack-a", "deploy: edge");
    std::fs::write(rack.path().join("group.yaml"), &group)?;
    std::fs::write(rack.path().join("good.yaml"), demo("2", 10))?;
    let ask = |args: &[&str]| {
        let all: Vec<_> = ["scenario"].iter().chain(args).copied().collect();
        ask(rack.path(), &mixer.api.base, &all)
    };
    assert_eq!(ask(&["validate", "good.yaml", "--strict"])?.code, Some(0));
    assert_eq!(ask(&["validate", "group.yaml"])?.code, Some(0));
    let strict = ask(&["validate", "group.yaml", "--strict"])?;
    assert_eq!((strict.code, strict.out.as_str()), (Some(65), ""), "{}", strict.err);
    assert!(
        strict.err.contains("group.yaml:2:33: no Rack") && strict.err.contains("1 warning: "),
        "{}",
        strict.err
    );

    let refused = ask(&["activate", "group.yaml", "--strict"])?;
    assert_eq!(refused.code, Some(65), "{}", refused.err);
    assert!(
        refused.err.contains("no adopted Rack has the labels of group edge")
            && refused.err.contains("nothing was activated"),
        "{}",
        refused.err
    );
    let active = || -> Result<Value, Failure> {
        Ok(mixer.api.get("/api/v1/scenarios/status")?.json["data"]["scenario"].clone())
    };
    assert_eq!(active()?, Value::Null);
    let dry = ask(&["activate", "demo:1", "--strict", "--dry-run"])?;
    assert_eq!(dry.code, Some(65), "{}", dry.err);

    // A Rack that an operator gives the label is in the group, whatever the file says of Racks.
    let labels = serde_json::json!({ "role": "edge" });
    assert_eq!(mixer.api.put("/api/v1/racks/rack-a/labels", &labels)?.status, 200);
    let done = ask(&["activate", "demo:1", "--strict", "--wait", "30s"])?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(!done.err.contains("warning"), "{}", done.err);
    assert_eq!(active()?["reference"], "demo:1");
    Ok(())
}

#[test]
fn a_version_with_dots_is_one_wherever_a_version_is_said() -> Result<(), Failure> {
    let (mixer, rack) = pair()?;
    let write = |name: &str, text: &str| std::fs::write(rack.path().join(name), text);
    let two = demo("2", 10).replace("'2'", "1.10");
    write("one.yaml", &demo("1.2.0", 10))?;
    write("two.yaml", &two)?;
    write("file.yaml", &demo("1.yaml", 10))?;
    let ask = |args: &[&str]| {
        let all: Vec<_> = ["scenario"].iter().chain(args).copied().collect();
        ask(rack.path(), &mixer.api.base, &all)
    };
    let done = |args: &[&str]| -> Result<Finished, Failure> {
        let done = ask(args)?;
        assert_eq!(done.code, Some(0), "{args:?}: {}", done.err);
        Ok(done)
    };
    for file in ["one.yaml", "./two.yaml"] {
        done(&["import", file])?;
    }
    let listed = done(&["list", "--output", "csv"])?.out;
    assert!(
        listed.contains("demo,1.2.0,") && listed.contains("demo,1.10,"),
        "{listed}"
    );
    assert_eq!(done(&["show", "demo:1.2.0"])?.out, demo("1.2.0", 10));
    assert_eq!(done(&["show", "demo:latest"])?.out, two);
    done(&["activate", "demo:1.2.0", "--wait", "30s"])?;
    done(&["activate", "two.yaml", "--wait", "30s"])?;
    runs(&mixer, "demo:1.10")?;
    done(&["rollback", "--wait", "30s"])?;
    let status = done(&["status", "--output", "csv"])?.out;
    assert!(status.contains("rack-a,active,demo:1.2.0,demo:1.2.0,true"), "{status}");
    assert!(done(&["graph", "demo:1.10"])?.out.starts_with("%% demo:1.10\n"));
    let changed = done(&["diff", "./one.yaml", "demo:1.10", "--output", "csv"])?.out;
    assert!(changed.ends_with("\nchanged,meta,version,1.2.0,1.10\n"), "{changed}");
    let stored = mixer.api.get("/api/v1/scenarios/demo:1.10")?;
    assert_eq!((stored.status, &stored.json["data"]["version"]), (200, &"1.10".into()));

    for bad in ["demo:..", "demo:1..2", "demo:.1", "demo:1.", "de.mo", "de.mo:1"] {
        let refused = ask(&["show", bad])?;
        assert_eq!(refused.code, Some(64), "{bad}: {}", refused.err);
        assert_eq!(mixer.api.get(&format!("/api/v1/scenarios/{bad}"))?.status, 404, "{bad}");
    }
    let refused = ask(&["import", "file.yaml"])?;
    assert_eq!(refused.code, Some(65));
    assert!(refused.err.contains("\"1.yaml\" is not a version"), "{}", refused.err);
    Ok(())
}

#[test]
fn a_scenario_goes_from_file_to_racks_and_back_by_the_command_alone() -> Result<(), Failure> {
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let (mixer, rack) = pair()?;
    let write = |name: &str, text: &str| std::fs::write(rack.path().join(name), text);
    write("one.yaml", &demo("1", 10))?;
    write("two.yaml", &demo("2", 20))?;
    write("bad.yaml", &impossible(&taken)?)?;
    let ask = |args: &[&str]| {
        let all: Vec<_> = ["scenario"].iter().chain(args).copied().collect();
        ask(rack.path(), &mixer.api.base, &all)
    };

    let stored = ask(&["import", "one.yaml", "--output", "json"])?;
    assert_eq!(stored.code, Some(0), "{}", stored.err);
    assert!(
        stored.out.contains("\"reference\": \"demo:1\"") && stored.out.contains("\"new\": true"),
        "{}",
        stored.out
    );
    write("one.yaml", &demo("1", 11))?;
    let taken_name = ask(&["import", "one.yaml"])?;
    assert_eq!(taken_name.code, Some(64));
    assert!(taken_name.err.contains("--replace"), "{}", taken_name.err);
    assert_eq!(ask(&["import", "one.yaml", "--replace"])?.code, Some(0));
    assert_eq!(ask(&["show", "demo:1"])?.out, demo("1", 11));
    assert_eq!(ask(&["show", "demo:9"])?.code, Some(1));
    assert_eq!(ask(&["show", "no such"])?.code, Some(64));

    let dry = ask(&["activate", "demo:1", "--dry-run", "--output", "csv"])?;
    assert_eq!(dry.code, Some(0), "{}", dry.err);
    assert!(dry.out.contains("rack-a,active,demo:1,,false,numbers,"), "{}", dry.out);
    for file in ["demo:1", "two.yaml"] {
        let done = ask(&["activate", file, "--wait", "30s"])?;
        assert_eq!(done.code, Some(0), "{}", done.err);
    }
    let status = ask(&["status", "--output", "csv"])?;
    assert!(
        status.out.contains("rack-a,active,demo:2,demo:2,true,numbers,"),
        "{}",
        status.out
    );
    assert!(status.err.contains("demo:2 is active since"), "{}", status.err);

    let bad = ask(&["activate", "bad.yaml", "--wait", "50s"])?;
    assert_eq!(bad.code, Some(69), "{}", bad.err);
    assert!(bad.err.contains("1 of 1 Racks do not run it: rack-a"), "{}", bad.err);
    assert!(
        bad.out.contains("demo:bad") && bad.out.contains(&taken.local_addr()?.to_string()),
        "{}",
        bad.out
    );

    let changed = ask(&["diff", "demo:1", "two.yaml", "--output", "csv"])?;
    let lines: Vec<_> = changed.out.lines().collect();
    assert_eq!(
        lines,
        [
            "change,what,key,from,to",
            "changed,gear numbers,config.rate,11,20",
            "changed,meta,version,1,2"
        ]
    );
    let back = ask(&["rollback", "--wait", "30s", "--output", "csv"])?;
    assert_eq!(back.code, Some(0), "{}", back.err);
    assert!(back.out.contains("rack-a,active,demo:2,demo:2,true"), "{}", back.out);
    let drawn = ask(&["graph", "demo:2"])?;
    assert!(
        drawn.out.contains("flowchart LR") && drawn.out.contains("numbers<br/>generator"),
        "{}",
        drawn.out
    );
    Ok(())
}

#[test]
fn pictures_and_pages_of_gears_need_no_mixer() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("good.yaml"), demo("1", 10))?;
    let ask = |args: &[&str]| ask(folder.path(), NOBODY, args);
    let drawn = ask(&["scenario", "graph", "good.yaml", "--format", "svg"])?;
    assert_eq!(drawn.code, Some(0), "{}", drawn.err);
    assert!(
        drawn.out.starts_with("<svg ") && drawn.out.ends_with("</svg>\n"),
        "{}",
        drawn.out
    );
    let page = ask(&["gears", "doc", "generator"])?;
    assert!(
        page.out.contains("| `rate` | number | `1.0` | Messages per second. |"),
        "{}",
        page.out
    );
    let none = ask(&["gears", "doc", "genrator"])?;
    assert_eq!(none.code, Some(1));
    let unreachable = ask(&["scenario", "status"])?;
    assert_eq!(unreachable.code, Some(69), "{}", unreachable.err);
    Ok(())
}

#[test]
fn a_stored_scenario_is_deleted_unless_it_is_active() -> Result<(), Failure> {
    let (mixer, rack) = pair()?;
    for version in ["1", "2"] {
        std::fs::write(rack.path().join(format!("{version}.yaml")), demo(version, 10))?;
    }
    let ask = |args: &[&str]| {
        let all: Vec<_> = ["scenario"].iter().chain(args).copied().collect();
        ask(rack.path(), &mixer.api.base, &all)
    };
    assert_eq!(ask(&["import", "2.yaml"])?.code, Some(0));
    assert_eq!(ask(&["activate", "1.yaml", "--wait", "30s"])?.code, Some(0));
    let active = ask(&["delete", "demo:1"])?;
    assert!(
        active.code != Some(0) && active.err.contains("demo:1 is active"),
        "{active:?}"
    );
    let deleted = ask(&["delete", "demo:2", "--output", "csv"])?;
    assert!(
        deleted.code == Some(0) && deleted.out.contains("demo:2,"),
        "{deleted:?}"
    );
    let listed = ask(&["list", "--output", "csv"])?.out;
    assert!(listed.contains("demo,1,") && !listed.contains("demo,2,"), "{listed}");
    let gone = ask(&["delete", "demo:2"])?;
    assert!(
        gone.code != Some(0) && gone.err.contains("there is no scenario"),
        "{gone:?}"
    );
    let path = "/api/v1/scenarios/demo:2/delete";
    assert_eq!(mixer.api.post(path, &serde_json::json!({}))?.status, 404);
    Ok(())
}
