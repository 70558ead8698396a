//! Letters go back to the gear that could not handle them, each once, through `kill -9`.

use super::*;

#[test]
fn a_letter_goes_back_to_its_gear_once_fails_with_its_count_kept_and_passes_when_the_scenario_is_mended()
-> Result<(), Failure> {
    let world = LetterPlant::start()?;
    world.write(&["line 0 good\n".into(), "line bad row\n".into(), "line 2 good\n".into()])?;
    let first = world.letters("gear=pass", 1)?.remove(0);
    for (key, value) in [
        ("rack", json!("rack-b")),
        ("gear", json!("pass")),
        ("port", json!("in")),
        ("way", json!("in")),
        ("from", json!("flux.msg.rack-a.tail.out")),
        ("state", json!("open")),
        ("kind", json!("gear")),
        ("attempts", json!(1)),
        ("replays", json!(0)),
        ("replayable", json!(true)),
    ] {
        assert_eq!(first[key], value, "{key}: {first:?}");
    }
    let shown = world.mixer.api.get(&format!("/api/v1/dlq/{}", id(&first)))?.json;
    let letter = &shown["data"];
    assert_eq!(letter["message"]["text"], "line bad row", "{letter}");
    assert_eq!(letter["message"]["flux_id"], first["flux_id"], "{letter}");
    assert_eq!(letter["headers"]["Flux-Dead-Port"], "in", "{letter}");
    assert!(
        letter["payload"].as_str().is_some_and(|hex| hex.len() > 100),
        "{letter}"
    );
    eventually("the count of open letters", SOON, || {
        let text = world.mixer.api.get("/metrics").ok()?.text;
        text.contains("platform_dlq_open_letters{rack=\"rack-b\",gear=\"pass\"} 1")
            .then_some(())
    })?;

    // The gear is what it was: the message fails again, and its next letter knows that.
    let done = world.change(id(&first), "replay", &json!({ "by": "tester" }))?;
    assert_eq!(done.status, 200, "{}", done.text);
    let state = |letter: &Letter, wanted: &str| {
        eventually(&format!("{wanted} {}", id(letter)), SOON, || {
            let answer = world.mixer.api.get(&format!("/api/v1/dlq/{}", id(letter))).ok()?;
            (answer.json["data"]["state"] == wanted).then_some(answer.json)
        })
    };
    assert_eq!(state(&first, "replayed")?["data"]["changed_by"], "tester");
    let second = world.letters("state=open", 1)?.remove(0);
    assert_eq!(second["replay_of"], first["id"], "{second:?}");
    assert_eq!(
        (&second["attempts"], &second["replays"]),
        (&json!(2), &json!(1)),
        "{second:?}"
    );
    assert_eq!(second["from"], first["from"], "{second:?}");

    world.mend("2")?;
    let done = world.change(id(&second), "replay", &json!({ "wait": "30s" }))?;
    assert_eq!(done.json["data"]["state"], "replayed", "{}", done.text);
    world.sinks("bad", 1)?;
    // Asked again, by whomever, it does not go again.
    for _ in 0..2 {
        assert_eq!(world.change(id(&second), "replay", &json!({}))?.status, 200);
    }
    world.flush(3)?;
    assert_eq!(world.sunk("bad")?.len(), 1, "it was handled once");
    assert_eq!(world.mixer.api.metric("platform_dlq_replayed_letters_total"), Some(2.0));
    world.archives(4)?;

    let done = world.change(id(&second), "replay", &json!({ "again": true, "wait": "30s" }))?;
    assert_eq!(done.json["data"]["state"], "replayed", "{}", done.text);
    world.sinks("bad", 2)?;
    Ok(())
}

#[test]
fn a_letter_waits_for_an_offline_rack_and_is_replayed_once_through_kill_9() -> Result<(), Failure> {
    let mut world = LetterPlant::start()?;
    world.write(&lines(0..20, "bad"))?;
    let all = world.letters("gear=pass", 20)?;
    world.b.kill9()?;
    world.activate(&LetterPlant::yaml(&world.files, "2", ANYTHING), "0s")?;
    let ask = json!({ "filter": { "gear": "pass" }, "wait": "0s" });
    let done = world.mixer.api.post("/api/v1/dlq/replay", &ask)?;
    assert_eq!(
        (&done.json["data"]["changed"], &done.json["data"]["waiting"]),
        (&json!(20), &json!(20)),
        "{}",
        done.text
    );
    // Twice: it is on its way already.
    let twice = world.mixer.api.post("/api/v1/dlq/replay", &ask)?;
    assert_eq!(
        (&twice.json["data"]["changed"], &twice.json["data"]["already"]),
        (&json!(0), &json!(20)),
        "{}",
        twice.text
    );
    world.mixer.kill9()?;
    world.mixer.restart()?;
    let waiting = world.letters("state=waiting", 20)?;
    assert_eq!(waiting[0]["id"], all[0]["id"]);
    let refused = world.change(id(&all[3]), "drop", &json!({}))?;
    assert_eq!(
        (refused.status, &refused.json["code"]),
        (409, &json!("letter_refused")),
        "{}",
        refused.text
    );

    world.b.spawn()?;
    // While they go back, the Mixer dies twice.
    for _ in 0..2 {
        std::thread::sleep(Duration::from_millis(700));
        world.mixer.kill9()?;
        world.mixer.restart()?;
    }
    world.letters("state=replayed", 20)?;
    world.flush(7)?;
    let sunk = world.sinks("bad", 20)?;
    let wanted: Vec<String> = lines(0..20, "bad")
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect();
    assert_eq!(sunk, wanted, "each once, in their order");
    world.letters("", 0)?;
    world.archives(21)
}

#[test]
fn letters_that_many_ask_for_at_once_are_each_handled_once() -> Result<(), Failure> {
    let world = LetterPlant::start()?;
    world.write(&lines(0..240, "bad"))?;
    let all = world.letters("gear=pass&limit=1000", 240)?;
    world.mend("2")?;
    // Requests for one letter and for some, side by side: who has the smaller numbers is not always the first to go on.
    let (api, next) = (&world.mixer.api, std::sync::atomic::AtomicUsize::new(0));
    let ask = || {
        loop {
            let turn = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let (from, count) = (turn / 2 * 6 + turn % 2, if turn % 2 == 0 { 1 } else { 5 });
            let ids: Vec<&str> = all.iter().skip(from).take(count).map(id).collect();
            if ids.is_empty() {
                return;
            }
            let done = api
                .post("/api/v1/dlq/replay", &json!({ "ids": ids, "wait": "0s" }))
                .unwrap();
            assert_eq!(done.json["data"]["changed"], ids.len(), "{}", done.text);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(ask);
        }
    });
    world.letters("state=replayed&limit=1000", 240)?;
    let mut sunk = world.sinks("bad", 240)?;
    sunk.sort_unstable();
    let wanted: Vec<String> = lines(0..240, "bad")
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect();
    assert_eq!(sunk, wanted);
    Ok(())
}

#[test]
fn a_letter_whose_gear_or_wire_is_gone_says_so_and_goes_back_when_it_is_there_again() -> Result<(), Failure> {
    let world = LetterPlant::start()?;
    world.write(&["line bad row\n".into()])?;
    let letter = world.letters("rack=rack-b", 1)?.remove(0);
    let whole = LetterPlant::yaml(&world.files, "2", ANYTHING);
    let gone = whole
        .replace("name: pass", "name: other")
        .replace("pass.", "other.")
        .replace("version: '2'", "version: '3'");
    let unwired = whole
        .replace(
            "  - { from: tail.out, to: pass.in }\n",
            "  - { from: sink2.out, to: pass.in }\n",
        )
        .replace(
            "wires:",
            "  - { name: sink2, type: filter, deploy: rack-a, config: { where: 'true' } }\nwires:",
        )
        .replace("version: '2'", "version: '4'");
    for (yaml, says) in [(gone, "has no gear pass"), (unwired, "no wire of lane guaranteed")] {
        let done = world.activate(&yaml, "60s")?;
        assert_eq!(done.json["data"]["converged"], true, "{}", done.text);
        let refused = world.change(id(&letter), "replay", &json!({}))?;
        assert_eq!(
            (refused.status, &refused.json["code"]),
            (409, &json!("letter_refused")),
            "{}",
            refused.text
        );
        assert!(
            refused.json["detail"].as_str().is_some_and(|why| why.contains(says)),
            "{}",
            refused.text
        );
        let shown = world.mixer.api.get(&format!("/api/v1/dlq/{}", id(&letter)))?.json;
        assert_eq!(
            (&shown["data"]["state"], &shown["data"]["replayable"]),
            (&json!("open"), &json!(false)),
            "{shown}"
        );
    }
    world.mend("5")?;
    let done = world.change(id(&letter), "replay", &json!({ "wait": "30s" }))?;
    assert_eq!(done.json["data"]["state"], "replayed", "{}", done.text);
    world.sinks("bad", 1)?;
    Ok(())
}

#[test]
fn a_rack_that_is_killed_while_letters_go_back_takes_each_once() -> Result<(), Failure> {
    let mut world = LetterPlant::start()?;
    world.write(&lines(0..60, "bad"))?;
    world.letters("gear=pass", 60)?;
    world.mend("2")?;
    let ask = json!({ "filter": { "reason": "WHERE" }, "wait": "0s" });
    let done = world.mixer.api.post("/api/v1/dlq/replay", &ask)?;
    assert_eq!(done.json["data"]["changed"], 60, "{}", done.text);
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(200));
        world.b.kill9()?;
        world.b.spawn()?;
    }
    world.letters("state=replayed", 60)?;
    world.archives(60)?;
    // What a gear does outside may happen again after a crash; nothing is left out.
    eventually("all at the last gear", SOON, || {
        let mut sunk = world.sunk("bad").ok()?;
        sunk.sort_unstable();
        sunk.dedup();
        (sunk.len() == 60).then_some(())
    })
}
