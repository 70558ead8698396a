//! Random statements over the tables: lists, aggregates, windows, joins, subqueries, common tables, sets.

use harness::Random;

use super::data::pick;
use super::expressions::{Kind, Scope};

/// Log rows with what their attributes say.
const NOTED: &str = "(SELECT ts, entity_name, level, message, flux_id, (attributes->>'u')::bigint AS u, (attributes->>'n')::bigint AS n, \
    (attributes->>'i')::int AS i, (attributes->>'d')::float8 AS d, (attributes->>'b')::boolean AS b, attributes->>'w' AS w, \
    (attributes->>'m')::numeric(12,2) AS m, ts AT TIME ZONE 'UTC' AS st, ts::date AS dt FROM logs)";
const VALUES: &str = "(VALUES (1::bigint, 'a', 1.5::float8, true, 10.25::numeric(12,2), DATE '2026-01-31', TIMESTAMPTZ '2026-01-31 10:00:00Z', INTERVAL '1 day'), \
    (2, 'B', -0.5, false, -3.50, DATE '2024-02-29', TIMESTAMPTZ '2024-02-29 23:59:59.999999Z', INTERVAL '26 hours'), \
    (2, '', 'NaN'::float8, NULL, 0, DATE '1999-12-31', TIMESTAMPTZ '1999-12-31 23:00:00Z', INTERVAL '-1 day'), \
    (NULL, 'c:\\temp', 'Infinity'::float8, true, NULL, NULL, NULL, NULL), (-5, NULL, NULL, false, 99999.99, DATE '2026-12-31', \
    TIMESTAMPTZ '2026-11-25 20:00:00.5Z', INTERVAL '1 month'))";

/// Something to select from, with its columns.
struct Source {
    text: String,
    scope: Scope,
    /// A column that tells rows apart, if one does.
    key: Option<&'static str>,
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

fn source(random: &mut Random, alias: &str) -> Source {
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

fn kind(random: &mut Random) -> Kind {
    pick(random, KINDS).chars().next().unwrap_or('i')
}

impl Source {
    fn any(&self, random: &mut Random, depth: u32) -> String {
        let kind = kind(random);
        self.scope.expression(random, kind, depth)
    }

    fn condition(&self, random: &mut Random) -> String {
        match random.below(6) {
            0 => String::new(),
            _ => format!(" WHERE {}", self.scope.expression(random, 'b', 2)),
        }
    }
}

/// An order of all columns, in which equal rows are equal.
fn total_order(random: &mut Random, columns: usize) -> String {
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
fn listed(items: &[String]) -> String {
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

fn unordered(text: String) -> Question {
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

const AGGREGATES: &[&str] = &[
    "count(*)",
    "count({i})",
    "count({t})",
    "count(DISTINCT {t})",
    "count(DISTINCT {i})",
    "count(DISTINCT {f})",
    "sum({i})",
    "sum({f})",
    "sum({n})",
    "sum(DISTINCT {i})",
    "avg({i})",
    "avg({f})",
    "avg({n})",
    "min({i})",
    "max({f})",
    "min({t})",
    "max({t})",
    "min({z})",
    "max({d})",
    "max({n})",
    "min({v})",
    "max({z}) - min({z})",
    "bool_and({b})",
    "bool_or({b})",
    "every({b})",
    "string_agg({t}, ',' ORDER BY {=})",
    "string_agg(DISTINCT {t}, ';' ORDER BY {=})",
    "stddev({f})",
    "var_pop({i})",
    "var_samp({f})",
    "stddev_pop({n})",
    "bit_and({i})",
    "bit_or({i})",
    "bit_xor({i})",
    "corr({f}, {f})",
    "covar_pop({f}, {i})",
    "regr_slope({f}, {f})",
    "percentile_cont(0.5) WITHIN GROUP (ORDER BY {f})",
    "percentile_disc(0.5) WITHIN GROUP (ORDER BY {i})",
    "mode() WITHIN GROUP (ORDER BY {t})",
    "array_agg({i} ORDER BY {=})",
    "array_agg(DISTINCT {i} ORDER BY {=})",
    "sum({i}) + count(*)",
    "sum({i}) / count(*)",
    "count(*) * 100.0 / nullif(count({i}), 0)",
    "sum({v})",
    "avg({v})",
    "coalesce(sum({i}), 0)",
    "sum({i} * {I})",
    "count(nullif({b}, false))",
    "sum(CASE WHEN {b} THEN 1 ELSE 0 END)",
    "max({b}::int)",
    "string_agg({t}, ', ' ORDER BY {=} DESC)",
    "sum({f})::text",
    "avg({i})::int",
    "round(avg({i}), 2)",
    "round(avg({n}), 1)",
    "count((SELECT 1))",
    "array_agg({t} ORDER BY {=} NULLS FIRST)",
    "percentile_cont(0.9) WITHIN GROUP (ORDER BY {i})",
    "bool_and({i} > 0)",
];

fn aggregated(random: &mut Random, source: &Source) -> String {
    let template = pick(random, AGGREGATES);
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

const WINDOWS: &[&str] = &[
    "row_number()",
    "rank()",
    "dense_rank()",
    "percent_rank()",
    "cume_dist()",
    "ntile(4)",
    "lag({i}) ",
    "lead({t}, 2)",
    "lag({i}, 1, 0)",
    "first_value({t})",
    "last_value({i})",
    "nth_value({i}, 2)",
    "sum({i})",
    "sum({f})",
    "count(*)",
    "count({i})",
    "avg({i})",
    "min({t})",
    "max({f})",
    "bool_or({b})",
    "sum({n})",
    "string_agg({t}, ',')",
    "max({z})",
    "lead({z}) ",
    "sum({i}) FILTER (WHERE {b})",
    "count({t}) FILTER (WHERE {i} > 0)",
];
const FRAMES: &[&str] = &[
    "",
    "",
    "",
    " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    " ROWS 3 PRECEDING",
    " ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING",
    " ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING",
    " RANGE UNBOUNDED PRECEDING",
    " RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    " GROUPS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    " RANGE BETWEEN 10 PRECEDING AND 10 FOLLOWING",
    " ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW",
];

fn window(random: &mut Random) -> Question {
    let source = loop {
        let source = source(random, "t");
        if source.key.is_some() {
            break source;
        }
    };
    let key = source.key.unwrap_or("u");
    let call = pick(random, WINDOWS);
    let call = source.scope.filled(random, call, 1);
    let part = match random.below(3) {
        0 => String::new(),
        1 => "PARTITION BY level ".to_owned(),
        _ => format!("PARTITION BY {} ", source.any(random, 1)),
    };
    let order = format!("ORDER BY t.{key}{}", pick(random, &["", " DESC", " NULLS FIRST"]));
    let frame = pick(random, FRAMES);
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

fn join(random: &mut Random) -> Question {
    let (left, right) = (source(random, "a"), source(random, "b"));
    let both = Source {
        text: String::new(),
        scope: Scope {
            columns: left.scope.columns.iter().chain(&right.scope.columns).cloned().collect(),
        },
        key: None,
    };
    let equal = {
        let kind = pick(random, &["i", "t"]).chars().next().unwrap_or('i');
        let of = |random: &mut Random, scope: &Scope| {
            let columns: Vec<_> = scope.columns.iter().filter(|column| column.1 == kind).collect();
            columns
                .get(usize::try_from(random.below(columns.len() as u64)).unwrap_or_default())
                .map_or_else(|| "1".to_owned(), |column| column.0.clone())
        };
        format!("{} = {}", of(random, &left.scope), of(random, &right.scope))
    };
    let (word, on) = match random.below(9) {
        0 | 1 => ("JOIN", format!(" ON {equal}")),
        2 | 3 => (
            "LEFT JOIN",
            format!(" ON {equal} AND {}", both.scope.expression(random, 'b', 1)),
        ),
        4 => ("RIGHT JOIN", format!(" ON {equal}")),
        5 | 6 => ("FULL JOIN", format!(" ON {equal}")),
        7 => ("LEFT JOIN", format!(" ON {equal} AND a.ts < b.ts")),
        _ => (
            "JOIN",
            format!(" ON {equal} AND {}", both.scope.expression(random, 'b', 0)),
        ),
    };
    let condition = both.condition(random);
    let items = if random.below(3) == 0 {
        vec![both.any(random, 1), both.any(random, 1)]
    } else {
        vec![
            "count(*)".to_owned(),
            aggregated(random, &both),
            "count(a.*)".to_owned(),
        ]
    };
    let items: Vec<_> = items.into_iter().filter(|item| item != "count(a.*)").collect();
    unordered(format!(
        "SELECT {} FROM {} {word} {}{on}{condition}",
        listed(&items),
        left.text,
        right.text
    ))
}

const SUBQUERIES: &[&str] = &[
    "SELECT count(*) FROM logs a WHERE EXISTS (SELECT 1 FROM traces b WHERE b.entity_name = a.entity_name AND {b})",
    "SELECT count(*) FROM logs a WHERE NOT EXISTS (SELECT 1 FROM metrics b WHERE b.ts = a.ts OR b.name = a.message)",
    "SELECT count(*) FROM logs a WHERE a.message IN (SELECT b.message FROM logs b WHERE b.level = 'error')",
    "SELECT count(*) FROM logs a WHERE a.attributes->>'w' NOT IN (SELECT b.attributes->>'w' FROM logs b WHERE {b})",
    "SELECT count(*) FROM logs a WHERE (a.attributes->>'n')::bigint NOT IN (SELECT (b.attributes->>'n')::bigint FROM logs b WHERE b.attributes->>'n' IS NOT NULL AND {b})",
    "SELECT a.entity_name AS e, (SELECT count(*) FROM traces b WHERE b.entity_name = a.entity_name AND b.status = 'error') AS n FROM logs a WHERE {b}",
    "SELECT a.level AS e, (SELECT max(b.value) FROM metrics b WHERE b.entity_name = a.entity_name AND {b}) AS n FROM logs a",
    "SELECT count(*) FROM logs a WHERE a.ts > (SELECT avg_ts FROM (SELECT max(ts) - INTERVAL '1 hour' AS avg_ts FROM logs) x)",
    "SELECT count(*) FROM logs a WHERE (SELECT count(*) FROM traces b WHERE b.span_name = a.message) = 0",
    "SELECT count(*) FROM metrics a WHERE a.value > ALL (SELECT b.value FROM metrics b WHERE b.name = 'nothing')",
    "SELECT count(*) FROM metrics a WHERE a.value >= ANY (SELECT b.value FROM metrics b WHERE b.name = 'cpu')",
    "SELECT count(*) FROM metrics a WHERE a.value = ANY (SELECT b.value FROM metrics b WHERE {b})",
    "SELECT count(*) FROM logs a WHERE (a.level, a.entity_name) IN (SELECT b.level, b.entity_name FROM logs b WHERE {b})",
    "SELECT a.entity_name AS e, x.m AS m FROM logs a CROSS JOIN LATERAL (SELECT max(b.value) AS m FROM metrics b WHERE b.entity_name = a.entity_name) x WHERE {b}",
    "SELECT a.level AS l, EXISTS (SELECT 1 FROM metrics b WHERE b.entity_name = a.entity_name AND b.value > 500) AS x FROM logs a WHERE {b}",
    "SELECT (SELECT b.level FROM logs b WHERE b.message = a.span_name) AS x FROM traces a WHERE {b}",
    "SELECT count(*) FROM logs a WHERE a.level = 'error' OR a.entity_name IN (SELECT b.entity_name FROM traces b WHERE b.status = 'nothing')",
    "SELECT count(*) FROM logs a WHERE a.message = (SELECT min(b.message) FROM logs b)",
    "SELECT sum(x.n) AS n FROM (SELECT a.level, count(*) AS n FROM logs a WHERE {b} GROUP BY a.level HAVING count(*) > 1) x",
    "SELECT a.span_name AS s, (SELECT sum(b.value) FROM metrics b WHERE b.name = a.span_name) AS n FROM traces a WHERE {b}",
    "SELECT count(*) FROM logs a WHERE NOT (a.attributes->>'w' IN (SELECT b.attributes->>'w' FROM logs b WHERE b.level = 'warn'))",
    "SELECT a.level IN (SELECT b.level FROM logs b WHERE {b}) AS x, count(*) AS n FROM logs a GROUP BY 1",
];

fn subquery(random: &mut Random) -> Question {
    // Of log rows, whichever table `b` is.
    let scope = Scope {
        columns: [("b.ts", 'z'), ("b.entity_name", 't')]
            .map(|(name, kind)| (name.to_owned(), kind))
            .into(),
    };
    let outer = Scope {
        columns: [("a.ts", 'z'), ("a.entity_name", 't')]
            .map(|(name, kind)| (name.to_owned(), kind))
            .into(),
    };
    let template = pick(random, SUBQUERIES);
    let is_outer = template.ends_with("WHERE {b}") || template.contains("{b} GROUP BY a.");
    let scope = if is_outer && !template.ends_with("AND {b}") {
        outer
    } else {
        scope
    };
    unordered(scope.filled(random, template, 1))
}

fn common(random: &mut Random) -> Question {
    let source = source(random, "t");
    let items = [source.any(random, 1), source.any(random, 1)];
    let condition = source.condition(random);
    let body = format!("SELECT {} FROM {}{condition}", listed(&items), source.text);
    let after = pick(
        random,
        &[
            "SELECT c0, count(*) AS n FROM a GROUP BY c0",
            "SELECT count(*) FROM a WHERE c1 IS NULL",
            "SELECT * FROM a ORDER BY 1, 2",
            "SELECT count(*), count(c0), count(DISTINCT c1) FROM a",
            "SELECT x.c0, y.c1 FROM a x JOIN a y ON x.c0 = y.c0 AND x.c1 = y.c1 WHERE x.c0 IS NOT NULL AND (SELECT count(*) FROM a) < 60",
            "SELECT c0 FROM a EXCEPT SELECT c0 FROM a WHERE c1 IS NULL",
            ", z AS (SELECT c0, count(*) AS n FROM a GROUP BY 1) SELECT max(n), min(n) FROM z",
            "SELECT c1 AS k, min(c0) FROM a GROUP BY k",
        ],
    );
    if random.below(8) == 0 {
        let most = random.below(20) + 1;
        return unordered(format!(
            "WITH RECURSIVE r(n, f) AS (SELECT 1, 1 UNION ALL SELECT n + 1, f * 2 FROM r WHERE n < {most}) SELECT count(*), sum(n), max(f) FROM r"
        ));
    }
    let after = if after.starts_with(',') {
        after.to_owned()
    } else {
        format!(" {after}")
    };
    unordered(format!("WITH a AS ({body}){after}"))
}

fn set(random: &mut Random) -> Question {
    let kinds = [kind(random), kind(random)];
    let mut text = String::new();
    for at in 0..=random.below(2) + 1 {
        let source = source(random, "t");
        let items: Vec<_> = kinds
            .iter()
            .map(|kind| source.scope.expression(random, *kind, 1))
            .collect();
        let condition = source.condition(random);
        if at > 0 {
            text.push_str(pick(
                random,
                &[
                    " UNION ",
                    " UNION ALL ",
                    " UNION ALL ",
                    " INTERSECT ",
                    " EXCEPT ",
                    " EXCEPT ALL ",
                ],
            ));
        }
        text.push_str(&format!("SELECT {} FROM {}{condition}", listed(&items), source.text));
    }
    let order = if random.below(2) == 0 {
        total_order(random, 2)
    } else {
        String::new()
    };
    Question {
        is_ordered: !order.is_empty(),
        text: text + &order,
    }
}

fn distinct(random: &mut Random) -> Question {
    let source = source(random, "t");
    let items = [source.any(random, 1), source.any(random, 1)];
    let condition = source.condition(random);
    let (on, order) = match random.below(3) {
        0 => ("ON (c)".to_owned(), total_order(random, 2)),
        _ => (
            String::new(),
            if random.below(2) == 0 {
                total_order(random, 2)
            } else {
                String::new()
            },
        ),
    };
    let on = on.replace("(c)", &format!("({})", items[0]));
    Question {
        text: format!(
            "SELECT DISTINCT {on} {} FROM {}{condition}{order}",
            listed(&items),
            source.text
        ),
        is_ordered: !order.is_empty(),
    }
}
