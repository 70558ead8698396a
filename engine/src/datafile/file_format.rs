//! The formats of data files, and their file name extensions.
//!
//! A file keeps its form from its first row to its end; a store may have files of several forms, as its settings changed.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{CompressionCodec, StorageFormat};

/// The form of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FileFormat {
    /// Parquet, whatever its page compression.
    #[default]
    Parquet,
    /// One JSON object per line.
    Json,
    /// The same, in zstd frames.
    JsonZstd,
    /// The same, in snappy frames.
    JsonSnappy,
}

impl FileFormat {
    const ALL: [Self; 4] = [Self::Parquet, Self::Json, Self::JsonZstd, Self::JsonSnappy];

    /// The form of new files.
    pub(crate) const fn of(format: StorageFormat, compression: CompressionCodec) -> Self {
        match (format, compression) {
            (StorageFormat::Parquet, _) => Self::Parquet,
            (StorageFormat::Json, CompressionCodec::None) => Self::Json,
            (StorageFormat::Json, CompressionCodec::Zstd) => Self::JsonZstd,
            (StorageFormat::Json, CompressionCodec::Snappy) => Self::JsonSnappy,
        }
    }

    /// How names of such files end, without the first dot.
    pub(crate) const fn ending(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Json => "json",
            Self::JsonZstd => "json.zst",
            Self::JsonSnappy => "json.sz",
        }
    }

    /// The stem and the form of a file's name, if it is one that data files have.
    pub(crate) fn split(name: &str) -> Option<(&str, Self)> {
        Self::ALL.into_iter().find_map(|form| {
            let stem = name.strip_suffix(form.ending())?.strip_suffix('.')?;
            Some((stem, form))
        })
    }

    /// The form of a file by its name; Parquet if its name says nothing.
    pub(crate) fn of_path(path: &Path) -> Self {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(Self::split).map_or(Self::Parquet, |(_, form)| form)
    }

    /// Whether it is Parquet; else it is made of lines.
    pub(crate) const fn is_parquet(self) -> bool {
        matches!(self, Self::Parquet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_form() {
        for form in FileFormat::ALL {
            let name = format!("logs_001.{}", form.ending());
            assert_eq!(FileFormat::split(&name), Some(("logs_001", form)));
        }
        assert_eq!(FileFormat::split("logs_001.twin"), None);
        assert_eq!(FileFormat::split("parquet"), None);
    }
}
