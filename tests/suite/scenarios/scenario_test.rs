//! Unit tests of scenarios by the command: no Mixer, no bus.

use std::path::Path;

use harness::binary;
use harness::process::{Finished, run};

use super::*;

const FLOW: &str = "
meta: { name: flow, version: '1' }
racks: [ { name: a } ]
gears:
  - { name: door, type: http_in, deploy: a, config: { listen: '127.0.0.1:1', path: /in } }
  - { name: decode, type: codec_json, deploy: a, config: { direction: decode } }
  - { name: big, type: filter, deploy: a, config: { where: data.n > 3 } }
  - { name: sink, type: log_sink, deploy: a }
wires:
  - { from: door.out, to: decode.in }
  - { from: decode.out, to: big.in }
  - { from: big.out, to: sink.in }
";

const CASES: &str = "
scenario: flow.yaml
timeout: 500ms
cases:
  - name: big ones arrive
    given: [ { from: door.out, messages: [ { text: '{\"n\": 5, \"m\": 1}' }, { text: '{' } ] } ]
    expect: [ { to: sink.in, messages: [ { data: { n: 5 } } ] } ]
  - name: small ones do not
    given: [ { from: door.out, messages: [ { text: '{\"n\": 1}' } ] } ]
    expect: [ { to: sink.in, count: 0 }, { from: big.rest, where: data.n == 1 } ]
";

fn test(folder: &Path, args: &[&str]) -> Result<Finished, Failure> {
    run(
        &binary("platform")?,
        &[&["scenario", "test"], args].concat(),
        folder,
        &[],
    )
}

#[test]
fn cases_fail_with_their_differences_and_bad_files_with_their_places() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text);
    write("flow.yaml", FLOW)?;
    write("good.yaml", CASES)?;
    let good = test(folder, &["good.yaml"])?;
    assert_eq!((good.code, good.err.as_str()), (Some(0), ""), "{}", good.out);
    let names: Vec<_> = good.out.lines().filter_map(|line| line.split(" (").next()).collect();
    assert_eq!(names, ["ok    big ones arrive", "ok    small ones do not"]);

    write("wrong.yaml", &CASES.replace("data: { n: 5 }", "data: { n: 6, m: 1 }"))?;
    let wrong = test(folder, &["wrong.yaml"])?;
    assert_eq!(wrong.code, Some(1), "{}", wrong.out);
    for says in [
        "FAIL  big ones arrive",
        "sink.in: message 1: data.n: expected 6, got 5",
        "gear decode: ",
        "ok    small",
    ] {
        assert!(wrong.out.contains(says), "{says}: {}", wrong.out);
    }
    assert!(wrong.err.contains("1 of 2 cases failed"), "{}", wrong.err);
    let rows = test(folder, &["wrong.yaml", "-o", "json"])?;
    let rows: Value = serde_json::from_str(&rows.out)?;
    assert_eq!(
        (&rows[0]["passed"], &rows[1]["passed"]),
        (&false.into(), &true.into()),
        "{rows}"
    );
    assert_eq!(rows[0]["reasons"][0], "sink.in: message 1: data.n: expected 6, got 5");

    // The scenario itself, in the file.
    let inline: String = FLOW.trim().lines().map(|line| format!("  {line}\n")).collect();
    write(
        "inline.yaml",
        &CASES.replace("scenario: flow.yaml", &format!("scenario:\n{inline}")),
    )?;
    let inline = test(folder, &["inline.yaml"])?;
    assert_eq!(inline.code, Some(0), "{}{}", inline.out, inline.err);

    write("misfit.yaml", &CASES.replace("to: sink.in", "to: sink.out"))?;
    write("broken.yaml", &CASES.replace("count: 0", "counts: 0"))?;
    write("bad-flow.yaml", &FLOW.replace("http_in", "htp_in"))?;
    write("bad-scenario.yaml", &CASES.replace("flow.yaml", "bad-flow.yaml"))?;
    write("lost.yaml", &CASES.replace("flow.yaml", "nowhere.yaml"))?;
    for (args, code, says) in [
        (
            &["misfit.yaml"][..],
            65,
            "misfit.yaml:5:11: sink (log_sink) has no input out; it has in",
        ),
        (
            &["broken.yaml"],
            65,
            "broken.yaml:10:5: case small ones do not: unknown field `counts`",
        ),
        (&["bad-scenario.yaml"], 65, "unknown type \"htp_in\""),
        (&["lost.yaml"], 74, "nowhere.yaml"),
        (&["nothing.yaml"], 74, "nothing.yaml"),
        (&[], 64, "FILE"),
    ] {
        let done = test(folder, args)?;
        assert_eq!(
            (done.code, done.out.as_str()),
            (Some(code), ""),
            "{args:?}: {}",
            done.err
        );
        assert!(done.err.contains(says), "{args:?}: {}", done.err);
    }
    Ok(())
}

#[test]
fn the_example_of_unit_tests_passes() -> Result<(), Failure> {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/scenario-tests");
    let done = test(&examples, &["field-gateway.yaml"])?;
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.out);
    assert_eq!(done.out.matches("ok    ").count(), 5, "{}", done.out);
    Ok(())
}
