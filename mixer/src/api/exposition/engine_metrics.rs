//! Metrics of the store: the engine, the upkeep of its files, the object store.

use std::fmt;

use engine::{Engine, EngineStats, RemoteStats};
use prometheus_client::encoding::DescriptorEncoder;

use super::service_collector::{counter, gauge};

pub(super) fn encode(engine: &Engine, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    let stats = engine.stats();
    rows(&stats, to)?;
    files(&stats, to)?;
    upkeep(&stats, to)?;
    match &stats.remote {
        Some(remote) => object_store(remote, to),
        None => Ok(()),
    }
}

/// The log and rows in memory.
fn rows(stats: &EngineStats, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    for (name, help, value) in [
        ("engine_appended_rows", "Rows stored", stats.appended_rows),
        ("engine_appended_batches", "Batches stored", stats.appended_batches),
        (
            "engine_duplicate_batches",
            "Duplicate batches, stored before",
            stats.duplicates,
        ),
        (
            "engine_out_of_range_rows",
            "Rows stored under their arrival time because their own is out of range",
            stats.misdated_rows,
        ),
        ("engine_bus_regressions", "Reused bus sequences", stats.bus_regressions),
        ("engine_commits", "Group commits of the write-ahead log", stats.commits),
        ("engine_fsyncs", "Syncs of the write-ahead log", stats.fsyncs),
        ("engine_flushes", "Flushes of rows to open data files", stats.publishes),
        (
            "engine_flushed_rows",
            "Rows flushed to data files",
            stats.published_rows,
        ),
        ("engine_flush_failures", "Failed flushes", stats.publish_failures),
        ("engine_seals", "Data files sealed", stats.seals),
        (
            "engine_seal_failures",
            "Failed seals of data files",
            stats.seal_failures,
        ),
        (
            "engine_file_written_bytes",
            "Bytes written to data files",
            stats.file_bytes_written,
        ),
        (
            "engine_replayed_rows",
            "Rows replayed from the write-ahead log at start",
            stats.replayed_rows,
        ),
        (
            "engine_torn_bytes",
            "Torn bytes cut from the end of the write-ahead log at start",
            stats.torn_bytes,
        ),
    ] {
        counter(to, name, help, value)?;
    }
    for (name, help, value) in [
        ("engine_wal_bytes", "Size of the write-ahead log", stats.wal_bytes),
        (
            "engine_wal_max_bytes",
            "Maximum size of the write-ahead log",
            stats.wal_max_bytes,
        ),
        (
            "engine_memtable_max_bytes",
            "Maximum size of the memtables",
            stats.hot_max_bytes,
        ),
        (
            "engine_memtable_bytes",
            "Size of the memtables: rows in no data file yet",
            stats.hot_bytes,
        ),
        (
            "engine_inbound_bytes",
            "Memory of incoming bodies and messages and of their decoded rows",
            stats.inbound_bytes,
        ),
        (
            "engine_memtable_rows",
            "Rows in the memtables, in no data file yet",
            stats.hot_rows,
        ),
        (
            "engine_open_files",
            "Open data files, which still take rows",
            stats.open_segments,
        ),
        (
            "engine_late_partitions",
            "Partitions that stay in memory because too many data files are open",
            stats.late_partitions,
        ),
        (
            "tail_bytes",
            "Size of the live-tail buffer, partly shared with the memtables",
            stats.tail_bytes,
        ),
        ("tail_followers", "Live tails that are open", stats.followers),
    ] {
        gauge(to, name, help, value)?;
    }
    Ok(())
}

/// Data files and their indexes.
fn files(stats: &EngineStats, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    for (name, help, value) in [
        ("engine_files", "Data files", stats.files),
        ("engine_file_bytes", "Bytes of data files", stats.file_bytes),
        ("engine_file_rows", "Rows in data files", stats.file_rows),
        ("engine_index_files", "Data files that have an index", stats.index_files),
        ("engine_index_bytes", "Bytes of indexes", stats.index_bytes),
        (
            "engine_live_index_bytes",
            "Memory of the indexes of open files",
            stats.live_index_bytes,
        ),
        (
            "engine_index_waiting",
            "Sealed data files without an index yet",
            stats.index_waiting,
        ),
        (
            "engine_quarantined_files",
            "Damaged data files in quarantine",
            stats.quarantined,
        ),
        (
            "engine_wal_failed",
            "1 if the write-ahead log has failed",
            u64::from(stats.poisoned),
        ),
    ] {
        gauge(to, name, help, value)?;
    }
    Ok(())
}

/// What is done to data files when they are there.
fn upkeep(stats: &EngineStats, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    for (name, help, value) in [
        (
            "engine_scrubbed_files",
            "Sealed data files scrubbed without damage",
            stats.scrubbed_files,
        ),
        (
            "engine_scrubbed_bytes",
            "Bytes of data files scrubbed without damage",
            stats.scrubbed_bytes,
        ),
        ("engine_index_builds", "Indexes of data files built", stats.index_builds),
        (
            "engine_index_failures",
            "Data files that could not be indexed",
            stats.index_failures,
        ),
        (
            "engine_evicted_files",
            "Data files sealed early because rows came for too many partitions",
            stats.evicted_segments,
        ),
        (
            "engine_rewritten_files",
            "Small data files rewritten with late rows",
            stats.rewritten_files,
        ),
        (
            "engine_checked_bytes",
            "Bytes of data files verified by checksum when first opened",
            stats.checked_bytes,
        ),
        (
            "engine_rotation_checks",
            "Checks of the retention rules",
            stats.rotation_runs,
        ),
        (
            "engine_rotated_partitions",
            "Partitions removed by retention",
            stats.rotated_partitions,
        ),
        (
            "engine_rotated_files",
            "Data files removed by retention",
            stats.rotated_files,
        ),
        ("engine_rotated_rows", "Rows removed by retention", stats.rotated_rows),
        (
            "engine_rotated_bytes",
            "Bytes of data files removed by retention",
            stats.rotated_bytes,
        ),
    ] {
        counter(to, name, help, value)?;
    }
    Ok(())
}

fn object_store(stats: &RemoteStats, to: &mut DescriptorEncoder) -> Result<(), fmt::Error> {
    for (name, help, value) in [
        (
            "object_store_uploaded_files",
            "Data files uploaded",
            stats.uploaded_files,
        ),
        (
            "object_store_uploaded_bytes",
            "Bytes of data files uploaded",
            stats.uploaded_bytes,
        ),
        (
            "object_store_failures",
            "Failed attempts to upload or to follow",
            stats.upload_failures,
        ),
        (
            "object_store_records",
            "Records committed to the catalogue in the object store",
            stats.records,
        ),
        ("object_store_writes", "Write requests", stats.puts),
        ("object_store_reads", "Read requests", stats.gets),
        ("object_store_deletes", "Delete requests", stats.deletes),
        ("object_store_retries", "Retried requests", stats.retries),
        (
            "object_store_deleted_files",
            "Objects of expired files deleted",
            stats.deleted_files,
        ),
        (
            "object_store_evicted_files",
            "Local copies evicted for space",
            stats.evicted_files,
        ),
        (
            "object_store_fetched_files",
            "Data files fetched to be read",
            stats.fetched_files,
        ),
        (
            "object_store_fetched_bytes",
            "Bytes of data files fetched to be read",
            stats.fetched_bytes,
        ),
        (
            "object_store_fetch_failures",
            "Failed fetches of data files",
            stats.fetch_failures,
        ),
    ] {
        counter(to, name, help, value)?;
    }
    for (name, help, value) in [
        (
            "object_store_unuploaded_files",
            "Sealed data files not uploaded yet",
            stats.unuploaded_files,
        ),
        (
            "object_store_unuploaded_rows",
            "Rows on this machine only, lost if it is lost",
            stats.unuploaded_rows,
        ),
        (
            "object_store_unuploaded_bytes",
            "Bytes of those rows in the write-ahead log",
            stats.unuploaded_bytes,
        ),
        (
            "object_store_unuploaded_age_seconds",
            "Age of the oldest row that is on this machine only, in seconds",
            stats.unuploaded_age_seconds,
        ),
        (
            "object_store_record_bytes",
            "Size of the last record of the catalogue in the object store",
            stats.record_bytes,
        ),
        (
            "object_store_cached_files",
            "Uploaded files with a local copy",
            stats.cached_files,
        ),
        (
            "object_store_cached_bytes",
            "Bytes of uploaded files with a local copy",
            stats.cached_bytes,
        ),
    ] {
        gauge(to, name, help, value)?;
    }
    Ok(())
}
