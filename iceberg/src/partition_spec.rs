//! Partition specs: hours and days of `ts`, as the tree of data files has them.
//!
//! | spec | field | transform |
//! |---|---|---|
//! | 0 | 1000 `ts_hour` | `hour(ts)` |
//! | 1 | 1001 `ts_day` | `day(ts)` |
//!
//! Every table has both: a file belongs to the one of its own folder's length, whatever the settings say today.
//!
//! # Invariants
//!
//! - The value of a file is the number of its folder's hour or day since the epoch, which is what the transform gives for its rows.

use engine::PartitionBy;
use serde_json::{Value, json};

/// The number of the column `ts`, the first of every table.
pub(crate) const TS_COLUMN_ID: i32 = 1;
/// The greatest number of a partition field.
pub(crate) const LAST_PARTITION_ID: i32 = 1001;

/// The length of a partition, which is a partition spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PartitionUnit {
    /// An hour, UTC.
    Hour,
    /// A day, UTC.
    Day,
}

impl PartitionUnit {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Hour, Self::Day];

    /// The number of its spec.
    pub(crate) const fn spec_id(self) -> i32 {
        match self {
            Self::Hour => 0,
            Self::Day => 1,
        }
    }

    /// The number of its field.
    pub(crate) const fn field_id(self) -> i32 {
        match self {
            Self::Hour => 1000,
            Self::Day => LAST_PARTITION_ID,
        }
    }

    /// The name of its field.
    pub(crate) const fn field_name(self) -> &'static str {
        match self {
            Self::Hour => "ts_hour",
            Self::Day => "ts_day",
        }
    }

    const fn transform(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
        }
    }

    /// The unit whose spec has this number.
    pub(crate) fn of_spec(spec_id: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.spec_id() == spec_id)
    }

    /// The day, since the epoch, in which a partition lies.
    pub(crate) const fn day_of(self, partition: i32) -> i32 {
        match self {
            Self::Hour => partition.div_euclid(24),
            Self::Day => partition,
        }
    }

    /// The fields of its spec, as they stand in the header of a manifest.
    pub(crate) fn fields_json(self) -> Value {
        json!([{
            "name": self.field_name(),
            "transform": self.transform(),
            "source-id": TS_COLUMN_ID,
            "field-id": self.field_id(),
        }])
    }
}

impl From<PartitionBy> for PartitionUnit {
    fn from(by: PartitionBy) -> Self {
        match by {
            PartitionBy::Hour => Self::Hour,
            PartitionBy::Day => Self::Day,
        }
    }
}

/// Both specs, as they stand in table metadata.
pub(crate) fn specs_json() -> Vec<Value> {
    let spec = |unit: PartitionUnit| json!({"spec-id": unit.spec_id(), "fields": unit.fields_json()});
    PartitionUnit::ALL.map(spec).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_what_iceberg_calls_hour_and_day() {
        assert_eq!(
            specs_json(),
            [
                json!({"spec-id": 0, "fields": [{"name": "ts_hour", "transform": "hour", "source-id": 1, "field-id": 1000}]}),
                json!({"spec-id": 1, "fields": [{"name": "ts_day", "transform": "day", "source-id": 1, "field-id": 1001}]}),
            ]
        );
        for unit in PartitionUnit::ALL {
            assert_eq!(PartitionUnit::of_spec(unit.spec_id()), Some(unit));
        }
        assert_eq!(PartitionUnit::of_spec(2), None);
        assert_eq!(PartitionUnit::from(PartitionBy::Day), PartitionUnit::Day);
        assert_eq!(PartitionUnit::from(PartitionBy::Hour), PartitionUnit::Hour);
    }

    #[test]
    fn an_hour_lies_in_its_day_before_the_epoch_too() {
        assert_eq!(PartitionUnit::Hour.day_of(47), 1);
        assert_eq!(PartitionUnit::Hour.day_of(-1), -1);
        assert_eq!(PartitionUnit::Day.day_of(-1), -1);
    }
}
