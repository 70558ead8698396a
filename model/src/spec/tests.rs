//! Spec files, what they take, what they promote, how they may change.

#![allow(clippy::unwrap_used, reason = "tests")]

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, StringArray};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::columns::{schema, values};
use super::*;
use crate::Table;

const ORDER: &str = include_str!("../../../examples/specs/order.yaml");

fn faults(yaml: &str) -> Vec<String> {
    parse(yaml)
        .unwrap_err()
        .0
        .iter()
        .map(SourceDiagnostic::to_string)
        .collect()
}

fn spec(fields: &[(&str, &str, FieldType)], version: u32) -> Spec {
    let mut spec = parse("name: s\nversion: 1\nmatch: { msg_type: a }\n").unwrap();
    let field = |(name, path, kind): &(&str, &str, FieldType)| SpecField {
        name: (*name).to_owned(),
        path: (*path).to_owned(),
        kind: *kind,
    };
    spec.fields = fields.iter().map(field).collect();
    spec.version = version;
    spec
}

#[test]
fn the_example_is_a_spec() {
    let order = parse(ORDER).unwrap();
    assert_eq!(
        (order.name.as_str(), order.version, order.prefix.as_str()),
        ("order", 1, "order")
    );
    assert_eq!(order.fields.len(), 6);
}

#[test]
fn the_page_of_specs_shows_a_spec() {
    let page = include_str!("../../../docs/specs.md");
    let yaml = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let shown = parse(yaml).unwrap();
    let example = parse(ORDER).unwrap();
    assert_eq!(shown.rule, example.rule);
    assert!(shown.fields.iter().all(|field| example.fields.contains(field)));
}

#[test]
fn every_fault_is_named_with_its_place() {
    let yaml = "\
name: ../order
version: one
colour: red
match: { msg_type: 'a*b', rak: x }
fields:
  - { name: amount, path: amount, type: float }
  - { name: amount, path: /a, type: float }
  - { name: ts, path: /a, type: int }
  - { name: Big, path: /a~2, type: int }
  - { name: kind, path: /a, type: number }
  - { name: sort, path: /a }
";
    let told = faults(yaml);
    let says = |line: u64, text: &str| {
        let found = told
            .iter()
            .any(|fault| fault.starts_with(&format!("{line}:")) && fault.contains(text));
        assert!(found, "{line}: {text}: {told:#?}");
    };
    says(1, "../order");
    says(2, "one is not a whole number");
    says(3, "colour");
    says(4, "before its end");
    says(4, "rak");
    says(6, "JSON Pointer");
    says(7, "two fields are called amount");
    says(8, "every message has");
    says(9, "field Big is not a column name");
    says(9, "~0");
    says(10, "number");
    says(11, "type");
}

#[test]
fn a_spec_that_would_take_everything_or_has_too_much_is_refused() {
    let says = |yaml: &str, text: &str| {
        let told = faults(yaml);
        assert!(told.iter().any(|fault| fault.contains(text)), "{text}: {told:?}");
    };
    says("name: s\nversion: 1\nmatch: {}\n", "no condition");
    says("name: s\nversion: 1\nmatch: { rack: '*' }\n", "says nothing");
    says("name: s\nversion: 1\nmatch: { rack: [] }\n", "empty list");
    says("name: s\nversion: 1\n", "match");
    says("name: s\nversion: 0\nmatch: { rack: a }\n", "count from 1");
    says("name: s\nversion: 1\nmatch: { rack: a }\nfields: 7\n", "not a list");
    says("- 1\n", "not a mapping");
    says("a: [\n", "");
    let fields: String = (0..=MOST_FIELDS)
        .map(|n| format!("  - {{ name: f{n}, path: /a, type: int }}\n"))
        .collect();
    says(
        &format!("name: s\nversion: 1\nmatch: {{ rack: a }}\nfields:\n{fields}"),
        "at most 40 fields",
    );
}

#[test]
fn a_message_is_taken_if_it_meets_every_condition() {
    let yaml =
        "name: s\nversion: 1\nmatch: { msg_type: [order, 'invoice*'], rack: shop-1, meta: { tenant: acme, n: 5 } }\n";
    let rule = parse(yaml).unwrap().rule;
    let meta = Attributes::new().with("tenant", "acme").with("n", 5);
    let good = MessageFacts {
        msg_type: "invoice.paid",
        rack: "shop-1",
        gear: "in",
        port: "out",
        meta: &meta,
    };
    assert!(rule.takes(good));
    assert!(rule.takes(MessageFacts {
        msg_type: "order",
        ..good
    }));
    assert!(!rule.takes(MessageFacts {
        msg_type: "orders",
        ..good
    }));
    assert!(!rule.takes(MessageFacts { rack: "shop-2", ..good }));
    assert!(!rule.takes(MessageFacts {
        meta: &Attributes::new().with("tenant", "acme"),
        ..good
    }));
}

#[test]
fn the_greatest_priority_comes_first_then_the_first_name() {
    let named = |name: &str, priority: i32| Spec {
        name: name.parse().unwrap(),
        priority,
        ..spec(&[], 1)
    };
    let mut specs = vec![named("c", 0), named("a", 0), named("b", 7)];
    in_order(&mut specs);
    let names: Vec<_> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["b", "a", "c"]);
}

#[test]
fn what_is_promoted_is_of_its_type_or_missing_and_counted() {
    use FieldType::{Bool, Float, Int, String, Timestamp, Uuid};
    let spec = spec(
        &[
            ("text", "/a/0/b", String),
            ("whole", "/whole", Int),
            ("also_whole", "/float", Int),
            ("number", "/whole", Float),
            ("truth", "/truth", Bool),
            ("at", "/at", Timestamp),
            ("id", "/id", Uuid),
            ("missing", "/missing", Int),
            ("nothing", "/nothing", Int),
            ("wrong", "/at", Int),
            ("broken", "/broken", Int),
            ("long", "/long", String),
        ],
        1,
    );
    let data = json!({
        "a": [{"b": "x"}], "whole": 7, "float": 8.0, "broken": 8.5, "truth": true, "nothing": null,
        "at": "2026-11-21T11:00:00+01:00", "id": "0193500000007000800000000000ABCD", "long": "x".repeat(MOST_TEXT + 1),
    });
    let promoted = spec.promote(&data);
    assert_eq!(promoted.failed, 3);
    let wanted = json!({
        "text": "x", "whole": 7, "also_whole": 8, "number": 7.0, "truth": true,
        "at": "2026-11-21T10:00:00.000000Z", "id": "01935000-0000-7000-8000-00000000abcd",
    });
    assert_eq!(Value::Object(promoted.values.as_map().clone()), wanted);
    assert_eq!(spec.promote(&Value::Null), PromotionResult::default());
}

#[test]
fn columns_hold_what_is_in_promoted_and_null_for_all_else() {
    use FieldType::{Bool, Float, Int, String, Timestamp, Uuid};
    let kinds = [String, Int, Float, Bool, Timestamp, Uuid];
    let columns: Vec<SpecColumn> = kinds
        .iter()
        .map(|kind| SpecColumn {
            name: kind.as_str().to_owned(),
            kind: *kind,
        })
        .collect();
    let good = json!({
        "string": "x", "int": -7, "float": 5, "bool": false, "timestamp": "1970-01-01T00:00:00.000007Z",
        "uuid": "01935000-0000-7000-8000-00000000abcd", "_ts_original": "1970-01-01T00:00:00Z",
    });
    let bad = json!({"string": 1, "int": "7", "float": "x", "bool": 0, "timestamp": "then", "uuid": "x"});
    let texts = StringArray::from(vec![good.to_string(), bad.to_string(), "{}".into(), "[".into()]);
    let found = values(&texts, &columns).unwrap();
    let fields = schema(&columns);
    for (at, array) in found.iter().enumerate() {
        assert_eq!(
            array.data_type(),
            fields.field(Table::Messages.columns().len() + at).data_type()
        );
        assert_eq!((array.len(), array.null_count()), (4, 3), "{at}");
        assert!(array.is_valid(0));
    }
    assert_eq!(found[0].as_string::<i32>().value(0), "x");
    assert_eq!(found[1].as_primitive::<Int64Type>().value(0), -7);
    assert!((found[2].as_primitive::<Float64Type>().value(0) - 5.0).abs() < f64::EPSILON);
    assert!(!found[3].as_boolean().value(0));
    assert_eq!(found[4].as_primitive::<TimestampMicrosecondType>().value(0), 7);
    assert_eq!(found[5].as_fixed_size_binary().value(0)[15], 0xcd);
}

#[test]
fn a_columns_number_is_its_names_and_is_read_back_from_a_file() {
    let column = |name: &str, kind| SpecColumn {
        name: name.to_owned(),
        kind,
    };
    let id = |schema: &arrow_schema::Schema, at: usize| schema.field(at).metadata()["PARQUET:field_id"].clone();
    let base = Table::Messages.columns().len();
    let one = schema(&[column("amount", FieldType::Int), column("id", FieldType::Uuid)]);
    let other = schema(&[column("id", FieldType::Uuid), column("amount", FieldType::Float)]);
    assert_eq!(
        (id(&one, base), id(&one, base + 1)),
        (id(&other, base + 1), id(&other, base))
    );
    assert!(id(&one, base).parse::<u32>().unwrap() >= 1000);
    assert_eq!(
        SpecColumn::of_arrow(one.field(base)),
        Some(column("amount", FieldType::Int))
    );
    assert_eq!(
        SpecColumn::of_arrow(one.field(base + 1)),
        Some(column("id", FieldType::Uuid))
    );
}

#[test]
fn a_change_has_a_greater_version_and_keeps_types() {
    let first = SpecHistory::new(spec(
        &[("amount", "/amount", FieldType::Int), ("id", "/id", FieldType::Uuid)],
        1,
    ));
    assert_eq!(first.changed(first.spec.clone()).unwrap(), first);
    let same_version = first
        .changed(spec(&[("amount", "/total", FieldType::Int)], 1))
        .unwrap_err();
    assert!(same_version[0].contains("give it version 2"), "{same_version:?}");
    let widened = first
        .changed(spec(&[("amount", "/amount", FieldType::Float)], 2))
        .unwrap();
    let narrowed = widened
        .changed(spec(&[("amount", "/amount", FieldType::Int)], 3))
        .unwrap_err();
    assert!(narrowed[0].contains("was float and cannot become int"), "{narrowed:?}");
    // A field that went keeps its type for whoever brings it back.
    let back = widened
        .changed(spec(&[("id", "/id", FieldType::String)], 3))
        .unwrap_err();
    assert!(back[0].contains("new name"), "{back:?}");
    let last = widened.changed(spec(&[("id", "/key", FieldType::Uuid)], 3)).unwrap();
    // What a field was before it went stays a column.
    let columns: Vec<_> = last
        .columns()
        .into_iter()
        .map(|column| (column.name, column.kind))
        .collect();
    assert_eq!(
        columns,
        [
            ("id".to_owned(), FieldType::Uuid),
            ("amount".to_owned(), FieldType::Float)
        ]
    );
}

proptest! {
    #[test]
    fn no_file_makes_the_reader_panic(cut in 0..ORDER.len(), noise in "[ -~\\n]{0,12}") {
        let mut yaml = ORDER.to_owned();
        yaml.insert_str(cut, &noise);
        if let Err(BadSpec(faults)) = parse(&yaml) {
            prop_assert!(!faults.is_empty());
            prop_assert!(faults.iter().all(|fault| fault.line >= 1 && fault.column >= 1));
        }
    }

    #[test]
    fn a_promoted_float_is_the_float_of_the_message_to_its_last_bit_but_for_the_sign_of_zero(drawn: f64, tenths in 0_u32..100_000) {
        // Tenths are where sums go wrong in the last digit: 38 of them are 3.8000000000000003.
        for float in [drawn, f64::from(tenths) * 0.1].into_iter().filter(|float| float.is_finite()) {
            let promoted = spec(&[("amount", "/amount", FieldType::Float)], 1).promote(&json!({ "amount": float }));
            let text = StringArray::from(vec![promoted.values.to_json()]);
            let amount = SpecColumn { name: "amount".to_owned(), kind: FieldType::Float };
            let found = values(&text, &[amount]).unwrap();
            prop_assert_eq!(found[0].as_primitive::<Float64Type>().value(0).to_bits(), (float + 0.0).to_bits());
        }
    }
}
