//! The same by the command, and by the page that describes it.

use std::io::Read as _;
use std::process::{Child, Command, Stdio};

use harness::binary;
use harness::process::{Finished, run};

use super::*;

fn ask(world: &LetterPlant, args: &[&str]) -> Result<Finished, Failure> {
    let all: Vec<_> = ["dlq"].iter().chain(args).copied().collect();
    let envs = [("PLATFORM_API_URL", world.mixer.api.base.as_str()), ("USER", "ada")];
    run(&binary("platform")?, &all, world.a.path(), &envs)
}

#[test]
fn letters_are_listed_shown_replayed_and_dropped_by_the_command() -> Result<(), Failure> {
    let world = LetterPlant::start()?;
    world.write(&lines(0..4, "bad"))?;
    let all = world.letters("gear=pass", 4)?;
    // Letters that come together are listed in any order.
    let first = id(&all[3]).to_owned();
    let read = world.mixer.api.get(&format!("/api/v1/dlq/{first}"))?.json;
    let text = read["data"]["message"]["text"].as_str().ok_or("no text")?;
    assert!(text.starts_with("line bad00"), "{text}");

    let listed = ask(&world, &["list", "--gear", "pass", "--output", "csv", "--limit", "2"])?;
    assert_eq!(listed.code, Some(0), "{}", listed.err);
    let rows: Vec<_> = listed.out.lines().collect();
    assert_eq!(
        rows[0],
        "ts,id,flux_id,state,rack,gear,port,from,attempts,replays,reason"
    );
    assert!(
        rows[1].contains(",open,rack-b,pass,in,flux.msg.rack-a.tail.out,1,0,"),
        "{}",
        rows[1]
    );
    assert_eq!(rows.len(), 3, "{}", listed.out);
    assert!(listed.err.contains("there are more rows"), "{}", listed.err);

    let shown = ask(&world, &["show", &first])?;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert!(
        shown.out.contains("from          flux.msg.rack-a.tail.out\n"),
        "{}",
        shown.out
    );
    assert!(shown.out.contains(&format!("\"text\": \"{text}\"")), "{}", shown.out);
    let json = ask(&world, &["show", &first, "--output", "json"])?;
    let json: Value = serde_json::from_str(&json.out)?;
    assert_eq!(json[0]["id"], first.as_str());
    assert_eq!(ask(&world, &["show", &"0".repeat(32)])?.code, Some(1));
    for wrong in [
        &["show", "zz"][..],
        &["replay"],
        &["drop", "--yes"],
        &["replay", &first, "--all"],
        &["replay", &first, "--rack", "rack-b"],
        &["list", "--state", "lost"],
    ] {
        assert_eq!(ask(&world, wrong)?.code, Some(64), "{wrong:?}");
    }

    // Nobody can be asked here.
    let unsure = ask(&world, &["drop", &first])?;
    assert_eq!(unsure.code, Some(64));
    assert!(
        unsure.err.contains("1 letter would be dropped") && unsure.err.contains("--yes"),
        "{}",
        unsure.err
    );
    let dropped = ask(&world, &["drop", &first, "--yes", "--output", "json"])?;
    assert_eq!(dropped.code, Some(0), "{}", dropped.err);
    assert!(dropped.out.contains("\"dropped\": 1"), "{}", dropped.out);
    let who = world.letters("state=dropped", 1)?[0]["changed_by"].clone();
    assert!(who.as_str().is_some_and(|who| who.starts_with("ada@")), "{who}");

    let refused = ask(&world, &["replay", &first])?;
    assert_eq!(refused.code, Some(65), "{}", refused.out);
    assert!(refused.err.contains("it was dropped"), "{}", refused.err);
    world.mend("2")?;
    let dry = ask(&world, &["replay", "--gear", "pass", "--dry-run", "--output", "csv"])?;
    assert_eq!(dry.code, Some(0), "{}", dry.err);
    let wanted = "matched,changed,already,replayed,waiting,dropped,refused_total\n3,3,0,0,0,0,0\n";
    assert_eq!(dry.out, wanted);
    let done = ask(
        &world,
        &["replay", "--gear", "pass", "--wait", "60s", "--output", "csv"],
    )?;
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(done.out, wanted.replace("3,3,0,0", "3,3,0,3"));
    world.sinks("bad", 3)?;
    assert_eq!(
        ask(&world, &["replay", "--gear", "pass"])?.code,
        Some(1),
        "none is left"
    );
    Ok(())
}

/// Somebody who drops all letters at a terminal.
fn drop_all_at_a_terminal(world: &LetterPlant) -> Result<Child, Failure> {
    let line = format!("{} dlq drop --all --no-pager", binary("platform")?.display());
    let script = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .envs([("PLATFORM_API_URL", world.mixer.api.base.as_str()), ("TERM", "xterm")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    Ok(script)
}

#[test]
fn whoever_drops_letters_at_a_terminal_is_asked_first() -> Result<(), Failure> {
    let world = LetterPlant::start()?;
    world.write(&lines(0..2, "bad"))?;
    world.letters("gear=pass", 2)?;
    let say = |answer: &str| -> Result<String, Failure> {
        let mut script = drop_all_at_a_terminal(&world)?;
        script.stdin.take().ok_or("no input")?.write_all(answer.as_bytes())?;
        Ok(String::from_utf8_lossy(&script.wait_with_output()?.stdout).into_owned())
    };
    let kept = say("n\n")?;
    assert!(
        kept.contains("Drop 2 letters?") && kept.contains("nothing was dropped"),
        "{kept}"
    );
    world.letters("state=open", 2)?;
    let gone = say("y\n")?;
    assert!(gone.contains("Drop 2 letters?"), "{gone}");
    world.letters("state=dropped", 2)?;
    Ok(())
}

#[test]
fn letters_that_come_while_somebody_is_asked_are_left_alone() -> Result<(), Failure> {
    let world = LetterPlant::start()?;
    world.write(&lines(0..2, "bad"))?;
    world.letters("gear=pass", 2)?;
    let mut script = drop_all_at_a_terminal(&world)?;
    let (keys, out) = (script.stdin.take(), script.stdout.take());
    let (mut keys, mut out) = (keys.ok_or("no input")?, out.ok_or("no output")?);
    let (mut shown, mut part) = (Vec::new(), [0; 256]);
    while !String::from_utf8_lossy(&shown).contains("Drop 2 letters?") {
        let count = out.read(&mut part)?;
        assert!(count > 0, "it ended: {}", String::from_utf8_lossy(&shown));
        shown.extend_from_slice(&part[..count]);
    }
    world.write(&lines(2..3, "late"))?;
    let all = world.letters("gear=pass", 3)?;
    keys.write_all(b"y\n")?;
    out.read_to_end(&mut shown)?;
    assert!(script.wait()?.success(), "{}", String::from_utf8_lossy(&shown));
    world.letters("state=dropped", 2)?;
    let left = world.letters("state=open", 1)?;
    assert_eq!(id(&left[0]), id(&all[0]), "the newest");
    Ok(())
}

/// Every command of `docs/dlq.md`, in its order, over letters of which the third is `ID`.
#[test]
fn the_commands_of_the_page_work_as_they_are_written() -> Result<(), Failure> {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/dlq.md");
    let page = std::fs::read_to_string(page)?;
    let blocks = page
        .split("```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| block.strip_prefix("sh\n"));
    let commands: Vec<&str> = blocks.flat_map(str::lines).filter(|line| !line.is_empty()).collect();
    assert!(commands.len() >= 8, "{commands:?}");
    let world = LetterPlant::start()?;
    world.write(&lines(0..6, "bad"))?;
    let all = world.letters("gear=pass", 6)?;
    world.mend("2")?;
    for line in commands {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let line = line.replace("ID", id(&all[3]));
        let mut words = line.split_whitespace();
        assert_eq!((words.next(), words.next()), (Some("platform"), Some("dlq")), "{line}");
        let words: Vec<&str> = words.collect();
        let done = ask(&world, &words)?;
        assert_eq!(done.code, Some(0), "{line}: {}{}", done.out, done.err);
    }
    world.letters("", 0)?;
    Ok(())
}
