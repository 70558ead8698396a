//! Clients of Elasticsearch and Loki: what applications index and log.

use harness::{Failure, TestMixer};

use super::sender_table::SenderTable;
use super::{MISSING, RECORDS, compare_logs, file, installed, node, pinned, python, said};

/// Clients of two versions of Elasticsearch for Python, which both ask the server for its version and that it is one.
pub(super) fn elasticsearch(table: &mut SenderTable) -> Result<(), Failure> {
    let mixer = TestMixer::with(&[], &[])?;
    let url = format!("{}/elasticsearch", mixer.api.base);
    let older = installed("senders-elasticsearch8")?.unwrap_or_default();
    let older = older.display().to_string();
    for (list, module, libraries) in [
        ("requirements.txt", "elasticsearch", ""),
        ("requirements-elasticsearch8.txt", "elasticsearch8", older.as_str()),
    ] {
        let client = pinned(list, module)?;
        let Some(program) = python()? else {
            table.not_run(&client, MISSING);
            continue;
        };
        let args = [
            file("elasticsearch_bulk.py")?,
            module.to_owned(),
            url.clone(),
            RECORDS.to_owned(),
        ];
        let sent = said(
            &program,
            mixer.path(),
            &args.each_ref().map(String::as_str),
            &[("PYTHONPATH", libraries)],
        )?;
        compare_logs(table, (&mixer, module), &client, &sent)?;
    }
    let client = pinned("node/package.json", "@elastic/elasticsearch")?;
    match node()? {
        Some(folder) => {
            let script = file("elasticsearch.mjs")?;
            let sent = said("node".as_ref(), &folder, &[&script, &url, RECORDS], &[])?;
            compare_logs(table, (&mixer, "node-elasticsearch"), &client, &sent)?;
        }
        None => table.not_run(&client, MISSING),
    }
    Ok(())
}

/// Clients of Loki for Python (JSON) and JavaScript (protobuf and JSON).
pub(super) fn loki(table: &mut SenderTable) -> Result<(), Failure> {
    let mixer = TestMixer::with(&[], &[])?;
    let base = mixer.api.base.as_str();
    let client = pinned("requirements.txt", "python-logging-loki")?;
    match python()? {
        Some(program) => {
            let script = file("loki.py")?;
            let sent = said(&program, mixer.path(), &[&script, base, RECORDS], &[])?;
            compare_logs(table, (&mixer, "python-logging-loki"), &client, &sent)?;
        }
        None => table.not_run(&client, MISSING),
    }
    for (package, way, format) in [
        ("winston-loki", "winston-proto", "protobuf"),
        ("winston-loki", "winston-json", "JSON"),
        ("pino-loki", "pino", "JSON"),
    ] {
        let client = format!("{} in {format}", pinned("node/package.json", package)?);
        match node()? {
            Some(folder) => {
                let script = file("loki.mjs")?;
                let sent = said("node".as_ref(), &folder, &[&script, way, base, RECORDS], &[])?;
                compare_logs(table, (&mixer, way), &client, &sent)?;
            }
            None => table.not_run(&client, MISSING),
        }
    }
    Ok(())
}
