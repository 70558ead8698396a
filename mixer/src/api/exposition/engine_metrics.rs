//! The store's figures: the engine, the upkeep of its files, the object store.

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
            "Batches that had been stored before",
            stats.duplicates,
        ),
        (
            "engine_misdated_rows",
            "Rows put into the partition of their arrival",
            stats.misdated_rows,
        ),
        (
            "engine_bus_regressions",
            "Bus sequences that were used twice",
            stats.bus_regressions,
        ),
        ("engine_commits", "Commit groups of the log", stats.commits),
        ("engine_fsyncs", "Syncs of the log", stats.fsyncs),
        ("engine_publishes", "Appends to open data files", stats.publishes),
        (
            "engine_published_rows",
            "Rows written into data files",
            stats.published_rows,
        ),
        (
            "engine_publish_failures",
            "Publishing attempts that failed",
            stats.publish_failures,
        ),
        ("engine_seals", "Data files sealed", stats.seals),
        (
            "engine_seal_failures",
            "Sealing attempts that failed",
            stats.seal_failures,
        ),
        (
            "engine_file_written_bytes",
            "Bytes written into data files",
            stats.file_bytes_written,
        ),
        (
            "engine_replayed_rows",
            "Rows recovered from the log at start",
            stats.replayed_rows,
        ),
        (
            "engine_torn_bytes",
            "Torn bytes cut from the log's end at start",
            stats.torn_bytes,
        ),
    ] {
        counter(to, name, help, value)?;
    }
    for (name, help, value) in [
        ("engine_wal_bytes", "Bytes of the log in use", stats.wal_bytes),
        ("engine_wal_max_bytes", "The log's cap", stats.wal_max_bytes),
        ("engine_hot_max_bytes", "The cap of rows in memory", stats.hot_max_bytes),
        ("engine_hot_bytes", "Bytes of rows in no data file yet", stats.hot_bytes),
        (
            "engine_inbound_bytes",
            "Bytes of bodies and messages on their way to the store, and of what is decoded of them",
            stats.inbound_bytes,
        ),
        ("engine_hot_rows", "Rows in no data file yet", stats.hot_rows),
        (
            "engine_open_files",
            "Data files that still take rows",
            stats.open_segments,
        ),
        (
            "engine_late_partitions",
            "Partitions whose rows wait in memory because too many data files are open",
            stats.late_partitions,
        ),
        (
            "tail_bytes",
            "Bytes of rows kept for who follows the logs, in part those of hot rows",
            stats.tail_bytes,
        ),
        ("tail_followers", "Readers that follow the logs", stats.followers),
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
            "Bytes in memory of indexes of open files",
            stats.live_index_bytes,
        ),
        (
            "engine_index_waiting",
            "Sealed data files that wait for their index",
            stats.index_waiting,
        ),
        (
            "engine_quarantined_files",
            "Data files put aside as damaged",
            stats.quarantined,
        ),
        ("engine_poisoned", "1 if the log has failed", u64::from(stats.poisoned)),
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
            "Sealed data files read again and found as recorded",
            stats.scrubbed_files,
        ),
        ("engine_scrubbed_bytes", "Their bytes", stats.scrubbed_bytes),
        ("engine_index_builds", "Indexes of data files made", stats.index_builds),
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
            "Small data files written anew with late rows",
            stats.rewritten_files,
        ),
        (
            "engine_checked_bytes",
            "Bytes of data files compared with their checksum when first opened",
            stats.checked_bytes,
        ),
        (
            "engine_rotation_checks",
            "Checks of the rotation rules",
            stats.rotation_runs,
        ),
        (
            "engine_rotated_partitions",
            "Partitions removed for age or size",
            stats.rotated_partitions,
        ),
        (
            "engine_rotated_files",
            "Data files removed for age or size",
            stats.rotated_files,
        ),
        (
            "engine_rotated_rows",
            "Rows removed for age or size",
            stats.rotated_rows,
        ),
        (
            "engine_rotated_bytes",
            "Bytes of data files removed for age or size",
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
        ("object_store_uploaded_bytes", "Their bytes", stats.uploaded_bytes),
        (
            "object_store_failures",
            "Attempts to upload, or to follow, that failed",
            stats.upload_failures,
        ),
        (
            "object_store_records",
            "Records committed to its catalogue",
            stats.records,
        ),
        ("object_store_writes", "Requests that write", stats.puts),
        ("object_store_reads", "Requests that read", stats.gets),
        ("object_store_deletes", "Requests that delete", stats.deletes),
        ("object_store_retries", "Requests made again", stats.retries),
        (
            "object_store_deleted_files",
            "Objects of expired files deleted",
            stats.deleted_files,
        ),
        (
            "object_store_evicted_files",
            "Local copies removed for space",
            stats.evicted_files,
        ),
        (
            "object_store_fetched_files",
            "Data files brought back to be read",
            stats.fetched_files,
        ),
        ("object_store_fetched_bytes", "Their bytes", stats.fetched_bytes),
        (
            "object_store_fetch_failures",
            "Data files that could not be brought back",
            stats.fetch_failures,
        ),
    ] {
        counter(to, name, help, value)?;
    }
    for (name, help, value) in [
        (
            "object_store_unuploaded_files",
            "Sealed data files that wait to be uploaded",
            stats.unuploaded_files,
        ),
        (
            "object_store_unuploaded_rows",
            "Rows that a loss of this machine would take",
            stats.unuploaded_rows,
        ),
        (
            "object_store_unuploaded_bytes",
            "Their bytes in the log",
            stats.unuploaded_bytes,
        ),
        (
            "object_store_unuploaded_age_seconds",
            "Age of the oldest row that is on this machine only",
            stats.unuploaded_age_seconds,
        ),
        (
            "object_store_record_bytes",
            "Bytes of the last record of the object store's catalogue",
            stats.record_bytes,
        ),
        (
            "object_store_cached_files",
            "Uploaded files with a local copy",
            stats.cached_files,
        ),
        ("object_store_cached_bytes", "Their bytes", stats.cached_bytes),
    ] {
        gauge(to, name, help, value)?;
    }
    Ok(())
}
