//! Format of the catalogue's objects in the object store.
//!
//! ```text
//! <prefix>/meta/log/<20 digits>          one record each, created only if absent, numbered without gaps
//! <prefix>/meta/checkpoint/<20 digits>   the whole state after the record of that number
//! <prefix>/telemetry/<table>/YYYY/MM/DD[/HH]/<table>_NNN.parquet      data; of a second folder that writes: …_NNN_w2.parquet
//! <prefix>/messages/…                    likewise, as below the folder of messages
//! <prefix>/pieces/<table>/<20 digits>_w<epoch>.parquet                row groups of files that are open yet; not for outside readers
//! <prefix>/iceberg/…                     metadata of a table catalogue, derived from this one: no record names it
//!
//! record, checkpoint:  magic 8 │ crc32c u32 │ CBOR
//! ```
//!
//! The checksum covers the kind and the number too: bytes of another object are not taken for ours.

use std::path::Path as FsPath;

use object_store::path::Path;

use super::state::{RemoteRecord, RemoteState, WriterIdentity};
use crate::datafile::FileFormat;
use crate::layout::StoreLayout;
use crate::manifest::FileEntry;

/// The tree of telemetry, and that of messages.
pub(super) const TELEMETRY: &str = "telemetry";
pub(super) const MESSAGES: &str = "messages";
/// What outside readers do not look at.
pub(crate) const PIECES: &str = "pieces";
/// What is derived from the catalogue.
pub(crate) const ICEBERG: &str = "iceberg";
const RECORD: &[u8; 8] = b"FLUXREM1";
const CHECKPOINT: &[u8; 8] = b"FLUXRCP1";

/// The names below one prefix.
#[derive(Debug, Clone)]
pub(crate) struct ObjectNames {
    prefix: Path,
}

impl ObjectNames {
    pub(crate) const fn new(prefix: Path) -> Self {
        Self { prefix }
    }

    /// An object by its name below the prefix.
    pub(crate) fn object(&self, key: &str) -> Path {
        self.prefix.parts().chain(Path::from(key).parts()).collect()
    }

    pub(crate) fn logs(&self) -> Path {
        self.object("meta/log")
    }

    pub(crate) fn log(&self, number: u64) -> Path {
        self.object(&format!("meta/log/{number:020}"))
    }

    pub(crate) fn checkpoints(&self) -> Path {
        self.object("meta/checkpoint")
    }

    pub(crate) fn checkpoint(&self, number: u64) -> Path {
        self.object(&format!("meta/checkpoint/{number:020}"))
    }

    /// A probe object that tests whether the store supports what is needed.
    pub(crate) fn probe(&self, nonce: u64) -> Path {
        self.object(&format!("meta/probe/{nonce:016x}"))
    }
}

/// An object's URI, from the URL of its store: `s3://bucket/` and its name as it stands.
pub(crate) fn object_uri(url: &str, object: &Path) -> String {
    let scheme = url.find("://").map_or(0, |at| at + "://".len());
    let bucket = url[scheme..].find('/').map_or(url, |at| &url[..scheme + at]);
    format!("{bucket}/{object}")
}

/// The number in a catalogue object's name.
pub(crate) fn number_of(path: &Path) -> Option<u64> {
    let name = path.filename()?;
    (name.len() == 20).then(|| name.parse().ok()).flatten()
}

/// The name of a data file's object: as its path in its tree.
pub(crate) fn data_key(layout: &StoreLayout, path: &FsPath, writer: &WriterIdentity) -> String {
    let (tree, root) = if layout.root_of(path) == layout.messages {
        (MESSAGES, &layout.messages)
    } else {
        (TELEMETRY, &layout.data)
    };
    let below = path.strip_prefix(root).unwrap_or(path).to_string_lossy();
    if writer.generation <= 1 {
        return format!("{tree}/{below}");
    }
    let (stem, form) = FileFormat::split(&below).unwrap_or((&below, FileFormat::Parquet));
    format!("{tree}/{stem}_w{}.{}", writer.generation, form.ending())
}

/// The name of a piece's object, or of a version that is not in the tree yet: never given twice, so that a write that comes
/// late overwrites nothing.
pub(crate) fn piece_key(entry: &FileEntry, id: u64, writer: &WriterIdentity) -> String {
    format!(
        "{PIECES}/{}/{id:020}_w{}.{}",
        entry.table,
        writer.epoch,
        entry.form.ending()
    )
}

fn seal(magic: &[u8; 8], number: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(body.len() + 12);
    bytes.extend_from_slice(magic);
    bytes.extend_from_slice(&checksum(magic, number, body).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn checksum(magic: &[u8; 8], number: u64, body: &[u8]) -> u32 {
    let crc = crc32c::crc32c_append(crc32c::crc32c(magic), &number.to_le_bytes());
    crc32c::crc32c_append(crc, body)
}

fn open<'a>(magic: &[u8; 8], number: u64, bytes: &'a [u8]) -> Result<&'a [u8], String> {
    let rest = bytes
        .strip_prefix(magic)
        .ok_or("it does not begin as this version writes it")?;
    let (crc, body) = rest.split_first_chunk::<4>().ok_or("it is too short")?;
    if u32::from_le_bytes(*crc) != checksum(magic, number, body) {
        return Err("its checksum does not match".to_owned());
    }
    Ok(body)
}

/// A record's object.
pub(crate) fn encode_record(record: &RemoteRecord) -> Result<Vec<u8>, String> {
    let mut body = Vec::new();
    ciborium::into_writer(record, &mut body).map_err(|error| error.to_string())?;
    Ok(seal(RECORD, record.number, &body))
}

/// The record in an object.
pub(crate) fn decode_record(number: u64, bytes: &[u8]) -> Result<RemoteRecord, String> {
    let record: RemoteRecord =
        ciborium::from_reader(open(RECORD, number, bytes)?).map_err(|error| error.to_string())?;
    if record.number != number {
        return Err(format!("it says that it is record {}", record.number));
    }
    Ok(record)
}

/// A checkpoint's object.
pub(crate) fn encode_checkpoint(state: &RemoteState) -> Result<Vec<u8>, String> {
    Ok(seal(CHECKPOINT, state.number, &state.encode()?))
}

/// The state in an object.
pub(crate) fn decode_checkpoint(number: u64, bytes: &[u8]) -> Result<RemoteState, String> {
    RemoteState::decode(open(CHECKPOINT, number, bytes)?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_flipped_bit_anywhere_in_a_record_is_noticed_and_so_is_another_number() {
        let record = RemoteRecord {
            number: 7,
            remove: vec![1, 2],
            ..RemoteRecord::default()
        };
        let bytes = encode_record(&record).unwrap();
        assert_eq!(decode_record(7, &bytes).unwrap(), record);
        assert!(decode_record(8, &bytes).is_err());
        for at in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1;
            assert!(decode_record(7, &bytes).is_err(), "{at}");
        }
    }

    #[test]
    fn objects_of_a_second_folder_that_writes_have_names_of_their_own() {
        let layout = StoreLayout::new(&crate::Settings::new("/store"));
        let mut writer = WriterIdentity::default();
        for (generation, path, key) in [
            (
                1,
                "telemetry/logs/2026/11/21/10/logs_003.parquet",
                "telemetry/logs/2026/11/21/10/logs_003.parquet",
            ),
            (
                2,
                "telemetry/logs/2026/11/21/logs_003.parquet",
                "telemetry/logs/2026/11/21/logs_003_w2.parquet",
            ),
            (
                2,
                "telemetry/logs/2026/11/21/logs_003.json.zst",
                "telemetry/logs/2026/11/21/logs_003_w2.json.zst",
            ),
            (
                2,
                "messages/generic/2026/11/21/fluxmsg_001.json",
                "messages/generic/2026/11/21/fluxmsg_001_w2.json",
            ),
        ] {
            writer.generation = generation;
            assert_eq!(data_key(&layout, &FsPath::new("/store").join(path), &writer), key);
        }
    }

    #[test]
    fn a_uri_has_the_bucket_of_the_url_and_the_objects_whole_name() {
        let object = ObjectNames::new(Path::from("a/b")).object("telemetry/x.parquet");
        for url in ["s3://bucket/a/b", "s3://bucket/", "s3://bucket"] {
            assert_eq!(object_uri(url, &object), "s3://bucket/a/b/telemetry/x.parquet", "{url}");
        }
    }

    #[test]
    fn names_lie_below_the_prefix_and_numbers_sort() {
        let names = ObjectNames::new(Path::from("a/b"));
        assert_eq!(names.log(7).as_ref(), "a/b/meta/log/00000000000000000007");
        assert_eq!(number_of(&names.log(7)), Some(7));
        assert_eq!(
            ObjectNames::new(Path::default()).object("telemetry/x").as_ref(),
            "telemetry/x"
        );
    }
}
