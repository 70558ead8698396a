//! `[senders]`: which field of what others send names an entity.

use harness::{Failure, TestMixer};

/// The names of the entities that a list has.
fn entities(mixer: &TestMixer, list: &str) -> Result<Vec<String>, Failure> {
    let rows = mixer.api.rows(list)?;
    let mut names: Vec<_> = rows
        .iter()
        .filter_map(|row| Some(row.get("entity_name")?.as_str()?.to_owned()))
        .collect();
    names.sort_unstable();
    Ok(names)
}

/// Sends a log entry of Loki.
fn push(mixer: &TestMixer) -> Result<(), Failure> {
    let body = br#"{"streams":[{"stream":{"host":"press-1","plant":"north"},"values":[["1795262400000000000","a"]]}]}"#;
    let kind = [("Content-Type", "application/json")];
    let answer = mixer.api.send("/loki/api/v1/push", &kind, body)?;
    assert_eq!(answer.status, 204, "{}", answer.text);
    Ok(())
}

#[test]
fn the_keys_of_senders_say_which_field_names_an_entity() -> Result<(), Failure> {
    for (toml, log) in [
        ("", "press-1"),
        ("senders.loki_entity = [\"plant\", \"host\"]\n", "north"),
    ] {
        let mixer = TestMixer::start(toml)?;
        push(&mixer)?;
        let logs = entities(
            &mixer,
            "/api/v1/logs?since=2026-11-21T00:00:00Z&until=2026-11-22T00:00:00Z&q=a",
        )?;
        assert!(logs.contains(&log.to_owned()), "{toml}: {logs:?}");
    }
    Ok(())
}
