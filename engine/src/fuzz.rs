//! Fuzz targets of the store: every reader of untrusted bytes, as a function of bytes that says whether it accepted them. None may panic, take
//! unbounded memory, or accept bytes that were not written.
//!
//! | target | reads |
//! |---|---|
//! | `log` | a segment of the log: header, frames, marks; origins of frames |
//! | `catalogue` | records and marks of a catalogue log, one after another |
//! | `checkpoint` | the body of a checkpoint, and of a record |
//! | `footer` | a data file: footer, page index |
//! | `index` | a sidecar: head, digest, ids, texts, counts |
//! | `lines` | a data file of lines: description, frames, rows |
//! | `batch` | an Arrow stream, for each table |
//! | `json`, `ndjson`, `cbor` | records as publishers send them, for each table |
//!
//! The fuzzer of `fuzz/` calls them with its inputs; a test and the bench of hostile inputs with changes of the committed corpus (`model::fuzz`).
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use model::fuzz::FuzzTarget;
use model::telemetry_codec::{BatchEncoding, PublisherIdentity, decode, decode_arrow};
use model::{EntityId, Table};
use nix::sys::memfd::{MFdFlags, memfd_create};
use parquet::file::metadata::RowGroupMetaData;
use uuid::Uuid;

use crate::datafile::{FileFormat, FilePrefix, NdjsonReader, inspect, read_metadata};
use crate::manifest::{ManifestState, fuzz_log};
use model::catch_panic;

/// What reads bytes: true if it accepts them.
type BytesReader = fn(&[u8]) -> bool;

/// The targets, each with the folder of its samples.
const TARGETS: [(&str, &str, BytesReader); 10] = [
    ("disk.wal", "log", log),
    ("disk.manifest", "catalogue", catalogue),
    ("disk.checkpoint", "checkpoint", checkpoint),
    ("disk.parquet", "footer", footer),
    ("disk.sidecar", "index", index),
    ("disk.ndjson", "lines", lines),
    ("wire.arrow", "batch", batch),
    ("wire.json", "json", json),
    ("wire.ndjson", "json", ndjson),
    ("wire.cbor", "cbor", cbor),
];

/// The targets of this room. Their samples are the files of the corpus that they accept; the others are for the fuzzer.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    let of_folder = |(name, folder, reader): (&'static str, &str, BytesReader)| {
        let mut samples = corpus(folder);
        samples.retain(|sample| reader(sample));
        FuzzTarget::new(name, samples, reader)
    };
    TARGETS.into_iter().map(of_folder).collect()
}

/// The files of a target's folder, in the order of their names.
fn corpus(folder: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../fuzz/corpus")
        .join(folder);
    let mut files: Vec<_> = std::fs::read_dir(folder).into_iter().flatten().flatten().collect();
    files.sort_by_key(std::fs::DirEntry::file_name);
    files
        .iter()
        .filter_map(|file| std::fs::read(file.path()).ok())
        .collect()
}

/// The store that the corpus is of.
pub const STORE: Uuid = Uuid::from_u128(0x5708e);

/// A segment of the log: one with a frame.
pub fn log(bytes: &[u8]) -> bool {
    let found = crate::wal::fuzz_segment(STORE, bytes);
    let has_frames = !found.is_empty();
    let mut last = 0;
    for (lsn, origin) in found {
        assert!(lsn > last, "LSNs grow");
        last = lsn;
        // An origin that says nothing is refused, never more.
        let _ = crate::frame_origin::decode(&origin);
    }
    has_frames
}

/// A log of the catalogue: one with a record.
pub fn catalogue(bytes: &[u8]) -> bool {
    fuzz_log(bytes, STORE)
}

/// The state in a checkpoint; what is read is written and read again.
pub fn checkpoint(bytes: &[u8]) -> bool {
    let again = ManifestState::decode(bytes).and_then(|state| state.encode());
    if let Ok(again) = &again {
        assert!(
            ManifestState::decode(again).is_ok(),
            "a state that was written can be read"
        );
    }
    again.is_ok() | crate::manifest::fuzz_record(bytes)
}

/// A file of these bytes that is on no disk, and a name that opens it as long as it is held.
fn in_memory(bytes: &[u8]) -> Option<(File, PathBuf)> {
    let file = File::from(memfd_create("data file", MFdFlags::empty()).ok()?);
    file.write_all_at(bytes, 0).ok()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Some((file, path.into()))
}

/// A data file.
pub fn footer(bytes: &[u8]) -> bool {
    let Some((file, path)) = in_memory(bytes) else {
        return false;
    };
    let path = path.as_path();
    let about = inspect(path);
    let metadata = read_metadata(&FilePrefix::new(file, bytes.len() as u64), path, true);
    let (Ok(about), Ok(metadata)) = (about, metadata) else {
        return false;
    };
    assert_eq!(about.size, bytes.len() as u64);
    let counted: i64 = metadata.row_groups().iter().map(RowGroupMetaData::num_rows).sum();
    assert_eq!(u64::try_from(counted).ok(), Some(about.extent.rows));
    true
}

/// A sidecar: what it finds is a block that it has.
pub fn index(bytes: &[u8]) -> bool {
    in_memory(bytes).is_some_and(|(file, _)| crate::index::fuzz_sidecar(file, bytes.len() as u64))
}

/// A data file of lines, as any form and any table.
pub fn lines(bytes: &[u8]) -> bool {
    let Some((file, path)) = in_memory(bytes) else {
        return false;
    };
    let path = path.as_path();
    let about = inspect(path);
    if let Ok(about) = &about {
        assert_eq!(about.size, bytes.len() as u64);
    }
    let mut has_rows = false;
    let file = FilePrefix::new(file, bytes.len() as u64);
    for form in [FileFormat::Json, FileFormat::JsonZstd, FileFormat::JsonSnappy] {
        for table in [Table::Logs, Table::Messages] {
            let rows = NdjsonReader::new(table, path, form, &file, 64)
                .into_iter()
                .flatten()
                .flatten();
            for batch in rows {
                assert_eq!(batch.schema(), table.schema());
                has_rows = true;
            }
        }
    }
    about.is_ok() || has_rows
}

/// An Arrow stream. The Arrow library panics on some of them: whoever decodes contains that, and so does this, which a
/// fuzzer that ends at the first panic does not see.
pub fn batch(bytes: &[u8]) -> bool {
    let body = Bytes::copy_from_slice(bytes);
    let mut is_read = false;
    for table in Table::ALL {
        let decoded = catch_panic(|| decode_arrow(table, &body).map_err(|error| error.to_string()));
        if let Ok(batches) = decoded {
            assert!(batches.iter().all(|batch| batch.schema() == table.schema()));
            is_read = true;
        }
    }
    is_read
}

/// Records in JSON.
pub fn json(bytes: &[u8]) -> bool {
    records(bytes, BatchEncoding::Json)
}

/// Records in lines of JSON.
pub fn ndjson(bytes: &[u8]) -> bool {
    records(bytes, BatchEncoding::Ndjson)
}

/// Records in CBOR.
pub fn cbor(bytes: &[u8]) -> bool {
    records(bytes, BatchEncoding::Cbor)
}

fn records(bytes: &[u8], encoding: BatchEncoding) -> bool {
    let mut is_read = false;
    let publisher = PublisherIdentity {
        entity_id: EntityId::for_name("fuzz"),
        entity_name: "fuzz".to_owned(),
    };
    for table in Table::ALL {
        if let Ok(batches) = decode(table, encoding, &Bytes::copy_from_slice(bytes), &publisher) {
            assert!(batches.iter().all(|batch| batch.schema() == table.schema()));
            is_read = true;
        }
    }
    is_read
}
