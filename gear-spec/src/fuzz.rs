//! Fuzz targets of configurations: scenarios with all types, expressions, modules, and the texts in them.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. How inputs are made (`model::fuzz`).

use model::fuzz::FuzzTarget;
use model::scenario;
use serde_json::Value;

use crate::expression::CelExpression;
use crate::framing::FrameDelimiter;
use crate::mqtt_out::check_topic;
use crate::timer::parse_cron;
use crate::wasm_module::check_module;
use crate::{manifests, parse_url};

/// The memory of a guest in the samples.
const MEMORY: u64 = 1 << 20;
const MODULE: &str = r#"(module (memory (export "memory") 1) (func (export "alloc") (param i32) (result i32) (local.get 0))
    (func (export "process") (param i32 i32)))"#;

/// The targets of this room.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    let mut scenarios = vec![
        include_str!("../../examples/flow.yaml"),
        include_str!("../../examples/webhook.yaml"),
        include_str!("../../examples/field-gateway/scenario.yaml"),
        include_str!("../../examples/order-flow/scenario.yaml"),
    ];
    scenarios.extend(manifests().iter().map(|manifest| manifest.example));
    let modules = [Some(MODULE.as_bytes().to_vec()), wat::parse_str(MODULE).ok()];
    vec![
        FuzzTarget::of_text("yaml.scenario", &scenarios, |yaml| {
            let is_stored = scenario::review(yaml, manifests()).is_ok();
            assert!(
                !is_stored || scenario::parse(yaml, manifests()).is_ok(),
                "what is stored can be run"
            );
            is_stored
        }),
        FuzzTarget::of_text("config.expression", &EXPRESSIONS, |text| {
            CelExpression::compile("where", text).is_ok()
        }),
        FuzzTarget::of_text("config.delimiter", &[r"\r\n", r"\x00\xff", "aab", r"\t\\\0"], |text| {
            let delimiter = serde_json::from_value::<FrameDelimiter>(Value::String(text.to_owned()));
            let bytes = delimiter.ok().and_then(|delimiter| delimiter.bytes().ok());
            // What stands for a byte has two digits, and no sign.
            assert!(
                bytes.is_none() || !text.replace(r"\\", "").contains(r"\x+"),
                "{text:?} is a delimiter"
            );
            bytes.is_some()
        }),
        FuzzTarget::of_text(
            "config.cron",
            &["*/5 * * * *", "0 30 4 1,15 * MON-FRI", "@daily", "0 0 29 2 *"],
            |text| parse_cron(text).is_ok(),
        ),
        FuzzTarget::of_text("config.topic", &["plant/7/temp", "a"], |text| {
            check_topic("topic", text).is_ok()
        }),
        FuzzTarget::of_text(
            "names.url",
            &["https://collector.example:8443/v1?x=1", "http://[::1]:80/"],
            |text| {
                parse_url(text).is_ok_and(|url| {
                    let host = url.authority().map(http::uri::Authority::as_str);
                    assert!(host.is_some_and(|host| !host.contains('@')), "{text:?} has a password");
                    true
                })
            },
        ),
        FuzzTarget::new("config.module", modules.into_iter().flatten().collect(), |bytes| {
            check_module(bytes, MEMORY).is_ok()
        }),
    ]
}

const EXPRESSIONS: [&str; 5] = [
    "data.level == 'error' && meta['host'].startsWith(\"web-\")",
    "[1, 2.5, 3u].map(x, x * 2.0).exists(x, x > 4.0) || has(data.a.b)",
    "{'a': text.size() > 3 ? hops : -1, \"b\": ts - duration('1h')}",
    "string(int(data.n)) + \"\\u00e4\" + string(1.5e3)",
    "data.items.filter(i, i.price >= 10).size() % 2 == 0",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reader_of_configurations_panics() -> Result<(), model::fuzz::FuzzFailure> {
        model::fuzz::check_targets(&targets(), 500)
    }
}
