//! Why the catalogue could not be read or written. Each error names the thing, and what becomes of it.
//!
//! # Not here
//!
//! HTTP statuses: the Mixer derives them from the variant.

use std::fmt::Display;

/// Why the catalogue could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IcebergError {
    /// The disk or the bucket did not do what it was asked. It may work a moment later.
    #[error("could not read or write the Iceberg catalogue: {0}")]
    Storage(#[from] engine::Error),
    /// The same, a moment ago: it was not tried again since.
    #[error("could not read the Iceberg catalogue: {0}")]
    Away(String),
    /// An object is not what this program wrote.
    #[error(
        "{object} of the Iceberg catalogue is damaged: {reason}; delete it, and the Mixer that writes the store makes it anew"
    )]
    Damaged {
        /// Which object.
        object: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Something has no place in the catalogue.
    #[error("{object} cannot be in the Iceberg catalogue: {reason}")]
    Refused {
        /// What.
        object: String,
        /// Why, and what would help.
        reason: String,
    },
}

impl IcebergError {
    /// An object that is not what this program wrote.
    pub(crate) fn damaged(object: impl Into<String>, reason: impl Display) -> Self {
        Self::Damaged {
            object: object.into(),
            reason: reason.to_string(),
        }
    }

    /// Something that has no place in the catalogue.
    pub(crate) fn refused(object: impl Into<String>, reason: impl Display) -> Self {
        Self::Refused {
            object: object.into(),
            reason: reason.to_string(),
        }
    }

    /// The same failure, for who asks while it is not tried again.
    pub(crate) fn again(&self) -> Self {
        match self {
            Self::Storage(error) => Self::Away(error.to_string()),
            Self::Away(reason) => Self::Away(reason.clone()),
            Self::Damaged { object, reason } => Self::damaged(object, reason),
            Self::Refused { object, reason } => Self::refused(object, reason),
        }
    }

    /// The same damage, of the object with this name: readers of bytes do not know it.
    pub(crate) fn of_object(self, name: &str) -> Self {
        match self {
            Self::Damaged { reason, .. } => Self::damaged(name, reason),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_names_the_object_and_keeps_its_reason() {
        let damage = IcebergError::damaged("a manifest", "it ends too early").of_object("logs/metadata/x-m.avro");
        assert_eq!(
            damage.to_string(),
            "logs/metadata/x-m.avro of the Iceberg catalogue is damaged: it ends too early; delete it, and the Mixer that \
             writes the store makes it anew"
        );
        let refused = IcebergError::refused("column a", "its type is unknown").of_object("x");
        assert_eq!(
            refused.to_string(),
            "column a cannot be in the Iceberg catalogue: its type is unknown"
        );
    }
}
