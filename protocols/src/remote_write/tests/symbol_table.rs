//! Symbols of version 2.0: references to them, and what they may come to.

use super::*;

#[test]
fn references_that_lead_nowhere_refuse_their_series_alone() {
    let symbols: Vec<u8> = ["", "__name__", "good", "\u{e9}"]
        .iter()
        .flat_map(|symbol| bytes(4, symbol.as_bytes()))
        .collect();
    let of = |references: &[u8]| bytes(5, &[bytes(1, references), bytes(2, &sample(1.0, NOON))].concat());
    let many = vec![1; (1 << 14) + 2];
    let body = [
        symbols,
        bytes(4, b"\xff"),
        of(&[1, 2, 3]),
        of(&[1, 9]),
        of(&[1, 4]),
        of(&many),
        of(&[1, 2]),
        of(&[]),
    ]
    .concat();
    let (rows, refused, _) = points(WriteVersion::V2, &body).unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["name"], "good");
    let refused: Vec<_> = refused.iter().map(|(row, reason)| (*row, reason.as_str())).collect();
    assert_eq!(
        refused,
        [
            (0, "a label has a name and no value: the number of references is odd"),
            (1, "there is no symbol 9, but 5"),
            (2, "the symbol 4 is not UTF-8"),
            (3, "the labels have more than 16384 bytes of references"),
            (5, "the series has no label __name__"),
        ]
    );
    let endless = bytes(4, b"").repeat((1 << 18) + 1);
    assert!(matches!(
        points(WriteVersion::V2, &endless),
        Err(WriteError::Symbols(_))
    ));
}

#[test]
fn a_unit_counts_as_the_labels_do_for_it_is_in_every_row() {
    let of_unit = |unit: &str, count: usize| {
        let metadata = bytes(5, &varint(4, 3));
        let series = [bytes(1, &[1, 2]), metadata, bytes(2, &sample(1.0, NOON))].concat();
        points(
            WriteVersion::V2,
            &version_2_of(&["", "__name__", "n", unit], &vec![series; count]),
        )
    };
    let (rows, refused, _) = of_unit(&"u".repeat(1_000), 100).unwrap();
    assert_eq!((rows.len(), refused.len()), (100, 0), "the control");
    assert_eq!(rows[99]["labels"]["otel.unit"], "u".repeat(1_000));
    assert!(matches!(
        of_unit(&"u".repeat(100_000), 1_000),
        Err(WriteError::Expanded(_))
    ));
    let (rows, refused, _) = of_unit(&"u".repeat(2 << 20), 3).unwrap();
    assert_eq!((rows.len(), refused.len()), (0, 3));
    for (_, reason) in refused {
        assert!(reason.starts_with("the labels have 2097"), "{reason}");
    }
}

#[test]
fn the_labels_of_exemplars_count_where_they_are_references_to_symbols() {
    let (value, pairs) = ("v".repeat(1_000), [3, 4].repeat(1_000));
    let exemplar = [bytes(1, &pairs), double(2, 0.5), varint(3, NOON)].concat();
    let of_exemplars = |count: usize| {
        let series = [bytes(1, &[1, 2]), bytes(4, &exemplar).repeat(count)].concat();
        points(
            WriteVersion::V2,
            &version_2_of(&["", "__name__", "n", "k", &value], &[series]),
        )
    };
    let (rows, refused, kinds) = of_exemplars(10).unwrap();
    assert_eq!((rows.len(), refused.len()), (10, 0), "the control");
    assert_eq!(kinds, [RecordKind::Exemplar; 10]);
    assert_eq!(rows[9]["labels"]["otel.exemplars"][0]["attributes"]["k"], value);
    assert!(matches!(of_exemplars(100), Err(WriteError::Expanded(_))));
}
