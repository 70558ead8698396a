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

/// Sends a document of Elasticsearch.
fn bulk(mixer: &TestMixer) -> Result<(), Failure> {
    let document = r#"{"@timestamp":"2026-11-21T12:00:00Z","message":"b","host":{"name":"press-2"},"plant":"south"}"#;
    let body = format!("{{\"create\":{{}}}}\n{document}\n");
    let kind = [("Content-Type", "application/x-ndjson")];
    let answer = mixer.api.send("/elasticsearch/_bulk", &kind, body.as_bytes())?;
    assert_eq!(answer.json["errors"], false, "{}", answer.text);
    Ok(())
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
    let others = "senders.loki_entity = [\"plant\", \"host\"]\nsenders.elasticsearch_entity = [\"plant\"]\n";
    for (toml, entry, document) in [("", "press-1", "press-2"), (others, "north", "south")] {
        let mixer = TestMixer::start(toml)?;
        push(&mixer)?;
        bulk(&mixer)?;
        let noon = "since=2026-11-21T11:00:00Z&until=2026-11-21T13:00:00Z";
        let logs = entities(&mixer, &format!("/api/v1/telemetry/logs?{noon}"))?;
        assert_eq!(logs, [entry, document], "{toml}");
    }
    Ok(())
}
