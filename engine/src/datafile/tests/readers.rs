//! Readers that know nothing of us, while files are published and sealed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;

const PUBLISHES: u64 = 100;
const ROWS: u64 = 20;

/// The files of the tree as a glob finds them, in order of their names.
fn glob(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Reads the tree until told to stop; the number of complete looks. Counts may only grow.
fn look_again_and_again(folder: &Path, stop: &AtomicBool, published: &AtomicU64) -> u64 {
    let (mut looks, mut last) = (0, 0);
    loop {
        let ending = stop.load(Ordering::Acquire);
        let before = published.load(Ordering::Acquire);
        let rows: Vec<Row> = glob(folder).iter().flat_map(|path| rows_at(path)).collect();
        let count = rows.len() as u64;
        assert!(count >= before, "{count} rows after {before} were published");
        assert_eq!(numbers(rows), all(0..count), "torn, missing or doubled rows");
        assert!(count >= last, "{count} rows after {last}");
        last = count;
        looks += 1;
        if ending {
            return looks;
        }
    }
}

/// Looks a length up first and reads the file later, as some readers do. Right rows or, around a seal, an error.
fn look_with_stale_lengths(folder: &Path, stop: &AtomicBool, errors: &AtomicU64) {
    while !stop.load(Ordering::Acquire) {
        let sized = glob(folder)
            .into_iter()
            .map(|path| (fs::metadata(&path).unwrap().len(), path));
        for (size, path) in sized.collect::<Vec<_>>() {
            let file = File::open(&path).unwrap();
            match rows_of(FilePrefix::new(file, size)) {
                Ok(rows) => {
                    let numbers = numbers(rows);
                    let first = numbers.first().copied().unwrap_or(0);
                    assert_eq!(numbers, all(first..first + numbers.len() as u64));
                }
                Err(_) => {
                    errors.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

#[test]
fn readers_see_every_row_once_during_200_publishes_and_two_seals() {
    let mut room = Room::new();
    let folder = room.path.parent().unwrap().to_owned();
    let (stop, published, errors) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let reader = scope.spawn(|| look_again_and_again(&folder, &stop, &published));
        let stale = scope.spawn(|| look_with_stale_lengths(&folder, &stop, &errors));
        for segment in 0..2u64 {
            room.path = folder.join(format!("logs_{:03}.parquet", segment + 1));
            let identity = FileIdentity {
                segment: segment + 1,
                ..IDENTITY
            };
            let (path, twin) = (room.path.clone(), room.twin.clone());
            room.open = OpenDataFile::create(path, twin, identity, WriteOptions::default());
            for n in segment * PUBLISHES..(segment + 1) * PUBLISHES {
                room.publish(n * ROWS..(n + 1) * ROWS);
                published.store((n + 1) * ROWS, Ordering::Release);
            }
            room.open.discard_shadow().unwrap();
            room.seal().install(&room.path, &room.retired).unwrap();
        }
        stop.store(true, Ordering::Release);
        assert!(reader.join().unwrap() > 2, "the reader saw nothing happen");
        stale.join().unwrap();
    });
    // Each of the two seals may surprise a stale length, once per file and look.
    assert!(errors.load(Ordering::Relaxed) <= 4, "{errors:?} errors");
    let rows: Vec<Row> = glob(&folder).iter().flat_map(|path| rows_at(path)).collect();
    assert_eq!(numbers(rows), all(0..2 * PUBLISHES * ROWS));
}

#[test]
fn a_held_version_is_read_at_its_length_after_later_publishes() {
    let mut room = Room::new();
    let held = room.publish(0..10);
    for n in 1..6 {
        room.publish(n * 10..(n + 1) * 10);
        let file = File::open(&room.path).unwrap();
        let rows = rows_of(FilePrefix::new(file, held.size)).unwrap();
        assert_eq!(numbers(rows), all(0..10));
    }
}

#[test]
fn a_handle_opened_before_a_seal_reads_the_open_file_to_its_end() {
    let mut room = Room::new();
    room.publish(0..10);
    room.publish(10..20);
    let held = File::open(&room.path).unwrap();
    room.seal().install(&room.path, &room.retired).unwrap();
    assert_eq!(numbers(rows_of(held).unwrap()), all(0..20));
    assert_eq!(rows_at(&room.path), sorted(0..20));
}
