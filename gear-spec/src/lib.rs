//! Gear types as data: what each is called, its ports, its configuration and what is wrong with one.
//!
//! ```text
//! rack ──▶ gear_spec ◀── mixer, cli          who runs gears, and who only checks scenarios and shows types
//!              │
//!              ▼  manifest, configuration (one file for each type)
//!              expression, wasm_module, mqtt, framing, …        what configurations share
//! ```
//!
//! # Invariants
//!
//! - Nothing here opens a file or a connection, or spawns a task; what a gear needs at work (an interpreter of WebAssembly, TLS, a bus)
//!   is not linked.
//! - A configuration that is accepted here is the one that the Rack runs: it deserializes the same struct, and compiles the same expressions.
//!   Of WebAssembly the Rack may still refuse a valid module that its interpreter cannot translate: see [`wasm_module`].
//! - What a key asks of a Rack stands in its schema (`x-access`: `read`, `write`, `listen`, `connect`, `url`, `references`, `variables`,
//!   `unchecked`); `rack::policy` obeys it.
//! - Adding a type is one file here and one in `rack::gears`, of the same name, and that name in the one list, [`gear_types!`]: `rack` does
//!   not compile without its half.
//!
//! # Not here
//!
//! What a manifest is ([`model::gear_manifest`]), what gears do (`rack::gears`).

pub mod codec;
pub mod expression;
pub mod framing;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod http_address;
pub mod http_auth;
pub mod http_headers;
pub mod mqtt;
mod network_address;
mod poll_interval;
mod secret_references;
pub mod tls_options;
pub mod wasm_module;

pub use http_address::parse_url;

use model::gear_manifest::GearManifests;

/// Calls a macro with the names of all types; each is a module of this crate, and one of `rack::gears`.
#[macro_export]
macro_rules! gear_types {
    ($then:ident) => {
        $then! {
            batch
            codec_cbor
            codec_csv
            codec_json
            correlate
            deadband
            dedupe
            exec
            file_out
            file_tail
            filter
            generator
            host_metrics
            http_get
            http_in
            http_out
            journald_in
            log_sink
            map
            modbus
            mqtt_in
            mqtt_out
            otlp_in
            otlp_out
            prometheus_scrape
            route
            syslog_in
            tcp_in
            tcp_out
            throttle
            timer
            wasm
            window
        }
    };
}

macro_rules! types {
    ($($module:ident)*) => {
        $(pub mod $module;)*
        static MANIFESTS: &GearManifests = &[$(&$module::MANIFEST),*];
    };
}

gear_types!(types);

/// Every type that a scenario may name.
#[must_use]
pub fn manifests() -> &'static GearManifests {
    MANIFESTS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn every_type_has_an_example_that_names_it_and_a_schema_that_refuses_unknown_keys() {
        for manifest in manifests() {
            let kind = manifest.kind;
            let scenario = model::scenario::parse(manifest.example, manifests());
            let scenario = scenario.unwrap_or_else(|error| panic!("examples/gears/{kind}.yaml: {error}"));
            assert!(scenario.gears.iter().any(|gear| gear.kind == kind), "{kind}");
            assert!(!manifest.doc.is_empty() && !manifest.summary.is_empty(), "{kind}");
            let schema = (manifest.schema)();
            assert_eq!(schema["additionalProperties"], false, "{kind}: {schema}");
            for (key, property) in schema["properties"].as_object().into_iter().flatten() {
                assert!(
                    property["description"].is_string(),
                    "{kind}.{key} is not described: {property}"
                );
            }
        }
    }

    #[test]
    fn every_path_and_address_of_a_configuration_says_what_it_asks_for() {
        let mut fields = 0;
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().map(str::trim).collect();
            for (at, line) in lines.iter().enumerate() {
                let is_field = line.ends_with(',') && ["PathBuf", "SocketAddr"].iter().any(|kind| line.contains(kind));
                if !is_field || !line.contains(": ") || line.starts_with("//") {
                    continue;
                }
                fields += 1;
                let said = lines[..at]
                    .iter()
                    .rev()
                    .take_while(|line| line.starts_with('#') || line.starts_with("//"));
                let is_said = said.into_iter().any(|line| line.contains("\"x-access\""));
                assert!(
                    is_said,
                    "{}: `{line}` needs #[schemars(extend(\"x-access\" = \"read\"))]",
                    path.display()
                );
            }
        }
        assert!(fields > 10, "{fields}");
    }
}
