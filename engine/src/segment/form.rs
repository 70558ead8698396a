//! What data files are made of, and the ends of their names.
//!
//! A file keeps its form from its first row to its end; a store may have files of several forms, as its settings changed.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Compression, Format};

/// The form of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
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

impl Form {
    const ALL: [Self; 4] = [Self::Parquet, Self::Json, Self::JsonZstd, Self::JsonSnappy];

    /// The form of new files.
    pub(crate) const fn of(format: Format, compression: Compression) -> Self {
        match (format, compression) {
            (Format::Parquet, _) => Self::Parquet,
            (Format::Json, Compression::None) => Self::Json,
            (Format::Json, Compression::Zstd) => Self::JsonZstd,
            (Format::Json, Compression::Snappy) => Self::JsonSnappy,
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
        for form in Form::ALL {
            let name = format!("logs_001.{}", form.ending());
            assert_eq!(Form::split(&name), Some(("logs_001", form)));
        }
        assert_eq!(Form::split("logs_001.twin"), None);
        assert_eq!(Form::split("parquet"), None);
    }
}
