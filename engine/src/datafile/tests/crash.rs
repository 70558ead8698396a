//! What a restart makes of every moment at which a publish or a seal may have ended.

use super::*;

pub(super) fn as_recorded(resumed: RecoveredFile) -> OpenDataFile {
    assert!(resumed.is_recorded, "not as recorded: {resumed:?}");
    let open = resumed.open.unwrap();
    assert_eq!(open.published().unwrap(), resumed.file);
    open
}

fn newer(resumed: RecoveredFile) -> OpenDataFile {
    assert!(!resumed.is_recorded, "not newer: {resumed:?}");
    let open = resumed.open.unwrap();
    assert_eq!(open.published().unwrap(), resumed.file);
    open
}

fn damage(resumed: Result<RecoveredFile, Error>) -> String {
    match resumed {
        Err(Error::Damaged { reason, .. }) => reason,
        other => panic!("not damaged: {other:?}"),
    }
}

/// A room with 20 recorded rows, and the group of rows 20 to 30.
fn room_with_twenty() -> (Room, RowGroup) {
    let mut room = Room::new();
    room.publish(0..10);
    room.publish(10..20);
    let group = room.open.encode(&[logs(20..30)], IoPriority::Yes).unwrap();
    (room, group)
}

/// The resumed segment goes on as if nothing had happened.
fn goes_on(mut room: Room, open: OpenDataFile, next: u64) {
    assert_eq!(room.files(".staging"), [""; 0], "the twin is thrown away");
    room.open = open;
    for n in 0..4 {
        let published = room.publish(next + n * 10..next + (n + 1) * 10);
        assert_eq!(published.crc, crc32c::crc32c(&room.bytes()));
    }
    assert_eq!(numbers(rows_at(&room.path)), all(0..next + 40));
    let sealed = room.seal();
    sealed.install(&room.path, &room.retired).unwrap();
    assert_eq!(rows_at(&room.path), sorted(0..next + 40));
}

#[test]
fn a_clean_stop_is_taken_up_as_recorded() {
    let (room, _) = room_with_twenty();
    let open = as_recorded(room.resume(room.recorded()).unwrap());
    assert_eq!(open.published(), room.open.published());
    goes_on(room, open, 20);
}

#[test]
fn a_half_written_shadow_file_is_ignored() {
    let (mut room, group) = room_with_twenty();
    let facts = room.facts(&(20..30));
    let recorded = room.recorded();
    room.open.stage(&group, facts).unwrap();
    let half = fs::read(&room.twin).unwrap();
    fs::write(&room.twin, &half[..half.len() - 7]).unwrap();
    let open = as_recorded(room.resume(recorded).unwrap());
    assert_eq!(numbers(rows_at(&room.path)), all(0..20));
    goes_on(room, open, 20);
}

#[test]
fn a_shadow_file_that_was_not_exchanged_is_ignored() {
    let (mut room, group) = room_with_twenty();
    let facts = room.facts(&(20..30));
    let recorded = room.recorded();
    room.open.stage(&group, facts).unwrap();
    let open = as_recorded(room.resume(recorded).unwrap());
    goes_on(room, open, 20);
}

#[test]
fn a_publish_exchanged_and_not_recorded_is_adopted() {
    let (mut room, group) = room_with_twenty();
    let facts = room.facts(&(20..30));
    let recorded = room.recorded();
    let staged = room.open.stage(&group, facts.clone()).unwrap();
    room.open.swap(staged).unwrap();
    let open = newer(room.resume(recorded).unwrap());
    let published = open.published().unwrap();
    assert_eq!((published.rows, &published.facts), (30, &facts));
    assert_eq!(published.crc, crc32c::crc32c(&room.bytes()));
    assert_eq!(published.footer_crc, room.open.published().unwrap().footer_crc);
    goes_on(room, open, 30);
}

#[test]
fn an_end_that_is_not_a_version_is_rolled_back_without_touching_the_inode() {
    let (room, _) = room_with_twenty();
    let recorded = room.recorded();
    let good = room.bytes();
    let torn = [&good[..], &[0; 4096]].concat();
    fs::write(&room.path, &torn).unwrap();
    let reader = File::open(&room.path).unwrap();
    let open = as_recorded(room.resume(recorded).unwrap());
    assert_eq!(room.bytes(), good);
    assert_eq!(reader.metadata().unwrap().len(), torn.len() as u64);
    goes_on(room, open, 20);
}

#[test]
fn an_end_of_another_segment_is_not_adopted() {
    let (room, _) = room_with_twenty();
    let recorded = room.recorded();
    let mut other = Room::new();
    other.publish(0..50);
    let good = room.bytes();
    fs::write(&room.path, [&good[..], &other.bytes()[..]].concat()).unwrap();
    as_recorded(room.resume(recorded).unwrap());
    assert_eq!(room.bytes(), good);
}

#[test]
fn a_first_publish_that_was_not_recorded_is_adopted_by_its_own_footer() {
    let mut room = Room::new();
    room.try_publish(0..10).unwrap();
    let open = newer(room.resume(None).unwrap());
    assert_eq!(*open.identity(), IDENTITY);
    assert_eq!(open.published().unwrap().crc, crc32c::crc32c(&room.bytes()));
    goes_on(room, open, 10);
}

#[test]
fn a_sealed_file_that_was_not_installed_is_ignored() {
    let (mut room, _) = room_with_twenty();
    let recorded = room.recorded();
    room.seal();
    fs::remove_file(&room.staged).unwrap();
    let open = as_recorded(room.resume(recorded).unwrap());
    goes_on(room, open, 20);
}

#[test]
fn a_sealed_file_installed_and_not_recorded_is_adopted() {
    let (mut room, _) = room_with_twenty();
    let recorded = room.recorded();
    let sealed = room.seal();
    sealed.install(&room.path, &room.retired).unwrap();
    for known in [recorded, None] {
        let found = room.resume(known).unwrap();
        assert!(!found.is_recorded && found.open.is_none(), "{found:?}");
        let path = room.path.clone();
        assert_eq!(found.file, FileVersion { path, ..sealed.clone() });
    }
}

#[test]
fn a_file_of_another_store_or_table_is_refused() {
    let mut room = Room::new();
    room.publish(0..10);
    for identity in [
        FileIdentity {
            store: Uuid::from_u128(1),
            ..IDENTITY
        },
        FileIdentity {
            table: Table::Traces,
            ..IDENTITY
        },
    ] {
        for known in [None, room.recorded()] {
            let (path, twin) = (room.path.clone(), room.twin.clone());
            let refused = resume(path, twin, identity, WriteOptions::default(), known);
            assert!(damage(refused).contains("wanted is"), "{identity:?}");
        }
    }
}

#[test]
fn files_that_are_not_what_was_recorded_are_damage_and_stay_as_they_are() {
    let (room, _) = room_with_twenty();
    let recorded = room.recorded();
    let good = room.bytes();
    let mut flipped = good.clone();
    *flipped.iter_mut().nth_back(20).unwrap() ^= 1;
    for bad in [
        &good[..good.len() - 1],
        &flipped,
        b"",
        b"PAR1",
        b"PAR1\xff\xff\xff\xffPAR1",
        b"not Parquet at all",
    ] {
        fs::write(&room.path, bad).unwrap();
        assert!(room.resume(recorded).is_err(), "{} bytes", bad.len());
        assert_eq!(room.bytes(), bad);
    }
    fs::remove_file(&room.path).unwrap();
    let missing = room.resume(recorded).unwrap_err();
    assert!(missing.to_string().contains("could not open"), "{missing}");
}

#[test]
fn no_cut_of_a_file_is_ever_taken_for_a_version_that_was_not_published() {
    let (room, _) = room_with_twenty();
    let good = room.bytes();
    let file = File::options().write(true).open(&room.path).unwrap();
    let mut versions = 0;
    for length in (0..good.len() as u64).rev() {
        file.set_len(length).unwrap();
        if let Ok(found) = inspect(&room.path) {
            assert_eq!(found.extent.rows, 10, "cut at {length}");
            versions += 1;
        }
    }
    assert_eq!(versions, 1, "the first version's end");
}

#[test]
fn the_json_type_of_an_open_file_outlives_a_change_of_the_setting() {
    let mut room = Room::with(WriteOptions {
        json: crate::JsonType::String,
        ..WriteOptions::default()
    });
    room.publish(0..10);
    let open = as_recorded(room.resume(room.recorded()).unwrap());
    room.open = open;
    room.publish(10..20);
    assert_eq!(numbers(rows_at(&room.path)), all(0..20));
}

#[test]
fn the_log_positions_of_row_groups_outlive_a_restart() {
    let mut room = Room::new();
    for rows in [0..10, 10..20, 20..25] {
        room.publish(rows);
    }
    assert_eq!(inspect(&room.path).unwrap().group_lsns, [10, 20, 25]);
    room.open = as_recorded(room.resume(room.recorded()).unwrap());
    room.publish(25..40);
    assert_eq!(inspect(&room.path).unwrap().group_lsns, [10, 20, 25, 40]);
    let sealed = room.seal();
    assert_eq!(inspect(&sealed.path).unwrap().group_lsns, [40]);
}
