//! Random statements over one table: lists, aggregates, windows; others are of several ([`super::combinations`]).

use harness::Random;

use super::combinations::{common, distinct, join, set, subquery};
use super::data::pick;
use super::expressions::{Kind, Scope, templates};

/// Log rows with what their attributes say.
const NOTED: &str = "(SELECT ts, entity_name, level, message, flux_id, (attributes->>'u')::bigint AS u, (attributes->>'n')::bigint AS n, \
    (attributes->>'i')::int AS i, (attributes->>'d')::float8 AS d, (attributes->>'b')::boolean AS b, attributes->>'w' AS w, \
    (attributes->>'m')::numeric(12,2) AS m, ts AT TIME ZONE 'UTC' AS st, ts::date AS dt FROM logs)";
const VALUES: &str = "(VALUES (1::bigint, 'a', 1.5::float8, true, 10.25::numeric(12,2), DATE '2026-01-31', TIMESTAMPTZ '2026-01-31 10:00:00Z', INTERVAL '1 day'), \
    (2, 'B', -0.5, false, -3.50::numeric(12,2), DATE '2024-02-29', TIMESTAMPTZ '2024-02-29 23:59:59.999999Z', INTERVAL '26 hours'), \
    (2, '', 7.25, NULL, 0::numeric(12,2), DATE '1999-12-31', TIMESTAMPTZ '1999-12-31 23:00:00Z', INTERVAL '-1 day'), \
    (NULL, 'c:\\temp', 1e20::float8, true, NULL, NULL, NULL, NULL), (-5, NULL, NULL, false, 99999.99::numeric(12,2), DATE '2026-12-31', \
    TIMESTAMPTZ '2026-11-25 20:00:00.5Z', INTERVAL '1 month'))";

/// Something to select from, with its columns.
pub(super) struct Source {
    pub(super) text: String,
    pub(super) scope: Scope,
    /// A column that tells rows apart, if one does.
    pub(super) key: Option<&'static str>,
}

/// One statement and how its answers are compared.
#[derive(Debug, Clone)]
pub(super) struct Question {
    pub(super) text: String,
    /// Whether the order of its rows is told.
    pub(super) is_ordered: bool,
}

const LOGS: &[(&str, Kind)] = &[
    ("ts", 'z'),
    ("entity_name", 't'),
    ("level", 't'),
    ("message", 't'),
    ("attributes->>'w'", 't'),
    ("(attributes->>'n')::bigint", 'i'),
];
const NOTES: &[(&str, Kind)] = &[
    ("ts", 'z'),
    ("entity_name", 't'),
    ("level", 't'),
    ("message", 't'),
    ("u", 'i'),
    ("n", 'i'),
    ("i", 'i'),
    ("d", 'f'),
    ("b", 'b'),
    ("w", 't'),
    ("m", 'n'),
    ("st", 's'),
    ("dt", 'd'),
];
const METRICS: &[(&str, Kind)] = &[
    ("ts", 'z'),
    ("name", 't'),
    ("entity_name", 't'),
    ("value", 'f'),
    ("labels->>'w'", 't'),
    ("(labels->>'n')::bigint", 'i'),
];
const TRACES: &[(&str, Kind)] = &[
    ("ts", 'z'),
    ("span_id", 't'),
    ("parent_span_id", 't'),
    ("span_name", 't'),
    ("status", 't'),
    ("duration_ms::float8", 'f'),
];
const LISTED: &[(&str, Kind)] = &[
    ("vi", 'i'),
    ("vt", 't'),
    ("vf", 'f'),
    ("vb", 'b'),
    ("vn", 'n'),
    ("vd", 'd'),
    ("vz", 'z'),
    ("vv", 'v'),
];

pub(super) fn source(random: &mut Random, alias: &str) -> Source {
    let (text, columns, key) = match random.below(8) {
        0 | 1 => ("logs".to_owned(), LOGS, None),
        2..=4 => (NOTED.to_owned(), NOTES, Some("u")),
        5 => ("metrics".to_owned(), METRICS, None),
        6 => ("traces".to_owned(), TRACES, None),
        _ => (
            format!("{VALUES} {alias}(vi, vt, vf, vb, vn, vd, vz, vv)"),
            LISTED,
            None,
        ),
    };
    let text = if text.ends_with(')') && text.starts_with("(VALUES") {
        text
    } else {
        format!("{text} {alias}")
    };
    let qualified = |name: &str| {
        if let Some(rest) = name.strip_prefix('(') {
            format!("({alias}.{rest}")
        } else {
            format!("{alias}.{name}")
        }
    };
    let columns = columns.iter().map(|(name, kind)| (qualified(name), *kind)).collect();
    Source {
        text,
        scope: Scope { columns },
        key,
    }
}

const KINDS: &[&str] = &["i", "f", "n", "t", "t", "b", "z", "s", "d", "v", "i"];

pub(super) fn kind(random: &mut Random) -> Kind {
    pick(random, KINDS).chars().next().unwrap_or('i')
}

impl Source {
    pub(super) fn any(&self, random: &mut Random, depth: u32) -> String {
        let kind = kind(random);
        self.scope.expression(random, kind, depth)
    }

    pub(super) fn condition(&self, random: &mut Random) -> String {
        match random.below(6) {
            0 => String::new(),
            _ => format!(" WHERE {}", self.scope.expression(random, 'b', 2)),
        }
    }
}

/// An order of all columns, in which equal rows are equal.
pub(super) fn total_order(random: &mut Random, columns: usize) -> String {
    let by: Vec<_> = (1..=columns)
        .map(|column| {
            format!(
                "{column}{}",
                pick(
                    random,
                    &["", " DESC", " NULLS FIRST", " DESC NULLS LAST", " ASC NULLS LAST"]
                )
            )
        })
        .collect();
    let limit = pick(
        random,
        &[
            "",
            "",
            " LIMIT 7",
            " LIMIT 20 OFFSET 3",
            " OFFSET 5",
            " LIMIT 0",
            " FETCH FIRST 5 ROWS ONLY",
            " OFFSET 2 ROWS FETCH NEXT 3 ROWS ONLY",
            " LIMIT ALL",
        ],
    );
    format!(" ORDER BY {}{limit}", by.join(", "))
}

/// A select list whose columns have names of their own.
pub(super) fn listed(items: &[String]) -> String {
    let items: Vec<_> = items
        .iter()
        .enumerate()
        .map(|(at, item)| format!("{item} AS c{at}"))
        .collect();
    items.join(", ")
}

/// A random statement.
pub(super) fn question(random: &mut Random) -> Question {
    match random.below(20) {
        0 | 1 => scalars(random),
        2..=6 => list(random),
        7..=10 => aggregate(random),
        11 | 12 => window(random),
        13 | 14 => join(random),
        15 | 16 => subquery(random),
        17 => common(random),
        18 => set(random),
        _ => distinct(random),
    }
}

pub(super) fn unordered(text: String) -> Question {
    Question {
        text,
        is_ordered: false,
    }
}

/// Constants, which are folded while a statement is planned.
fn scalars(random: &mut Random) -> Question {
    let scope = Scope { columns: Vec::new() };
    let items: Vec<_> = (0..3)
        .map(|_| {
            let kind = kind(random);
            scope.expression(random, kind, 2)
        })
        .collect();
    unordered(format!("SELECT {}", listed(&items)))
}

fn list(random: &mut Random) -> Question {
    let source = source(random, "t");
    let count = random.below(3) + 1;
    let items: Vec<_> = (0..count).map(|_| source.any(random, 2)).collect();
    let condition = source.condition(random);
    let order = if random.below(2) == 0 {
        total_order(random, items.len())
    } else {
        String::new()
    };
    Question {
        text: format!("SELECT {} FROM {}{condition}{order}", listed(&items), source.text),
        is_ordered: !order.is_empty(),
    }
}

pub(super) fn aggregated(random: &mut Random, source: &Source) -> String {
    let template = pick(random, templates('A'));
    let call = source.scope.filled(random, template, 1);
    if random.below(4) == 0
        && template.ends_with(')')
        && !template.contains("::")
        && !template.starts_with("coalesce")
        && !template.starts_with("round")
        && !template.contains(") -")
        && !template.contains(") +")
        && !template.contains(" / ")
    {
        let condition = source.scope.expression(random, 'b', 1);
        return format!("{call} FILTER (WHERE {condition})");
    }
    call
}

fn aggregate(random: &mut Random) -> Question {
    let source = source(random, "t");
    let groups = random.below(3);
    // PostgreSQL has its own ideas of groups by constants.
    let by: Vec<_> = (0..groups)
        .map(|_| {
            loop {
                let by = source.any(random, 1);
                if by.contains("t.") {
                    break by;
                }
            }
        })
        .collect();
    let calls: Vec<_> = (0..=random.below(2)).map(|_| aggregated(random, &source)).collect();
    let items: Vec<_> = by.iter().chain(&calls).cloned().collect();
    let condition = source.condition(random);
    let group = match (by.is_empty(), random.below(6)) {
        (true, _) => String::new(),
        (_, 0) => format!(" GROUP BY ROLLUP ({})", by.join(", ")),
        (_, 1) => format!(" GROUP BY CUBE ({})", by.join(", ")),
        (_, 2) => format!(" GROUP BY GROUPING SETS (({}), ())", by.join(", ")),
        (_, 3) => format!(" GROUP BY {}", by.join(", ")),
        (_, 4) => format!(
            " GROUP BY {}",
            (0..by.len()).map(|at| format!("c{at}")).collect::<Vec<_>>().join(", ")
        ),
        _ => format!(
            " GROUP BY {}",
            (1..=by.len()).map(|at| at.to_string()).collect::<Vec<_>>().join(", ")
        ),
    };
    let having = match random.below(5) {
        0 => " HAVING count(*) > 3".to_owned(),
        1 => format!(
            " HAVING {}",
            source.scope.filled(random, "sum({i}) > 0 OR count({t}) < 9", 1)
        ),
        _ => String::new(),
    };
    let order = if random.below(3) == 0 {
        total_order(random, items.len())
    } else {
        String::new()
    };
    Question {
        text: format!(
            "SELECT {} FROM {}{condition}{group}{having}{order}",
            listed(&items),
            source.text
        ),
        is_ordered: !order.is_empty(),
    }
}

fn window(random: &mut Random) -> Question {
    let source = loop {
        let source = source(random, "t");
        if source.key.is_some() {
            break source;
        }
    };
    let key = source.key.unwrap_or("u");
    let call = pick(random, templates('W'));
    let call = source.scope.filled(random, call, 1);
    let part = match random.below(3) {
        0 => String::new(),
        1 => "PARTITION BY level ".to_owned(),
        _ => format!("PARTITION BY {} ", source.any(random, 1)),
    };
    let order = format!("ORDER BY t.{key}{}", pick(random, &["", " DESC", " NULLS FIRST"]));
    let frame = format!(" {}", pick(random, templates('E')).trim_start_matches('-'));
    let condition = source.condition(random);
    let items = [
        format!("t.{key}"),
        if random.below(4) == 0 {
            format!("{call} OVER w")
        } else {
            format!("{call} OVER ({part}{order}{frame})")
        },
    ];
    let named = if items[1].ends_with("OVER w") {
        format!(" WINDOW w AS ({part}{order}{frame})")
    } else {
        String::new()
    };
    // Equal rows have one number each, in whichever order.
    unordered(format!(
        "SELECT {} FROM {}{condition}{named}",
        listed(&items),
        source.text
    ))
}
