//! `[senders]`: which field of what others send names an entity.

use harness::{Failure, TestMixer};

/// A remote write request of one sample at noon, as a block of snappy that is one literal.
fn request() -> Vec<u8> {
    let field = |number: u8, bytes: &[u8]| [&[number << 3 | 2, bytes.len() as u8], bytes].concat();
    let label = |name: &str, value: &str| field(1, &[field(1, name.as_bytes()), field(2, value.as_bytes())].concat());
    let sample = [
        &[0x09][..],
        &1f64.to_le_bytes(),
        &[0x10, 0x80, 0x8c, 0xe9, 0xef, 0x9f, 0x34],
    ]
    .concat();
    let series = [
        label("__name__", "up"),
        label("instance", "press-3"),
        label("plant", "west"),
        field(2, &sample),
    ];
    let body = field(1, &series.concat());
    let length = u8::try_from(body.len()).unwrap_or_default();
    [&[length, 60 << 2, length - 1][..], &body].concat()
}

/// Sends it.
fn write(mixer: &TestMixer) -> Result<(), Failure> {
    let headers = [
        ("Content-Type", "application/x-protobuf"),
        ("Content-Encoding", "snappy"),
    ];
    let answer = mixer.api.send("/api/v1/write", &headers, &request())?;
    assert_eq!(answer.status, 204, "{}", answer.text);
    Ok(())
}

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
    let others = "[senders]\nloki_entity = [\"plant\", \"host\"]\nelasticsearch_entity = [\"plant\"]\n\
                  prometheus_entity = [\"plant\"]\n";
    for (toml, entry, document, series) in [
        ("", "press-1", "press-2", "press-3"),
        (others, "north", "south", "west"),
    ] {
        let mixer = TestMixer::start(toml)?;
        push(&mixer)?;
        bulk(&mixer)?;
        write(&mixer)?;
        let noon = "since=2026-11-21T11:00:00Z&until=2026-11-21T13:00:00Z";
        let logs = entities(&mixer, &format!("/api/v1/telemetry/logs?{noon}"))?;
        assert_eq!(logs, [entry, document], "{toml}");
        let points = entities(&mixer, &format!("/api/v1/telemetry/metrics?name=up&{noon}"))?;
        assert_eq!(points, [series], "{toml}");
    }
    Ok(())
}
