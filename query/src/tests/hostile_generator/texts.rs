//! Hostile expressions: texts that grow, literals, numbers, times, patterns.

use super::{COUNTS, Draw};

const TIMES: &[&str] = &[
    "ts",
    "now()",
    "TIMESTAMP '0001-01-01'",
    "TIMESTAMP '9999-12-31 23:59:59.999999'",
    "'-infinity'::timestamp",
    "to_timestamp(1e15)",
    "TIMESTAMP '2026-11-21T12:00:00Z'",
    "to_timestamp_nanos(-9223372036854775807)",
    "make_date(2147483647, 12, 31)",
];
const SPANS: &[&str] = &[
    "INTERVAL '1 second'",
    "INTERVAL '-1 day'",
    "INTERVAL '0 seconds'",
    "INTERVAL '999999999 years'",
    "INTERVAL '1 nanosecond'",
    "INTERVAL '178956970 months'",
    "INTERVAL '1e300 days'",
    "INTERVAL '5 minutes'",
    "INTERVAL '1 month'",
];
const NUMBERS: &[&str] = &[
    "'NaN'::double precision",
    "'Infinity'::double precision",
    "-9223372036854775808",
    "9223372036854775807",
    "1e308",
    "-1e-320",
    "0.0",
    "1 / 0",
    "99999999999999999999999999999999999999",
    "0.1::decimal(38, 37)",
    "value",
    "duration_ms",
    "length(message)",
    "170",
    "CAST('1' AS smallint)",
    "18446744073709551615",
];
const PATTERNS: &[&str] = &[
    r"(a{1000}){1000}",
    r"((a{100}){100}){100}",
    r"(\w{1,50}){20}",
    r"(x+x+)+y",
    r".*.*.*.*=.*",
    r"(a|aa)+$",
    r"[^\x00-\x{10FFFF}]",
    r"(\pL|\pN|\pS){200}",
    r"((((((((((.))))))))))",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
    r"\b\w+\b.*\d{3,}",
    r"(?i)(error|warn|fatal){1,100}",
    r".",
    r"",
    r"(?s:.)*?",
    r"[[:alpha:]]{900}",
    r"(",
    r"\\\\",
    r"(?P<n>a)(?P<n>b)",
    r".*[^A-Z]|[A-Z]",
];

fn number(draw: &mut Draw<'_>) -> String {
    draw.pick(NUMBERS).to_owned()
}

pub(super) fn grown(draw: &mut Draw<'_>) -> String {
    let (text, table) = (draw.grown(), draw.table());
    match draw.below(8) {
        0 | 1 => format!("SELECT length({text})"),
        2 => format!("SELECT {text} FROM {table}"),
        3 => format!("SELECT max(length({text})) FROM {table}"),
        4 => format!("SELECT count(*) FROM {table} WHERE {text} LIKE '%b%a%'"),
        5 => format!("SELECT {text} AS t, count(*) FROM {table} GROUP BY 1 ORDER BY 1"),
        6 => format!("SELECT ts FROM {table} ORDER BY {text} DESC"),
        _ => format!("SELECT CASE WHEN {text} = 'a' THEN {text} ELSE message END FROM logs"),
    }
}

/// Names of inner queries that are used twice.
pub(super) fn doubled(draw: &mut Draw<'_>) -> String {
    let first = draw.text();
    let from = draw.pick(&["", " FROM logs", " FROM logs a, logs b"]);
    let first = first.replace("message", if from.contains("b") { "a.message" } else { "message" });
    let step = draw.pick(&[
        "v || v",
        "concat(v, v, v)",
        "replace(v, 'a', v)",
        "concat_ws(v, v, v)",
        "ARRAY[v, v]::text",
        "v || ',' || v",
    ]);
    let links = draw.size(24);
    let links: String = (1..=links)
        .map(|n| format!(", t{n} AS (SELECT {step} AS v FROM t{})", n - 1))
        .collect();
    let last = links.matches(" AS (").count();
    format!("WITH t0 AS (SELECT {first} AS v{from}){links} SELECT length(v) FROM t{last}")
}

pub(super) fn nested(draw: &mut Draw<'_>) -> String {
    let depth = draw.size(300);
    let (open, close) = draw.pick(&[
        ("(", ")"),
        ("CASE WHEN true THEN ", " END"),
        ("ARRAY[", "]"),
        ("lower(", ")"),
        ("NOT (", ")"),
        ("- ", ""),
        ("(SELECT ", ")"),
        ("coalesce(NULL, ", ")"),
        ("1 + (", ")"),
        ("CAST(", " AS text)"),
        ("struct(", ")"),
        ("EXISTS (SELECT ", ")"),
        ("'a' || (", ")"),
        ("CASE message WHEN 'a' THEN 1 WHEN 'b' THEN ", " ELSE 2 END"),
        ("array_append(NULL, ", ")"),
        ("1 IN (2, ", ")"),
    ]);
    format!(
        "SELECT {}1{} FROM {}",
        open.repeat(depth),
        close.repeat(depth),
        draw.table()
    )
}

pub(super) fn literals(draw: &mut Draw<'_>) -> String {
    let (huge, table) = (draw.literal(60_000), draw.table());
    match draw.below(7) {
        0 => format!("SELECT {huge}, ts FROM {table} ORDER BY ts"),
        1 => format!("SELECT coalesce(NULLIF(level, level), {huge}) FROM logs"),
        2 => format!(
            "SELECT count(*) FROM {table} WHERE ts::text IN ({})",
            draw.some(6_000, ",", |draw| format!("'{}'", draw.below(9)))
        ),
        3 => format!(
            "SELECT * FROM (VALUES {}) v",
            draw.some(3_000, ",", |draw| format!("({}, 'a')", draw.below(9)))
        ),
        4 => format!(
            "SELECT CASE {} END FROM logs",
            draw.some(900, " ", |draw| format!(
                "WHEN message = '{}' THEN message",
                draw.below(99)
            ))
        ),
        5 => format!("SELECT string_agg(message, {huge}) FROM logs"),
        _ => format!("SELECT greatest(message, {huge}), least({huge}, level) FROM logs"),
    }
    .chars()
    .take(65_000)
    .collect()
}

pub(super) fn columns(draw: &mut Draw<'_>) -> String {
    let made = draw.pick(&[
        "message || '{}'",
        "upper(message || '{}')",
        "ts + INTERVAL '{} s'",
        "attributes->>'k{}'",
        "length(message) + {}",
        "message",
    ]);
    let count = draw.size(1_500);
    let all: Vec<String> = (0..count).map(|n| made.replace("{}", &n.to_string())).collect();
    let all = all.join(", ");
    match draw.below(4) {
        0 => format!("SELECT length(concat({all})) FROM logs"),
        1 => format!("SELECT DISTINCT {all} FROM logs"),
        2 => format!(
            "SELECT {all} FROM logs ORDER BY {}",
            (1..=count.min(200))
                .map(|n| n.to_string())
                .collect::<Vec<_>>()
                .join(", ")
        ),
        _ => format!("SELECT {all} FROM logs"),
    }
}

pub(super) fn matched(draw: &mut Draw<'_>) -> String {
    let (pattern, text) = (draw.pick(PATTERNS), draw.grown());
    match draw.below(9) {
        0 => format!("SELECT count(*) FROM logs WHERE {text} ~ '{pattern}'"),
        1 => format!("SELECT regexp_count({text}, '{pattern}') FROM logs"),
        2 => format!("SELECT regexp_replace({text}, '{pattern}', '[$0$0]', 'g') FROM logs"),
        3 => format!("SELECT regexp_match({text}, '{pattern}') FROM logs"),
        4 => {
            let many = draw.some(1_500, " OR ", |draw| {
                format!(r"message ~* '\w{{{}}}x'", draw.below(200))
            });
            format!("SELECT count(*) FROM logs WHERE {many}")
        }
        5 => r"SELECT count(*) FROM logs WHERE message ~ ('(\w{50}){2}' || span_id::text || uuid_text(flux_id))"
            .to_owned(),
        6 => r"SELECT sum(regexp_count(message, '(\w{40}){3}' || ts::text)) FROM logs".to_owned(),
        7 => format!(
            "SELECT count(*) FROM logs WHERE {text} SIMILAR TO '%({}|b)*_'",
            "a%".repeat(draw.size(200))
        ),
        _ => format!(
            "SELECT count(*) FROM logs WHERE message LIKE '{}' OR {text} ILIKE '%_%_%'",
            "%a_".repeat(draw.size(2_000))
        ),
    }
}

pub(super) fn bytes(draw: &mut Draw<'_>) -> String {
    let value = draw.pick(&[
        "X'00ff'",
        "E'\\xff\\xfe'",
        "decode('fffe', 'hex')",
        "decode('zz', 'hex')",
        "'\u{0}'",
        "U&'\\D83D'",
        "chr(1114112)",
        "chr(0)",
        "B'1010'",
        "decode('////', 'base64')",
        "'\u{202e}'",
        "$$a$$",
        "sha256(message)",
        "flux_id",
        "digest(message, 'nonsense')",
    ]);
    match draw.below(4) {
        0 => format!("SELECT {value}::text, {value}::bytea, length({value}::text) FROM logs"),
        1 => format!("SELECT convert_from({value}, 'UTF8'), encode({value}, 'base64') FROM logs"),
        2 => format!("SELECT * FROM logs WHERE flux_id = {value} OR message = {value}::text"),
        _ => format!("SELECT {value} || {value} || message FROM logs"),
    }
}

pub(super) fn numbers(draw: &mut Draw<'_>) -> String {
    let table = draw.pick(&["metrics", "traces", "logs"]);
    let first = number(draw);
    let mut made = first;
    for _ in 0..draw.size(40) {
        let other = number(draw);
        made = match draw.below(9) {
            0 => format!("({made} + {other})"),
            1 => format!("({made} * {other})"),
            2 => format!("({made} / {other})"),
            3 => format!("power({made}, {other})"),
            4 => format!(
                "{made}::{}",
                draw.pick(&[
                    "int",
                    "bigint",
                    "text",
                    "double precision",
                    "decimal(38, 10)",
                    "smallint",
                    "boolean",
                    "timestamp",
                    "real"
                ])
            ),
            5 => format!(
                "{}({made})",
                draw.pick(&[
                    "factorial",
                    "sqrt",
                    "ln",
                    "exp",
                    "abs",
                    "chr",
                    "to_hex",
                    "round",
                    "gcd",
                    "cot"
                ])
            ),
            6 => format!("round({made}, {})", draw.pick(COUNTS)),
            7 => format!("nullif({made}, {other})"),
            _ => format!("({made} % {other})"),
        };
    }
    match draw.below(4) {
        0 => format!("SELECT sum({made}), avg({made}), stddev({made}) FROM {table}"),
        1 => format!("SELECT {made} AS n, count(*) FROM {table} GROUP BY 1 ORDER BY 1 DESC NULLS FIRST"),
        2 => format!(
            "SELECT approx_percentile_cont({}) WITHIN GROUP (ORDER BY {made}) FROM {table}",
            number(draw)
        ),
        _ => format!("SELECT {made} FROM {table}"),
    }
}

pub(super) fn absurd(draw: &mut Draw<'_>) -> String {
    let (at, span, count, other) = (draw.pick(TIMES), draw.pick(SPANS), draw.pick(COUNTS), draw.pick(TIMES));
    match draw.below(12) {
        0 => format!("SELECT time_bucket({span}, {at}), count(*) FROM logs GROUP BY 1"),
        1 => format!("SELECT date_bin({span}, {at}, {other}) FROM logs"),
        2 => format!("SELECT {at} + {span} + {span} FROM logs"),
        3 => format!("SELECT {at} - {other}, extract(epoch FROM {at}) FROM logs"),
        4 => format!(
            "SELECT * FROM logs ORDER BY {at} LIMIT {count} OFFSET {}",
            draw.pick(COUNTS)
        ),
        5 => format!(
            "SELECT date_trunc('{}', {at}) FROM logs",
            draw.pick(&["century", "week", "microsecond", "nonsense", ""])
        ),
        6 => format!("SELECT * FROM logs WHERE ts BETWEEN {at} AND {other}"),
        7 => format!(
            "SELECT to_char({at}, '{}') FROM logs",
            draw.pick(&["YYYY-MM-DD", "%Y%c%+%%%Q", "FMMonth \"x", "HH24:MI:SS.US", "%"])
        ),
        8 => format!("SELECT generate_series({at}, {other}, {span})"),
        9 => format!("SELECT * FROM generate_series(1, {count})"),
        10 => format!(
            "SELECT {at} AT TIME ZONE '{}' FROM logs",
            draw.pick(&["Europe/Berlin", "+99:99", "nowhere", ""])
        ),
        _ => format!("SELECT {span} * {count}, {span} / 0, justify_days({span})"),
    }
}
