//! Metrics of the Iceberg catalogue, of a Mixer that publishes it.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::iceberg_catalog::{CatalogService, CatalogTableView};

/// How publication goes, and how far behind each table is.
pub(super) fn encode(catalog: &CatalogService, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let Some((failures, tables)) = catalog.publication() else {
        return Ok(());
    };
    let (counter, gauge) = (MetricType::Counter, MetricType::Gauge);
    let help = "Failed publications of the Iceberg catalogue, clean-ups included";
    ConstCounter::new(failures).encode(to.encode_descriptor("iceberg_publish_failures", help, None, counter)?)?;
    let count = ConstGauge::new(i64::try_from(tables.len()).unwrap_or(i64::MAX));
    count.encode(to.encode_descriptor("iceberg_tables", "Tables of the Iceberg catalogue", None, gauge)?)?;
    for (name, help, of) in [
        (
            "iceberg_version",
            "Version of a table's metadata in the Iceberg catalogue",
            (|table| table.version) as fn(&CatalogTableView) -> u64,
        ),
        (
            "iceberg_lag_seconds",
            "How much older a table's newest row in the Iceberg catalogue is than its newest stored row, in seconds",
            |table| table.lag_seconds,
        ),
    ] {
        let mut family = to.encode_descriptor(name, help, None, gauge)?;
        for table in &tables {
            let value = ConstGauge::new(i64::try_from(of(table)).unwrap_or(i64::MAX));
            value.encode(family.encode_family(&[("table", table.table.as_str())])?)?;
        }
    }
    Ok(())
}
