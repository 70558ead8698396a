//! Values with their units, for people: sizes, shares, durations, ages, and numbers without digits that say nothing.
//!
//! The unit of a value is known by its name (`waiting_bytes`, `duration_ms`), or the metric says it (the label `otel.unit`, as
//! UCUM writes units).
//!
//! # Not here
//!
//! What programs get: those values are as the Mixer wrote them.

use model::{ByteSize, Timestamp};
use serde_json::Number;

/// The key of the unit that goes with a bucket's row, and is no column of it.
pub(crate) const UNIT: &str = "unit";
/// The longest unit that is shown behind a value.
const LONGEST_UNIT: usize = 12;
/// Clocks that differ less show no time as one to come.
const CLOSE: std::time::Duration = std::time::Duration::from_secs(5);

/// A number under the name of its column or fact.
pub(crate) fn named(name: &str, number: &Number) -> String {
    match name {
        "cpu.usage" => share(number),
        "clock.offset" => format!("{} s", rounded(number)),
        "bytes" | "memory.total" | "memory.used" | "disk.total" | "disk.free" => size(number),
        _ if name.ends_with("_bytes") || name.ends_with(".bytes") => size(number),
        _ => rounded(number),
    }
}

/// A metric's value in its unit.
pub(crate) fn measured(metric: &str, unit: &str, number: &Number) -> String {
    let is_shown = unit.len() <= LONGEST_UNIT && unit.bytes().all(|byte| byte.is_ascii_graphic());
    match unit {
        "By" => size(number),
        "1" if metric.ends_with("utilization") => share(number),
        "" | "1" => rounded(number),
        _ if !is_shown => rounded(number),
        _ => match unit.strip_suffix("/s") {
            Some(counted) => format!("{}/s", measured(metric, counted, number)),
            // What is counted, such as {packet}.
            None if unit.starts_with('{') => rounded(number),
            None => format!("{} {unit}", rounded(number)),
        },
    }
}

/// How long ago it was; `None` if it is yet to come.
pub(crate) fn age(at: Timestamp, now: Timestamp) -> Option<String> {
    if at.since(now) > CLOSE {
        return None;
    }
    let seconds = now.since(at).as_secs();
    Some(match seconds {
        0 => "now".to_owned(),
        1..120 => format!("{seconds} s ago"),
        120..7_200 => format!("{} min ago", seconds / 60),
        7_200..172_800 => format!("{} h ago", seconds / 3_600),
        _ => format!("{} d ago", seconds / 86_400),
    })
}

fn size(number: &Number) -> String {
    let whole = number
        .as_u64()
        .or_else(|| format!("{:.0}", number.as_f64()?).parse().ok());
    whole.map_or_else(|| rounded(number), |bytes| ByteSize::bytes(bytes).to_string())
}

fn share(number: &Number) -> String {
    let part = number.as_f64().unwrap_or_default();
    format!("{:.1} %", part * 100.0)
}

/// Three decimals of a number, or four digits of a small one; whole numbers and short ones as they are.
fn rounded(number: &Number) -> String {
    let text = number.to_string();
    let decimals = text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    match number.as_f64() {
        Some(value) if decimals > 3 => {
            let magnitude = value.abs();
            if magnitude >= 1.0 {
                let text = format!("{value:.3}");
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else if magnitude >= 1e-6 {
                let short = format!("{value:.3e}").parse::<f64>();
                short.unwrap_or(value).to_string()
            } else {
                format!("{value:.3e}")
            }
        }
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn number(value: &serde_json::Value) -> Number {
        value.as_number().cloned().unwrap_or_else(|| Number::from(0))
    }

    #[test]
    fn values_have_the_units_that_their_names_or_metrics_say() {
        for (name, value, shown) in [
            ("bytes", json!(0), "0 B"),
            ("waiting_bytes", json!(6_758), "6.6 KiB"),
            ("disk.free", json!(58_627_000_000_u64), "54.6 GiB"),
            ("cpu.usage", json!(0.993_493_493_493_493_5), "99.3 %"),
            ("clock.offset", json!(86_400), "86400 s"),
            ("rows", json!(21_228), "21228"),
            ("p50_ms", json!(61.166_668), "61.167"),
            ("p50_ms", json!(0.007_789_612), "0.00779"),
            ("n", json!(2.0), "2.0"),
            ("n", json!(0.999_999_9), "1"),
            ("n", json!(1.234_567_8e-9), "1.235e-9"),
            ("n", json!(-1_234.567_89), "-1234.568"),
        ] {
            assert_eq!(named(name, &number(&value)), shown, "{name} {value}");
        }
        for (metric, unit, value, shown) in [
            ("system.memory.usage", "By", json!(4_971_347_968.0), "4.6 GiB"),
            ("system.memory.usage", "By", json!(-5.0), "-5.0"),
            ("system.cpu.utilization", "1", json!(0.119_791_666), "12.0 %"),
            ("load", "1", json!(2.63), "2.63"),
            ("system.cpu.time", "s", json!(12.25), "12.25 s"),
            ("packets", "{packet}", json!(3.0), "3.0"),
            ("packets", "{packet}/s", json!(3.0), "3.0/s"),
            ("system.network.io", "By/s", json!(6_758), "6.6 KiB/s"),
            ("none", "/s", json!(0.5), "0.5/s"),
            ("hostile", "\u{1b}[2J", json!(3), "3"),
            ("none", "", json!(3), "3"),
        ] {
            assert_eq!(
                measured(metric, unit, &number(&value)),
                shown,
                "{metric} {unit} {value}"
            );
        }
    }

    #[test]
    fn ages_are_in_the_unit_that_people_would_say() {
        let now = Timestamp::from_micros(1_790_000_000_000_000);
        let ago = |seconds: u64| age(now.minus(Duration::from_secs(seconds)), now).unwrap_or_default();
        for (seconds, shown) in [
            (0, "now"),
            (3, "3 s ago"),
            (119, "119 s ago"),
            (120, "2 min ago"),
            (7_199, "119 min ago"),
            (7_200, "2 h ago"),
            (172_800, "2 d ago"),
        ] {
            assert_eq!(ago(seconds), shown);
        }
        assert_eq!(age(now.plus(Duration::from_secs(5)), now).as_deref(), Some("now"));
        assert_eq!(age(now.plus(Duration::from_secs(6)), now), None);
    }
}
