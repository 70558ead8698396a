//! Pieces of open files, and open files made of pieces.

use durable_fs::fault_injection::{FaultInjector, FsOperation};
use parquet::file::metadata::SortingColumn;

use super::super::file_format::FileFormat;
use super::crash::as_recorded;
use super::*;

const FORMS: [FileFormat; 4] = [
    FileFormat::Parquet,
    FileFormat::Json,
    FileFormat::JsonZstd,
    FileFormat::JsonSnappy,
];

/// A room whose file is of a form.
fn room_of(form: FileFormat) -> Room {
    let mut room = Room::with(WriteOptions {
        form,
        ..WriteOptions::default()
    });
    room.path.set_extension(form.ending());
    let options = WriteOptions {
        form,
        ..WriteOptions::default()
    };
    room.open = OpenDataFile::create(room.path.clone(), room.twin.clone(), IDENTITY, options);
    room
}

/// The numbers of the rows of a data file of any form.
fn numbers_at(path: &Path) -> Vec<u64> {
    let found = inspect(path).unwrap();
    if FileFormat::of_path(path) == FileFormat::Parquet {
        return numbers(rows_at(path));
    }
    let file = FilePrefix::new(File::open(path).unwrap(), found.size);
    let lines = NdjsonReader::new(Table::Logs, path, FileFormat::of_path(path), &file, found.extent.rows).unwrap();
    let mut numbers = Vec::new();
    for batch in lines.map(Result::unwrap) {
        let messages = batch.column_by_name("message").unwrap().as_string::<i32>();
        numbers.extend(messages.iter().map(|text| text.unwrap()[5..].parse::<u64>().unwrap()));
    }
    numbers.sort_unstable();
    assert_eq!(numbers.len() as u64, found.extent.rows);
    numbers
}

/// The piece behind a log position of what the room's file is now.
fn piece(room: &Room, after: u64, name: &str) -> Option<(PathBuf, FileVersion)> {
    let source = FilePrefix::new(File::open(&room.path).unwrap(), room.open.size());
    let staged = room.dir.path().join(".staging").join(name);
    let staged = staged.with_extension(FileFormat::of_path(&room.path).ending());
    let piece = write_piece(&source, &room.path, after, &staged).unwrap()?;
    Some((staged, piece))
}

#[test]
fn a_piece_has_exactly_the_rows_behind_its_log_position() {
    for form in FORMS {
        let mut room = room_of(form);
        for n in 0..5 {
            room.publish(n * 10..(n + 1) * 10);
        }
        for after in [0, 9, 10, 11, 30, 49] {
            let (path, piece) = piece(&room, after, "piece").unwrap();
            let first = after / 10 * 10;
            assert_eq!(numbers_at(&path), all(first..50), "{form:?} after {after}");
            let found = inspect(&path).unwrap();
            assert_eq!((found.identity, found.sealed), (IDENTITY, false));
            assert_eq!(
                (piece.facts.first_lsn, piece.facts.last_lsn),
                (after + 1, 50),
                "{form:?}"
            );
            assert_eq!(found.facts.first_lsn, piece.facts.first_lsn);
            assert_eq!(
                found.group_lsns,
                ((after / 10 + 1)..=5).map(|n| n * 10).collect::<Vec<_>>()
            );
            let times: Vec<Timestamp> = (first..50).map(|n| log(n).ts).collect();
            assert_eq!(
                (piece.rows, Some(&piece.min_ts), Some(&piece.max_ts)),
                (50 - first, times.iter().min(), times.iter().max())
            );
            assert_eq!((piece.min_ts, piece.max_ts), (found.extent.min_ts, found.extent.max_ts));
            let bytes = fs::read(&path).unwrap();
            assert_eq!((piece.size, piece.crc), (bytes.len() as u64, crc32c::crc32c(&bytes)));
            let whole = FilePrefix::new(File::open(&path).unwrap(), piece.size);
            assert_eq!(footer_crc(&whole).unwrap(), Some(piece.footer_crc));
        }
        assert!(piece(&room, 50, "none").is_none(), "{form:?}");
        assert!(piece(&room, u64::MAX, "none").is_none(), "{form:?}");
    }
}

#[test]
fn pages_of_a_piece_are_the_open_files() {
    let mut room = Room::new();
    room.publish(0..2000);
    room.publish(2000..4000);
    let (path, found) = piece(&room, 2000, "piece").unwrap();
    let (piece, whole) = (metadata_at(&path), metadata_at(&room.path));
    let newest_first = SortingColumn {
        column_idx: 0,
        descending: true,
        nulls_first: false,
    };
    assert_eq!(piece.row_group(0).sorting_columns(), Some(&vec![newest_first]));
    let pages = |path: &Path, metadata: &ParquetMetaData, at: usize| {
        let (start, length) = metadata.row_group(at).column(0).byte_range();
        let (start, end) = (
            usize::try_from(start).unwrap(),
            usize::try_from(start + length).unwrap(),
        );
        fs::read(path).unwrap()[start..end].to_vec()
    };
    assert_eq!(pages(&path, &piece, 0), pages(&room.path, &whole, 1));
    assert!(found.runs.is_empty(), "one group is sorted as a whole");
}

#[test]
fn large_groups_with_filters_are_taken_whole() {
    let mut room = Room::new();
    room.publish(0..10);
    room.publish(10..140_000);
    let (path, _) = piece(&room, 10, "piece").unwrap();
    assert_eq!(numbers_at(&path), all(10..140_000));
    let metadata = metadata_at(&path);
    let filters = metadata.row_groups().iter().flat_map(|group| group.columns());
    assert!(filters.filter(|column| column.bloom_filter_offset().is_some()).count() > 0);
}

#[test]
fn pieces_of_successive_positions_join_to_an_open_file_that_goes_on() {
    for form in FORMS {
        let mut room = room_of(form);
        let mut pieces = Vec::new();
        let mut through = 0;
        for n in 0..6 {
            room.publish(n * 10..(n + 1) * 10);
            if n % 2 == 1 {
                let (path, found) = piece(&room, through, &format!("piece_{n}")).unwrap();
                pieces.push(path);
                through = found.facts.last_lsn;
            }
        }
        fs::remove_file(&room.path).unwrap();
        // Left by a crash while it was written.
        fs::write(&room.staged, "PAR1").unwrap();
        let joined = join_pieces(&pieces, &room.path, &room.staged, &IDENTITY, 77).unwrap();
        assert_eq!((joined.rows, joined.facts.version), (60, 77), "{form:?}");
        assert_eq!((joined.facts.first_lsn, joined.facts.last_lsn), (1, 60));
        assert_eq!(numbers_at(&room.path), all(0..60), "{form:?}");
        assert_eq!(inspect(&room.path).unwrap().group_lsns, [10, 20, 30, 40, 50, 60]);
        let recorded = RecordedVersion {
            size: joined.size,
            crc: joined.crc,
            footer_crc: joined.footer_crc,
        };
        room.open = as_recorded(room.resume(Some(recorded)).unwrap());
        room.versions = 77;
        let old = room.bytes();
        room.publish(60..70);
        assert!(room.bytes().starts_with(&old), "{form:?}");
        assert_eq!(numbers_at(&room.path), all(0..70), "{form:?}");
        let (last, _) = piece(&room, 60, "last").unwrap();
        assert_eq!(numbers_at(&last), all(60..70), "{form:?}");
        room.seal().install(&room.path, &room.retired).unwrap();
        assert_eq!(numbers_at(&room.path), all(0..70), "{form:?}");
    }
}

#[test]
fn a_join_that_failed_left_nothing_and_may_be_tried_again() {
    let mut room = Room::new();
    room.publish(0..10);
    let (path, _) = piece(&room, 0, "piece").unwrap();
    let joined = room.path.with_file_name("logs_002.parquet");
    for (op, part) in [(FsOperation::SyncFile, ".sealed"), (FsOperation::Rename, ".sealed")] {
        let faults = FaultInjector::below(room.dir.path());
        faults.fail(op, part, 1, libc::EIO);
        assert!(join_pieces(std::slice::from_ref(&path), &joined, &room.staged, &IDENTITY, 2).is_err());
        assert_eq!(faults.left(), 0, "{op:?}");
        assert!(!joined.exists() && !room.staged.exists(), "{op:?}");
    }
    let taken = join_pieces(std::slice::from_ref(&path), &room.path, &room.staged, &IDENTITY, 2);
    assert!(taken.is_err(), "a taken name is not replaced");
    join_pieces(&[path], &joined, &room.staged, &IDENTITY, 2).unwrap();
    assert_eq!(numbers_at(&joined), all(0..10));
}

#[test]
fn pieces_of_others_or_with_other_columns_and_no_pieces_are_refused() {
    let mut room = Room::new();
    room.publish(0..10);
    let (first, _) = piece(&room, 0, "first").unwrap();
    let mut other = Room::with(WriteOptions {
        json: crate::JsonType::String,
        ..WriteOptions::default()
    });
    other.publish(0..10);
    let (second, _) = piece(&other, 0, "second").unwrap();
    let to = room.path.with_file_name("logs_002.parquet");
    let join = |pieces: &[PathBuf], identity: &FileIdentity| join_pieces(pieces, &to, &room.staged, identity, 2);
    let refused = join(&[first.clone(), second], &IDENTITY).unwrap_err();
    assert!(refused.to_string().contains("other columns"), "{refused}");
    let stranger = FileIdentity {
        store: Uuid::from_u128(1),
        ..IDENTITY
    };
    assert!(join(&[first], &stranger).is_err());
    assert!(join(&[], &IDENTITY).is_err());
    assert!(!to.exists() && !room.staged.exists());
}
