//! Reads requests of senders to their end, and whose rows they are.

#![allow(clippy::unwrap_used, reason = "tests")]

use model::Table;
use model::telemetry_codec::BodyRecordReader;
use serde_json::Value;

use super::*;

/// Settings with these names of entities.
pub(crate) fn settings(entity: &[&str]) -> SenderSettings {
    SenderSettings {
        entity: entity.iter().map(|name| (*name).to_owned()).collect(),
        fallback: PublisherIdentity {
            entity_id: EntityId::for_name("http"),
            entity_name: "http".to_owned(),
        },
        now: "2026-11-21T12:30:00Z".parse().unwrap(),
    }
}

/// The rows of a request, and what is wrong with which record.
pub(crate) fn read(table: Table, opened: OpenedRequest) -> (Vec<Value>, Vec<(u64, String)>) {
    let fallback = settings(&[]).fallback;
    let mut records = BodyRecordReader::of_format(table, opened.records, opened.body, fallback);
    let mut rows = Vec::new();
    // Small parts, so that records are taken back and added again.
    while let Some(part) = records.next_part(600).unwrap() {
        for row in 0..part.batch.num_rows() {
            let mut row = model::batch::row_json(&part.batch, row);
            let name = row["entity_name"].as_str().unwrap().to_owned();
            let id = EntityId::for_name(&name).to_string();
            assert_eq!(row.remove("entity_id"), Some(Value::from(id)), "{name}");
            row.retain(|_, value| !value.is_null());
            rows.push(Value::Object(row));
        }
    }
    let refused = records.named().iter().map(|bad| (bad.row, bad.reason.clone()));
    (rows, refused.collect())
}

#[test]
fn the_first_name_that_is_there_names_the_entity_in_whatever_order_labels_come() {
    let settings = settings(&["host", "job"]);
    let mut entity = settings.fallback.clone();
    let mut named = |labels: &[(&str, &str)]| {
        let mut field = EntityField::default();
        labels
            .iter()
            .for_each(|(key, value)| field.offer(&settings, key, value));
        field
            .resolve(&settings, &mut entity)
            .map(|()| entity.entity_name.clone())
    };
    for (labels, name) in [
        (&[("job", "app"), ("host", "press-1")][..], "press-1"),
        (&[("host", "press-1"), ("job", "app")], "press-1"),
        (&[("host", ""), ("job", "app")], "app"),
        (&[("job", "app")], "app"),
        (&[("other", "x")], "http"),
        (&[], "http"),
    ] {
        assert_eq!(named(labels).as_deref(), Ok(name), "{labels:?}");
    }
    assert!(
        named(&[("job", "j".repeat(256).as_str())])
            .unwrap_err()
            .contains("256 bytes")
    );
}

#[test]
fn a_label_with_the_publishers_name_is_the_publisher_whatever_came_before() {
    let mut settings = settings(&["host"]);
    settings.fallback.entity_id = EntityId::for_name("another id");
    let mut field = EntityField::default();
    field.offer(&settings, "host", "http");
    for before in ["http", "press-1"] {
        let mut entity = PublisherIdentity {
            entity_id: EntityId::for_name(before),
            entity_name: before.to_owned(),
        };
        field.resolve(&settings, &mut entity).unwrap();
        assert_eq!(entity, settings.fallback);
    }
}
