//! The rotation part of `GET /api/v1/storage`: the rules, the totals, the last check and what it removed.

use engine::{Engine, RetentionRun};
use serde_json::{Value, json};

/// The removed partitions that are listed; totals count all.
const LISTED: usize = 100;

pub(crate) fn facts(engine: &Engine) -> Value {
    let (settings, stats, history) = (engine.settings(), engine.stats(), engine.rotation());
    json!({
        "policy": settings.rotation.policy,
        "max_age_days": settings.max_age.as_secs() / 86_400,
        "max_bytes": settings.rotation.max_size.get(),
        "check_interval_ms": u64::try_from(settings.rotation.check_interval.as_millis()).unwrap_or(u64::MAX),
        "checks": stats.rotation_checks,
        "removed_partitions": stats.rotated_partitions,
        "removed_files": stats.rotated_files,
        "removed_rows": stats.rotated_rows,
        "removed_bytes": stats.rotated_bytes,
        "last_check": history.last.as_ref().map(check),
        "last_removal": history.last_removal.as_ref().map(check),
    })
}

fn check(run: &RetentionRun) -> Value {
    json!({
        "at": run.at,
        "removed": run.removed.iter().take(LISTED).collect::<Vec<_>>(),
        "removed_partitions": run.removed.len(),
        "more": run.more,
        "held": run.held,
    })
}
