//! The REST API of the queue: filters, pages, bulk, what it refuses.

use super::*;

/// That a report of a filter without an end, or with one far away, means no letter that comes later.
fn ends_now(report: &Value) {
    let times = ["since", "until"].map(|end| report["data"][end].as_str().unwrap_or_default());
    assert!(
        times[0].starts_with("20") && times[0] < times[1] && times[1] < "2099",
        "{report}"
    );
}

#[test]
fn letters_are_chosen_by_filter_dropped_and_replayed_in_bulk_in_their_order() -> Result<(), Failure> {
    let world = LetterPlant::start()?;
    world.write(&lines(0..25, "bad"))?;
    let all = world.letters("gear=pass&limit=1000", 25)?;
    let api = &world.mixer.api;
    for (query, count) in [
        ("rack=rack-b", 25),
        ("rack=rack-a", 0),
        ("rack=rack", 0),
        ("gear=pas", 0),
        ("subject=flux.gear.rack-b.pass", 25),
        ("subject=flux.msg.rack-a.tail.out", 25),
        ("subject=flux.msg.rack-a", 0),
        ("reason=WHERE", 25),
        ("reason=no%20such", 0),
        ("state=dropped", 0),
        ("until=2020-01-01T00:00:00Z&since=2019-01-01T00:00:00Z", 0),
    ] {
        assert_eq!(api.rows(&format!("/api/v1/dlq?{query}"))?.len(), count, "{query}");
    }
    // Page by page.
    let (mut ids, mut cursor) = (Vec::new(), String::new());
    loop {
        let (rows, next) = api.page(&format!("/api/v1/dlq?rack=rack-b&limit=7{cursor}"))?;
        assert!(rows.len() <= 7);
        ids.extend(rows.iter().map(|row| id(row).to_owned()));
        match next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(ids, all.iter().map(|row| id(row).to_owned()).collect::<Vec<_>>());

    // The newest five are dropped; where they were, pages go on.
    let newest: Vec<&str> = all.iter().take(5).map(id).collect();
    let dropped = api.post("/api/v1/dlq/drop", &json!({ "ids": newest, "by": "tester" }))?;
    assert_eq!(dropped.json["data"]["dropped"], 5, "{}", dropped.text);
    assert_eq!(
        api.post("/api/v1/dlq/drop", &json!({ "ids": newest }))?.json["data"]["already"],
        5
    );
    assert_eq!(world.letters("state=dropped", 5)?[0]["changed_by"], "tester");
    let (rows, next) = api.page("/api/v1/dlq?rack=rack-b&limit=3")?;
    assert_eq!((rows.len(), id(&rows[0])), (3, ids[5].as_str()));
    let (rows, _) = api.page(&format!(
        "/api/v1/dlq?rack=rack-b&limit=3&cursor={}",
        next.ok_or("no cursor")?
    ))?;
    assert_eq!(id(&rows[0]), ids[8]);
    assert_eq!(
        api.rows("/api/v1/telemetry/dead_letters?since=1h")?.len(),
        25,
        "rows stay"
    );

    world.mend("2")?;
    let wish = |more: Value| {
        let mut wish = json!({ "filter": { "gear": "pass", "rack": "rack-b" }, "wait": "60s" });
        if let (Some(wish), Some(more)) = (wish.as_object_mut(), more.as_object()) {
            wish.extend(more.clone());
        }
        api.post("/api/v1/dlq/replay", &wish)
    };
    let dry = wish(json!({ "dry_run": true }))?;
    assert_eq!(
        (&dry.json["data"]["changed"], &dry.json["data"]["dry_run"]),
        (&json!(20), &json!(true)),
        "{}",
        dry.text
    );
    world.letters("state=open", 20)?;
    let far = json!({ "gear": "pass", "since": "1h", "until": "2099-01-01T00:00:00Z" });
    ends_now(&wish(json!({ "dry_run": true, "filter": far }))?.json);
    let done = wish(json!({}))?;
    assert_eq!(
        (&done.json["data"]["matched"], &done.json["data"]["replayed"]),
        (&json!(20), &json!(20)),
        "{}",
        done.text
    );
    let text = |id: &&str| -> Result<String, Failure> {
        let shown = api.get(&format!("/api/v1/dlq/{id}"))?.json;
        Ok(shown["data"]["message"]["text"].as_str().unwrap_or_default().to_owned())
    };
    let left_out: Vec<String> = newest.iter().map(text).collect::<Result<_, _>>()?;
    let mut wanted: Vec<String> = lines(0..25, "bad")
        .iter()
        .map(|line| line.trim_end().to_owned())
        .collect();
    wanted.retain(|line| !left_out.contains(line));
    assert_eq!(world.sinks("bad", 20)?, wanted, "in the order in which they failed");

    let refused = world.change(newest[0], "replay", &json!({}))?;
    assert_eq!(refused.status, 409, "{}", refused.text);
    assert!(refused.text.contains("it was dropped"), "{}", refused.text);
    assert_eq!(
        world.change(&ids[10], "drop", &json!({}))?.status,
        409,
        "a replayed one"
    );
    let done = world.change(newest[0], "replay", &json!({ "again": true, "wait": "30s" }))?;
    assert_eq!(done.json["data"]["state"], "replayed", "{}", done.text);
    world.sinks("bad", 21)?;
    assert_eq!(world.mixer.api.metric("platform_dlq_dropped_letters_total"), Some(5.0));
    Ok(())
}

#[test]
fn what_is_no_message_is_listed_says_why_it_cannot_go_back_and_can_be_dropped() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let bus = mixer.bus()?;
    bus.publish("flux.telemetry.logs.press", b"?".to_vec())?;
    bus.publish("flux.msg.rack-z.a.out", b"garbage".to_vec())?;
    bus.publish("flux.gear.rack-z.b", b"garbage".to_vec())?;
    for (query, kind, says) in [
        ("rack=press", "telemetry", "fix the sender"),
        ("gear=a", "message", "no gear can read it"),
        ("gear=b", "gear", "does not say at which port"),
    ] {
        let letter = letters(&mixer, query, 1)?.remove(0);
        assert_eq!(
            (&letter["kind"], &letter["replayable"]),
            (&json!(kind), &json!(false)),
            "{letter:?}"
        );
        assert!(
            letter["why_not"].as_str().is_some_and(|why| why.contains(says)),
            "{letter:?}"
        );
        let path = format!("/api/v1/dlq/{}", id(&letter));
        let shown = mixer.api.get(&path)?.json;
        assert_eq!(
            (&shown["data"]["message"], shown["data"]["payload"].is_string()),
            (&Value::Null, true),
            "{shown}"
        );
        let refused = mixer.api.post(&format!("{path}/replay"), &json!({}))?;
        assert_eq!(
            (refused.status, &refused.json["code"]),
            (409, &json!("letter_refused")),
            "{}",
            refused.text
        );
        let dropped = mixer.api.post(&format!("{path}/drop"), &json!({}))?;
        assert_eq!(dropped.json["data"]["state"], "dropped", "{}", dropped.text);
    }
    let all = mixer.api.post(
        "/api/v1/dlq/replay",
        &json!({ "all": true, "filter": { "state": "all" }, "again": true }),
    )?;
    assert_eq!(
        (&all.json["data"]["matched"], &all.json["data"]["refused_total"]),
        (&json!(3), &json!(3)),
        "{}",
        all.text
    );
    eventually("no open letters", SOON, || {
        let text = mixer.api.get("/metrics").ok()?.text;
        (!text.contains("platform_dlq_open_letters{")).then_some(())
    })
}

#[test]
fn letters_that_are_more_than_there_is_memory_for_are_listed_and_dropped_all_the_same() -> Result<(), Failure> {
    const LARGE: u32 = 40;
    const ALL: u32 = LARGE + 470;
    let mixer = TestMixer::with(&[("query.memory_limit_mb", "32")], &[])?;
    let bus = mixer.bus()?;
    // No two are alike, and none is telemetry.
    let letter = |number: u32, bytes: usize| {
        let mut body = format!("? {number} ").into_bytes();
        body.resize(bytes, b'x');
        body
    };
    let stored = |count: u32| {
        eventually(&format!("{count} dead letters"), SOON, || {
            let stored = mixer.api.metric("platform_ingest_dead_letters_total")?;
            (stored >= f64::from(count)).then_some(())
        })
    };
    for number in 0..LARGE {
        bus.publish("flux.telemetry.logs.press", letter(number, 3 << 19))?;
    }
    stored(LARGE)?;
    // The newest come first: so many of these that many are read at once when the turn comes to the large ones.
    for number in LARGE..ALL {
        bus.publish("flux.telemetry.logs.press", letter(number, 20))?;
    }
    stored(ALL)?;
    let listed = mixer.api.rows("/api/v1/dlq?limit=1000")?;
    assert_eq!(listed.len(), usize::try_from(ALL)?);
    let dropped = mixer.api.post("/api/v1/dlq/drop", &json!({ "all": true }))?;
    assert_eq!(
        (&dropped.json["data"]["matched"], &dropped.json["data"]["dropped"]),
        (&json!(ALL), &json!(ALL)),
        "{}",
        dropped.text
    );
    Ok(())
}

#[test]
fn hostile_ids_filters_and_bodies_are_refused_by_name() -> Result<(), Failure> {
    let mixer = TestMixer::start("")?;
    let none = "0".repeat(32);
    for path in [
        "/zz",
        "/..%2F..%2Fetc",
        "/0000000000000000000000000000000g",
        "?limit=0",
        "?limit=10001",
        "?limit=-1",
        "?state=lost",
        "?since=yesterday",
        "?since=1h&until=2h",
        "?cursor=zz",
        "?offset=1",
        "?colour=red",
        "?rack=%ff",
        "?rack=a&rack=b",
    ] {
        let answer = mixer.api.get(&format!("/api/v1/dlq{path}"))?;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
    }
    for path in [
        "?rack=%00'%20OR%201%3D1",
        "?subject=%25",
        "?reason=%5C%5C%25_",
        "?gear=..",
    ] {
        assert!(mixer.api.rows(&format!("/api/v1/dlq{path}"))?.is_empty(), "{path}");
    }
    assert_eq!(mixer.api.get(&format!("/api/v1/dlq/{none}"))?.status, 404);
    for verb in ["replay", "drop"] {
        let gone = mixer.api.post(&format!("/api/v1/dlq/{none}/{verb}"), &json!({}))?;
        assert_eq!(
            (gone.status, &gone.json["code"]),
            (404, &json!("unknown_letter")),
            "{}",
            gone.text
        );
        for body in [
            json!({}),
            json!({ "filter": {} }),
            json!({ "filter": { "state": "open" } }),
            json!({ "ids": ["x"] }),
            json!({ "ids": [none], "filter": { "rack": "a" } }),
            json!({ "ids": [none], "all": true }),
            json!({ "filter": { "rack": "a", "limit": 3 } }),
            json!({ "filter": { "rack": "a", "colour": "red" } }),
            json!({ "filter": { "rack": 7 } }),
            json!({ "all": true, "filter": [null, null] }),
            json!({ "all": "yes" }),
            json!({ "all": true, "wait": "soon" }),
            json!([1]),
        ] {
            let answer = mixer.api.post(&format!("/api/v1/dlq/{verb}"), &body)?;
            assert_eq!(answer.status, 400, "{verb} {body}: {}", answer.text);
        }
        let unknown = mixer
            .api
            .post(&format!("/api/v1/dlq/{verb}"), &json!({ "ids": [none] }))?;
        assert_eq!(
            unknown.json["data"]["refused"][0]["reason"], "there is no such letter",
            "{}",
            unknown.text
        );
        // A page of another site may not change anything.
        let foreign = [("origin", "http://evil.example"), ("content-type", "application/json")];
        let refused = mixer
            .api
            .send(&format!("/api/v1/dlq/{verb}"), &foreign, b"{\"all\":true}")?;
        assert_eq!(refused.status, 403, "{}", refused.text);
    }
    assert_eq!(mixer.api.get("/api/v1/dlq/replay")?.status, 405);
    Ok(())
}
