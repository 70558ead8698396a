//! Fuzz entries: every reader of untrusted bytes, as a function of bytes. None may panic, take unbounded memory, or accept bytes
//! that were not written.
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
//! | `json`, `cbor` | records as publishers send them, for each table |
//!
//! The fuzzer of `fuzz/` calls them with its inputs; a test calls them with the committed corpus and seeded changes of it.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bytes::Bytes;
use model::telemetry_codec::{BatchEncoding, PublisherIdentity, decode, decode_arrow};
use model::{EntityId, Table};
use nix::sys::memfd::{MFdFlags, memfd_create};
use parquet::file::metadata::RowGroupMetaData;
use uuid::Uuid;

use crate::datafile::{FileFormat, FilePrefix, NdjsonReader, inspect, read_metadata};
use crate::manifest::{ManifestState, fuzz_log};
use model::catch_panic;

/// A target: its name, and what it does with bytes.
pub type FuzzTarget = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [FuzzTarget; 9] = [
    ("log", log),
    ("catalogue", catalogue),
    ("checkpoint", checkpoint),
    ("footer", footer),
    ("index", index),
    ("lines", lines),
    ("batch", batch),
    ("json", json),
    ("cbor", cbor),
];

/// The store that the corpus is of.
pub const STORE: Uuid = Uuid::from_u128(0x5708e);

/// A segment of the log.
pub fn log(bytes: &[u8]) {
    let found = crate::wal::fuzz_segment(STORE, bytes);
    let mut last = 0;
    for (lsn, origin) in found {
        assert!(lsn > last, "LSNs grow");
        last = lsn;
        // An origin that says nothing is refused, never more.
        let _ = crate::frame_origin::decode(&origin);
    }
}

/// A log of the catalogue.
pub fn catalogue(bytes: &[u8]) {
    fuzz_log(bytes, STORE);
}

/// The state in a checkpoint; what is read is written and read again.
pub fn checkpoint(bytes: &[u8]) {
    if let Ok(again) = ManifestState::decode(bytes).and_then(|state| state.encode()) {
        assert!(
            ManifestState::decode(&again).is_ok(),
            "a state that was written can be read"
        );
    }
    crate::manifest::fuzz_record(bytes);
}

/// A file of these bytes that is on no disk, and a name that opens it as long as it is held.
fn in_memory(bytes: &[u8]) -> Option<(File, PathBuf)> {
    let file = File::from(memfd_create("data file", MFdFlags::empty()).ok()?);
    file.write_all_at(bytes, 0).ok()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    Some((file, path.into()))
}

/// A data file.
pub fn footer(bytes: &[u8]) {
    let Some((file, path)) = in_memory(bytes) else {
        return;
    };
    let path = path.as_path();
    let about = inspect(path);
    let metadata = read_metadata(&FilePrefix::new(file, bytes.len() as u64), path, true);
    if let (Ok(about), Ok(metadata)) = (about, metadata) {
        assert_eq!(about.size, bytes.len() as u64);
        let counted: i64 = metadata.row_groups().iter().map(RowGroupMetaData::num_rows).sum();
        assert_eq!(u64::try_from(counted).ok(), Some(about.extent.rows));
    }
}

/// A sidecar: what it finds is a block that it has.
pub fn index(bytes: &[u8]) {
    if let Some((file, _)) = in_memory(bytes) {
        crate::index::fuzz_sidecar(file, bytes.len() as u64);
    }
}

/// A data file of lines, as any form and any table.
pub fn lines(bytes: &[u8]) {
    let Some((file, path)) = in_memory(bytes) else {
        return;
    };
    let path = path.as_path();
    if let Ok(about) = inspect(path) {
        assert_eq!(about.size, bytes.len() as u64);
    }
    let file = FilePrefix::new(file, bytes.len() as u64);
    for form in [FileFormat::Json, FileFormat::JsonZstd, FileFormat::JsonSnappy] {
        for table in [Table::Logs, Table::Messages] {
            let rows = NdjsonReader::new(table, path, form, &file, 64)
                .into_iter()
                .flatten()
                .flatten();
            for batch in rows {
                assert_eq!(batch.schema(), table.schema());
            }
        }
    }
}

/// An Arrow stream. The Arrow library panics on some of them: whoever decodes contains that, and so does this, which a
/// fuzzer that ends at the first panic does not see.
pub fn batch(bytes: &[u8]) {
    let body = Bytes::copy_from_slice(bytes);
    for table in Table::ALL {
        let decoded = catch_panic(|| decode_arrow(table, &body).map_err(|error| error.to_string()));
        if let Ok(batches) = decoded {
            assert!(batches.iter().all(|batch| batch.schema() == table.schema()));
        }
    }
}

/// Records in JSON.
pub fn json(bytes: &[u8]) {
    records(bytes, BatchEncoding::Json);
}

/// Records in CBOR.
pub fn cbor(bytes: &[u8]) {
    records(bytes, BatchEncoding::Cbor);
}

fn records(bytes: &[u8], encoding: BatchEncoding) {
    let publisher = PublisherIdentity {
        entity_id: EntityId::for_name("fuzz"),
        entity_name: "fuzz".to_owned(),
    };
    for table in Table::ALL {
        if let Ok(batches) = decode(table, encoding, &Bytes::copy_from_slice(bytes), &publisher) {
            assert!(batches.iter().all(|batch| batch.schema() == table.schema()));
        }
    }
}
