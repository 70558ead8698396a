//! The bus dies while a scenario goes to its Racks.

use harness::process;

use super::*;

const RACKS: [&str; 3] = ["rack-a", "rack-b", "rack-c"];

/// A scenario of all three Racks; only the rate differs.
fn version(number: u32) -> String {
    let others: String = RACKS
        .iter()
        .map(|rack| {
            format!("  - {{ name: numbers-{rack}, type: generator, deploy: {rack}, config: {{ rate: {number} }} }}\n")
        })
        .collect();
    let names: Vec<_> = RACKS.iter().map(|rack| format!("{{ name: {rack} }}")).collect();
    format!(
        "meta: {{ name: plant, version: '{number}' }}\nracks: [ {} ]\ngears:\n{}{}{others}wires:\n  \
         - {{ from: door.out, to: sink.in, lane: guaranteed }}\n",
        names.join(", "),
        door(),
        gear("sink", "log_sink", "")
    )
}

/// Kills the bus server, whichever it is now.
fn kill_bus(mixer: &mut TestMixer) -> Result<(), Failure> {
    process::kill9(eventually("the bus", SOON, || mixer.bus_pid().ok())?)
}

/// Waits until the status says that every Rack runs it, and every Rack says so itself.
fn runs(mixer: &TestMixer, racks: &[TestRack], number: u32) -> Result<(), Failure> {
    let reference = format!("plant:{number}");
    eventually(&format!("{reference} on every Rack"), SOON, || {
        let status = mixer.api.get("/api/v1/scenarios/status").ok()?.json;
        let standings = status["data"]["racks"].as_array()?;
        let good = |rack: &Value| rack["converged"] == true && rack["running"]["reference"] == reference.as_str();
        (status["data"]["scenario"]["reference"] == reference.as_str()
            && standings.len() == RACKS.len()
            && standings.iter().all(good))
        .then_some(())
    })
    .map_err(|error| {
        let status = mixer.api.get("/api/v1/scenarios/status").map(|answer| answer.text);
        let logs: String = racks.iter().map(TestRack::log).collect();
        format!("{error}: {status:?}\n{logs}")
    })?;
    for rack in racks {
        assert!(rack.log().contains(&reference), "{} never had {reference}", rack.name);
    }
    Ok(())
}

#[test]
fn a_bus_that_is_killed_between_the_store_and_the_push_of_a_scenario_keeps_no_rack_from_it() -> Result<(), Failure> {
    // A second lies between what is stored and what is pushed.
    let mut mixer = TestMixer::start("[enrollment]\nauto_adopt = true\npush_delay = \"1s\"\n")?;
    for number in 1..=4 {
        import(&mixer, &version(number))?;
    }
    activate(&mixer, "plant:1", "0s")?;
    let mut racks = Vec::new();
    for name in RACKS {
        let mut rack = TestRack::new(name, &mixer.bus_url, "")?;
        rack.start()?;
        racks.push(rack);
    }
    runs(&mixer, &racks, 1)?;
    let mut door = Door::of(&racks[0], 1)?;
    door.accepts("before")?;

    // Stored, not pushed.
    activate(&mixer, "plant:2", "0s")?;
    kill_bus(&mut mixer)?;
    door.accepts("without a bus")?;
    runs(&mixer, &racks, 2)?;

    // Stored while there is no bus.
    kill_bus(&mut mixer)?;
    activate(&mixer, "plant:3", "0s")?;
    door.accepts("without a bus again")?;
    runs(&mixer, &racks, 3)?;

    // While the answers come.
    let api = mixer.api.clone();
    let waiting = std::thread::spawn(move || api.post("/api/v1/scenarios/plant:4/activate?wait=50s", &json!({})));
    eventually("a Rack has it", SOON, || {
        racks.iter().any(|rack| rack.log().contains("plant:4")).then_some(())
    })?;
    kill_bus(&mut mixer)?;
    let done = waiting.join().map_err(|_| "the request died")??;
    assert_eq!(
        (done.status, &done.json["data"]["converged"]),
        (200, &json!(true)),
        "{}",
        done.text
    );
    runs(&mixer, &racks, 4)?;
    door.accepts("after")?;
    door.is_archived(&mixer)?;
    door.is_sunk(&mixer, "sink")
}
