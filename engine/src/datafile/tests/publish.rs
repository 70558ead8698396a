//! Publishing into an open file.

use super::*;

#[test]
fn after_every_publish_the_old_file_with_its_footer_is_a_prefix_of_the_new_one() {
    let mut room = Room::new();
    let mut earlier: Vec<(Published, Vec<u8>)> = Vec::new();
    for n in 0..24 {
        let published = room.publish(n * 10..(n + 1) * 10);
        let bytes = room.bytes();
        assert_eq!(published.size, bytes.len() as u64);
        assert_eq!(published.crc, crc32c::crc32c(&bytes));
        assert_eq!(published.rows, (n + 1) * 10);
        for (at, (old, old_bytes)) in earlier.iter().enumerate() {
            assert!(
                bytes.starts_with(old_bytes),
                "publish {n} changed what publish {at} wrote"
            );
            let as_of_then = rows_of(prefix_of(&bytes, old.size)).unwrap();
            assert_eq!(numbers(as_of_then), all(0..old.rows));
        }
        earlier.push((published, bytes));
    }
    assert_eq!(numbers(rows_at(&room.path)), all(0..240));
    assert_eq!(room.open.row_groups(), 24);
}

#[test]
fn a_footer_is_known_by_its_checksum_at_the_length_of_its_version() {
    let mut room = Room::new();
    let old = room.publish(0..10);
    let new = room.publish(10..20);
    let crc_at = |size| footer_crc(&FilePrefix::new(File::open(&room.path).unwrap(), size)).unwrap();
    assert_eq!(crc_at(old.size), Some(old.footer_crc));
    assert_eq!(crc_at(new.size), Some(new.footer_crc));
    assert_eq!(crc_at(old.size - 1), None);
    assert_eq!(crc_at(new.size + 1), None);
}

#[test]
fn the_footer_says_what_the_catalogue_needs_to_be_rebuilt() {
    let mut room = Room::new();
    room.publish(0..10);
    let published = room.publish(10..20);
    let found = inspect(&room.path).unwrap();
    assert_eq!(found.identity, IDENTITY);
    assert_eq!(found.facts, published.facts);
    assert_eq!((found.facts.version, found.facts.last_lsn), (2, 20));
    assert_eq!((found.extent.rows, found.sealed), (20, false));
    assert_eq!(
        (found.extent.min_ts, found.extent.max_ts),
        (published.min_ts, published.max_ts)
    );
    let times = rows_at(&room.path).into_iter().map(|(ts, _)| ts);
    assert_eq!(times.clone().min(), Some(published.min_ts.micros()));
    assert_eq!(times.max(), Some(published.max_ts.micros()));
}

#[test]
fn a_publish_writes_the_difference_and_not_the_file() {
    let mut room = Room::new();
    assert!(!room.publish(0..5000).copied, "nothing to copy at first");
    assert!(room.publish(5000..5010).copied, "the twin has nothing yet");
    let mut before = room.open.size();
    let mut difference = None;
    for n in 501..540 {
        let published = room.publish(n * 10..(n + 1) * 10);
        assert!(!published.copied);
        let added = published.size - before;
        if let Some(difference) = difference {
            let expected = difference + added;
            assert_eq!(
                published.bytes_written, expected,
                "what the twin lacked, and the new group"
            );
        }
        (before, difference) = (published.size, Some(added));
    }
}

#[test]
fn the_tree_holds_finished_data_files_and_nothing_else() {
    let mut room = Room::new();
    for n in 0..4 {
        room.publish(n * 10..(n + 1) * 10);
        assert_eq!(
            room.files("telemetry"),
            ["telemetry/logs/2026/11/21/10/logs_001.parquet"]
        );
    }
    room.open.discard_shadow().unwrap();
    assert_eq!(room.files(".staging"), [""; 0]);
}

#[test]
fn a_reader_of_the_displaced_inode_keeps_it_and_the_next_publish_copies() {
    let mut room = Room::new();
    room.publish(0..10);
    room.publish(10..20);
    let held = File::open(&room.path).unwrap();
    let before = room.bytes();
    assert!(!room.publish(20..30).copied, "the other inode was free");
    assert!(room.publish(30..40).copied, "the held inode must not be extended");
    assert!(!room.publish(40..50).copied);
    let size = held.metadata().unwrap().len();
    let seen = FilePrefix::new(held, size);
    assert_eq!(size, before.len() as u64);
    assert_eq!(file_crc(&seen, 0, 0).unwrap(), crc32c::crc32c(&before));
    assert_eq!(numbers(rows_at(&room.path)), all(0..50));
}

#[test]
fn a_hard_linked_backup_is_never_modified() {
    let mut room = Room::new();
    room.publish(0..10);
    room.publish(10..20);
    let backup = room.dir.path().join("backup.parquet");
    fs::hard_link(&room.path, &backup).unwrap();
    let before = fs::read(&backup).unwrap();
    for n in 2..8 {
        room.publish(n * 10..(n + 1) * 10);
        assert_eq!(fs::read(&backup).unwrap(), before);
    }
    assert_eq!(numbers(rows_at(&backup)), all(0..20));
    assert_eq!(numbers(rows_at(&room.path)), all(0..80));
}

#[test]
fn a_publish_that_was_not_recorded_stops_the_next_one() {
    let mut room = Room::new();
    room.publish(0..10);
    room.try_publish(10..20).unwrap();
    let displaced = fs::read(&room.twin).unwrap();
    let refused = room.try_publish(20..30).unwrap_err();
    assert!(refused.to_string().contains("never recorded"), "{refused}");
    assert_eq!(
        fs::read(&room.twin).unwrap(),
        displaced,
        "the displaced inode was touched"
    );
    room.open.mark_recorded();
    room.publish(20..30);
    assert_eq!(numbers(rows_at(&room.path)), all(0..30));
}

#[test]
fn a_publish_that_could_not_be_staged_changes_nothing_and_may_be_tried_again() {
    let mut room = Room::new();
    room.publish(0..10);
    room.publish(10..20);
    let before = room.bytes();
    let staging = room.dir.path().join(".staging");
    fs::remove_dir_all(&staging).unwrap();
    fs::write(&staging, "in the way").unwrap();
    assert!(room.try_publish(20..30).is_err());
    assert_eq!(room.bytes(), before);
    fs::remove_file(&staging).unwrap();
    room.publish(20..30);
    assert_eq!(numbers(rows_at(&room.path)), all(0..30));
}

#[test]
fn a_file_that_could_not_take_its_name_may_be_tried_again() {
    let mut room = Room::new();
    let tree = room.dir.path().join("telemetry");
    fs::write(&tree, "in the way").unwrap();
    assert!(room.try_publish(0..10).is_err());
    fs::remove_file(&tree).unwrap();
    room.publish(0..10);
    let aside = room.dir.path().join("aside");
    fs::rename(&tree, &aside).unwrap();
    assert!(room.try_publish(10..20).is_err());
    fs::rename(&aside, &tree).unwrap();
    room.publish(10..20);
    assert_eq!(numbers(rows_at(&room.path)), all(0..20));
}

#[test]
fn where_names_cannot_be_exchanged_the_file_is_copied_and_renamed() {
    let mut room = Room::new();
    room.open.replace = super::super::shadow_file::ReplaceMethod::Rename;
    room.publish(0..10);
    let mut old = room.bytes();
    for n in 1..6 {
        let published = room.publish(n * 10..(n + 1) * 10);
        assert!(published.copied);
        let new = room.bytes();
        assert!(new.starts_with(&old));
        old = new;
    }
    assert_eq!(numbers(rows_at(&room.path)), all(0..60));
    assert_eq!(room.files(".staging"), [""; 0]);
}

#[test]
fn damage_is_found_when_bytes_are_copied_and_is_not_spread() {
    let mut room = Room::new();
    room.publish(0..1000);
    let mut bytes = room.bytes();
    bytes[100] ^= 1;
    fs::write(&room.path, &bytes).unwrap();
    let error = room.try_publish(1000..1010).unwrap_err();
    assert!(
        matches!(&error, Error::Damaged { path, .. } if *path == room.path),
        "{error}"
    );
    assert_eq!(room.bytes(), bytes);
    assert_eq!(room.files(".staging"), [""; 0]);
}

#[test]
fn a_name_that_is_taken_is_not_replaced_by_a_first_publish() {
    let mut room = Room::new();
    fs::create_dir_all(room.path.parent().unwrap()).unwrap();
    fs::write(&room.path, "somebody else's").unwrap();
    assert!(room.try_publish(0..10).is_err());
    assert_eq!(room.bytes(), b"somebody else's");
}

#[test]
fn an_open_file_takes_128_row_groups() {
    let mut room = Room::new();
    for n in 0..128 {
        assert!(!room.open.is_full());
        room.publish(n..n + 1);
    }
    assert!(room.open.is_full());
    let refused = room.try_publish(128..129).unwrap_err();
    assert!(refused.to_string().contains("128 row groups"), "{refused}");
    assert_eq!(numbers(rows_at(&room.path)), all(0..128));
}

#[test]
fn rows_of_another_table_or_schema_and_no_rows_are_refused() {
    let mut room = Room::new();
    room.publish(0..10);
    let facts = room.facts(&(0..0));
    let none = room.open.encode(&[], IoPriority::Yes).unwrap_err();
    assert!(none.to_string().contains("there are none"), "{none}");
    assert!(encode(Table::Metrics, &[logs(0..1)], &WriteOptions::default(), IoPriority::Yes).is_err());
    let text = WriteOptions {
        json: crate::JsonType::String,
        ..WriteOptions::default()
    };
    let group = encode(Table::Logs, &[logs(10..20)], &text, IoPriority::Yes).unwrap();
    let refused = room.open.publish(&group, facts).unwrap_err();
    assert!(refused.to_string().contains("another Parquet schema"), "{refused}");
    assert_eq!(numbers(rows_at(&room.path)), all(0..10));
}

#[test]
fn a_group_is_sorted_newest_first_over_all_its_batches() {
    let mut room = Room::new();
    let batches: Vec<RecordBatch> = (0..40).map(|n| logs(n * 500..(n + 1) * 500)).collect();
    let group = room.open.encode(&batches, IoPriority::Yes).unwrap();
    assert_eq!(group.rows(), 20_000);
    let facts = room.facts(&(0..20_000));
    room.open.publish(&group, facts).unwrap();
    assert_eq!(rows_at(&room.path), sorted(0..20_000));
}
