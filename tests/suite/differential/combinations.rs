//! Random statements over several tables: joins, subqueries, common tables, sets.

use harness::Random;

use super::data::pick;
use super::expressions::{Scope, templates};
use super::statements::{Question, Source, aggregated, kind, listed, source, total_order, unordered};

pub(super) fn join(random: &mut Random) -> Question {
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

pub(super) fn subquery(random: &mut Random) -> Question {
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
    let template = pick(random, templates('Q'));
    let is_outer = template.ends_with("WHERE {b}") || template.contains("{b} GROUP BY a.");
    let scope = if is_outer && !template.ends_with("AND {b}") {
        outer
    } else {
        scope
    };
    unordered(scope.filled(random, template, 1))
}

pub(super) fn common(random: &mut Random) -> Question {
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

pub(super) fn set(random: &mut Random) -> Question {
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

pub(super) fn distinct(random: &mut Random) -> Question {
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
