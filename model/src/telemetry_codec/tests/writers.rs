//! Rows that a sender may store: those of its entities, in every encoding.

use super::*;

const OWN: &str = "press";
const FOREIGN: &str = "saw";
const TELEMETRY: [Table; 3] = [Table::Logs, Table::Metrics, Table::Traces];

fn named(name: &str) -> PublisherIdentity {
    PublisherIdentity {
        entity_id: EntityId::for_name(name),
        entity_name: name.to_owned(),
    }
}

fn writers(texts: &[&str]) -> Option<WriterEntities> {
    let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
    Some(WriterEntities::of(&texts))
}

/// A record that says nothing of its entity.
fn anonymous(table: Table) -> Value {
    match table {
        Table::Logs => line("a"),
        _ => serde_json::from_str(&of_number(table, "1.5")).unwrap(),
    }
}

fn of_entity(mut record: Value, name: &str, id: EntityId) -> Value {
    record["entity_name"] = name.into();
    record["entity_id"] = id.to_string().into();
    record
}

/// The records as a body of each encoding. Arrow has no rows without an entity: there the publisher has filled in its own.
fn bodies(table: Table, records: &[Value], publisher: &PublisherIdentity) -> [(BatchEncoding, Vec<u8>); 4] {
    let ndjson: String = records.iter().map(|record| format!("{record}\n")).collect();
    let all = Value::from(records.to_vec());
    let batches = decode(table, BatchEncoding::Json, &all.to_string().into(), publisher).unwrap();
    [
        (BatchEncoding::Ndjson, ndjson.into_bytes()),
        (BatchEncoding::Json, all.to_string().into_bytes()),
        (BatchEncoding::Cbor, cbor(&all)),
        (BatchEncoding::Arrow, encode_arrow(&batches).unwrap()),
    ]
}

/// The rows that come out, and what is said of the others.
fn sifted(
    table: Table,
    (encoding, body): (BatchEncoding, &[u8]),
    publisher: &PublisherIdentity,
    writers: Option<WriterEntities>,
    size: usize,
) -> (Vec<RecordBatch>, BodyRecordReader) {
    let records = BodyRecordReader::new(table, encoding, body.to_vec().into(), publisher.clone()).unwrap();
    let mut records = records.with_writers(writers);
    let mut batches = Vec::new();
    while let Some(part) = records.next_part(size).unwrap() {
        assert!(part.batch.num_rows() > 0);
        batches.push(part.batch);
    }
    assert!(records.is_read());
    (batches, records)
}

/// Name and id of each row's entity.
fn entities(batches: &[RecordBatch]) -> Vec<(String, String)> {
    let rows = batches
        .iter()
        .flat_map(|batch| (0..batch.num_rows()).map(move |row| crate::batch::row_json(batch, row)));
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    rows.map(|row| (text(&row["entity_name"]), text(&row["entity_id"])))
        .collect()
}

/// That the only record of a body comes out as this entity's in every encoding.
fn assert_passes(
    table: Table,
    record: &Value,
    publisher: &PublisherIdentity,
    allowed: &[&str],
    (name, id): (&str, EntityId),
) {
    for (encoding, body) in bodies(table, std::slice::from_ref(record), publisher) {
        let (batches, records) = sifted(table, (encoding, &body), publisher, writers(allowed), usize::MAX);
        assert_eq!(
            (entities(&batches), records.rejected()),
            (vec![(name.to_owned(), id.to_string())], 0),
            "{encoding:?} of {table}: {:?}",
            records.named()
        );
    }
}

/// That nothing of it comes out, and that the reason names the entity; where nobody asks whose it is, it is a good row.
fn assert_refused(table: Table, record: &Value, publisher: &PublisherIdentity, allowed: &[&str], name: &str) {
    for (encoding, body) in bodies(table, std::slice::from_ref(record), publisher) {
        let (batches, records) = sifted(table, (encoding, &body), publisher, writers(allowed), usize::MAX);
        assert!(batches.is_empty(), "{encoding:?} of {table}");
        assert_eq!(
            (records.named().len(), records.rejected()),
            (1, 1),
            "{encoding:?} of {table}: {:?}",
            records.named()
        );
        let bad = &records.named()[0];
        assert_eq!(bad.row, 0, "{encoding:?} of {table}");
        let says = format!("may not store rows of the entity {name:?}");
        assert!(bad.reason.contains(&says), "{encoding:?} of {table}: {bad:?}");

        let (batches, records) = sifted(table, (encoding, &body), publisher, None, usize::MAX);
        assert_eq!(
            (entities(&batches).len(), records.rejected()),
            (1, 0),
            "{encoding:?} of {table}"
        );
    }
}

#[test]
fn a_row_of_the_own_name_and_id_passes_in_every_encoding() {
    let id = EntityId::for_name(OWN);
    for table in TELEMETRY {
        let record = of_entity(anonymous(table), OWN, id);
        assert_passes(table, &record, &named(OWN), &[OWN], (OWN, id));
        assert_passes(table, &record, &named(OWN), &["lathe", OWN], (OWN, id));
        // What counts is the row: who sends it is of no matter where it says whose it is.
        assert_passes(table, &record, &named(FOREIGN), &[OWN], (OWN, id));
    }
}

#[test]
fn a_foreign_id_or_a_foreign_name_is_refused_in_every_encoding() {
    let (own, foreign) = (EntityId::for_name(OWN), EntityId::for_name(FOREIGN));
    for table in TELEMETRY {
        for (name, id) in [(OWN, foreign), (FOREIGN, own), (FOREIGN, foreign)] {
            let record = of_entity(anonymous(table), name, id);
            assert_refused(table, &record, &named(OWN), &[OWN], name);
        }
    }
}

#[test]
fn a_record_without_an_entity_is_its_publishers_and_a_foreign_publisher_is_refused_in_every_encoding() {
    for table in TELEMETRY {
        let record = anonymous(table);
        assert_passes(table, &record, &named(OWN), &[OWN], (OWN, EntityId::for_name(OWN)));
        assert_refused(table, &record, &named(FOREIGN), &[OWN], FOREIGN);
        // Neither half of an identity is enough: not the own name with a foreign id, nor the other way round.
        for (name, id) in [(OWN, FOREIGN), (FOREIGN, OWN)] {
            let publisher = PublisherIdentity {
                entity_id: EntityId::for_name(id),
                entity_name: name.to_owned(),
            };
            assert_refused(table, &record, &publisher, &[OWN], name);
        }
        // A name in the row does not lend it the id of its publisher.
        let mut half = record.clone();
        half["entity_name"] = OWN.into();
        assert_refused(table, &half, &named(FOREIGN), &[OWN], OWN);
    }
}

#[test]
fn an_id_that_is_listed_beside_the_name_passes_under_that_name_alone() {
    let id = EntityId::at(crate::Timestamp::from_micros(1_700_000_000_000_000), [7; 10]);
    let text = id.to_string();
    let both = [OWN, text.as_str()];
    for table in TELEMETRY {
        let enrolled = of_entity(anonymous(table), OWN, id);
        assert_passes(table, &enrolled, &named(OWN), &both, (OWN, id));
        let derived = EntityId::for_name(OWN);
        let by_name = of_entity(anonymous(table), OWN, derived);
        assert_passes(table, &by_name, &named(OWN), &both, (OWN, derived));
        assert_refused(table, &enrolled, &named(OWN), &[OWN], OWN);
        assert_refused(table, &enrolled, &named(OWN), &[&text], OWN);
        let elsewhere = of_entity(anonymous(table), FOREIGN, id);
        assert_refused(table, &elsewhere, &named(OWN), &both, FOREIGN);
    }
}

/// Three rows of the own entity, and between them each way to be another's.
fn mixed() -> Vec<Value> {
    let (own, foreign) = (EntityId::for_name(OWN), EntityId::for_name(FOREIGN));
    vec![
        of_entity(line("a"), OWN, own),
        of_entity(line("the id is another's"), OWN, foreign),
        of_entity(line("b"), OWN, own),
        of_entity(line("the name is another's"), FOREIGN, own),
        of_entity(line("both are another's"), FOREIGN, foreign),
        of_entity(line("c"), OWN, own),
    ]
}

#[test]
fn the_own_rows_of_a_body_come_out_and_the_foreign_ones_between_them_are_counted() {
    let publisher = named(OWN);
    for (encoding, body) in bodies(Table::Logs, &mixed(), &publisher) {
        for size in [1, 400, usize::MAX] {
            let (batches, records) = sifted(Table::Logs, (encoding, &body), &publisher, writers(&[OWN]), size);
            assert_eq!(messages(&batches), ["a", "b", "c"], "{encoding:?} {size}");
            assert_eq!(records.rejected(), 3, "{encoding:?} {size}");

            // Who repeats a request passes over what is stored, and foreign rows never were.
            let again = BodyRecordReader::new(Table::Logs, encoding, body.clone().into(), publisher.clone()).unwrap();
            let mut again = again.with_writers(writers(&[OWN]));
            assert_eq!(again.skip_to(5, size).unwrap(), 2, "{encoding:?} {size}");
            let rest = again.next_part(usize::MAX).unwrap().unwrap().batch;
            assert_eq!(messages(&[rest]), ["c"], "{encoding:?} {size}");
        }
    }
}

#[test]
fn each_foreign_row_is_named_by_its_own_position_whatever_the_size_of_a_part() {
    let publisher = named(OWN);
    for (encoding, body) in bodies(Table::Logs, &mixed(), &publisher) {
        for size in [1, 400, usize::MAX] {
            let (_, records) = sifted(Table::Logs, (encoding, &body), &publisher, writers(&[OWN]), size);
            let named: Vec<_> = records.named().iter().map(|bad| bad.row).collect();
            assert_eq!(named, [1, 3, 4], "{encoding:?} {size}: {:?}", records.named());
            for (bad, name) in records.named().iter().zip([OWN, FOREIGN, FOREIGN]) {
                assert!(
                    bad.reason.contains(&format!("{name:?}")),
                    "{encoding:?} {size}: {bad:?}"
                );
            }
        }
    }
}
