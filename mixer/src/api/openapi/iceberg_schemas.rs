//! Schemas of answers of Iceberg's REST catalogue, and of what is told about it.

use serde_json::{Value, json};

use super::schemas::{count, list, object, one, or_null, text, time};

pub(super) fn all() -> Value {
    let namespace = || list(text());
    let refusal = object(
        json!({ "message": text(), "type": text(), "code": { "type": "integer", "minimum": 400, "maximum": 599 } }),
    );
    let metadata = json!({ "description": "Table metadata of Iceberg, format version 2.", "type": "object" });
    let settings = || json!({ "type": "object", "additionalProperties": text() });
    json!({
        "IcebergError": object(json!({ "error": refusal })),
        "IcebergConfig": object(json!({ "defaults": settings(), "overrides": settings(), "endpoints": list(text()) })),
        "IcebergNamespaces": object(json!({ "namespaces": list(namespace()) })),
        "IcebergNamespace": object(json!({ "namespace": namespace(), "properties": settings() })),
        "IcebergTables": object(json!({ "identifiers": list(object(json!({ "namespace": namespace(), "name": text() }))) })),
        "IcebergTable": object(json!({ "metadata-location": text(), "metadata": metadata, "config": settings() })),
        "Catalog": catalog(),
    })
}

fn catalog() -> Value {
    let table = object(json!({
        "table": text(), "version": count(), "snapshot_id": or_null(text()), "published": time(), "files": count(), "rows": count(),
        "bytes": count(), "snapshots": count(), "latest": or_null(time()), "latest_stored": or_null(time()), "waiting_rows": count(),
        "lag_seconds": count(), "left_out": list(text()),
    }));
    one(&object(json!({
        "namespace": text(), "publishes": { "type": "boolean" }, "reason": or_null(text()), "trouble": or_null(text()),
        "tables": list(table),
    })))
}
