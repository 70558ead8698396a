//! What comes in over HTTP and gRPC, counted for `/metrics`.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

use crate::api::problem::IngestCounts;

/// What came in this way, for `/metrics`.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpIngestCounters {
    rows: Counter,
    rejected: Counter,
    bytes: Counter,
    duplicates: Counter,
}

impl HttpIngestCounters {
    pub(crate) fn register(&self, registry: &mut Registry) {
        for (name, help, counter) in [
            ("http_ingest_rows", "Rows stored over HTTP", &self.rows),
            ("http_ingest_rejected_rows", "Rows refused over HTTP", &self.rejected),
            ("http_ingest_bytes", "Uncompressed bytes of ingest bodies", &self.bytes),
            (
                "http_ingest_duplicates",
                "Duplicate ingest requests, stored before",
                &self.duplicates,
            ),
        ] {
            registry.register(name, help, counter.clone());
        }
    }
}

impl HttpIngestCounters {
    /// Counts the bytes of a body as it was meant.
    pub(super) fn count_bytes(&self, bytes: u64) {
        self.bytes.inc_by(bytes);
    }

    /// Counts what became of a body.
    pub(super) fn count(&self, stored: IngestCounts) {
        if stored.duplicate {
            self.duplicates.inc();
        } else {
            self.rows.inc_by(stored.stored);
        }
        self.rejected.inc_by(stored.rejected_total);
    }
}
