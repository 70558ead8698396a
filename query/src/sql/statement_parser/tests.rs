//! What may run, what is too much, and where parameters go.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use datafusion::sql::sqlparser::ast::SelectItem;
use serde_json::json;

use super::*;
use crate::QueryErrorKind;
use crate::sql::SqlParameters;

fn none() -> SqlParameters {
    SqlParameters::default()
}

fn read(text: &str, parameters: &SqlParameters) -> Result<ParsedStatement, Error> {
    let statement = SqlStatement {
        query: text.to_owned(),
        parameters: parameters.clone(),
        ..SqlStatement::default()
    };
    super::parse_bound(&statement, None)
}

fn open(text: &str, declared: &[(usize, DataType)]) -> Result<UnboundStatement, Error> {
    let statement = SqlStatement {
        query: text.to_owned(),
        declared: declared.iter().cloned().collect(),
        ..SqlStatement::default()
    };
    super::parse_unbound(&statement, None)
}

fn refused(text: &str) -> Error {
    read(text, &none()).unwrap_err()
}

#[test]
fn only_statements_that_read_pass() {
    for text in [
        "SELECT 1",
        "with a as (select 1) select * from a;",
        "VALUES (1), (2)",
        "SHOW TABLES",
        "describe logs",
        "EXPLAIN ANALYZE SELECT * FROM logs",
    ] {
        assert!(read(text, &none()).is_ok(), "{text}");
    }
    for text in [
        "INSERT INTO logs VALUES (1)",
        "UPDATE logs SET level = 'x'",
        "DELETE FROM logs",
        "CREATE TABLE t (a int)",
        "CREATE VIEW v AS SELECT 1",
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '/etc/passwd'",
        "CREATE FUNCTION f() RETURNS int RETURN 1",
        "DROP TABLE logs",
        "COPY logs TO '/a.csv'",
        "COPY (SELECT 1) TO '/a.csv' STORED AS CSV",
        "SET a = 1",
        "SET TIME ZONE 'UTC'",
        "RESET a",
        "BEGIN",
        "PREPARE p AS SELECT 1",
        "EXPLAIN INSERT INTO logs VALUES (1)",
        "EXPLAIN CREATE TABLE t AS SELECT 1",
        "SELECT 1 INTO t",
        "SELECT 1 UNION SELECT 2 INTO t",
        "WITH a AS (INSERT INTO logs VALUES (1) RETURNING *) SELECT * FROM a",
    ] {
        let error = refused(text);
        assert!(
            matches!(error.kind(), QueryErrorKind::ReadOnly | QueryErrorKind::Statement),
            "{text}: {error}"
        );
    }
    assert_eq!(refused("DROP TABLE logs").kind(), QueryErrorKind::ReadOnly);
    assert_eq!(refused("SELECT 1; SELECT 2").kind(), QueryErrorKind::Statement);
    assert_eq!(refused("  -- nothing\n;").kind(), QueryErrorKind::Statement);
}

/// On a stack as query threads have.
fn on_a_query_thread(work: fn()) {
    let thread = std::thread::Builder::new().stack_size(crate::admission_gate::STACK);
    thread.spawn(work).unwrap().join().unwrap();
}

#[test]
fn what_would_exhaust_a_planner_is_refused_at_once() {
    on_a_query_thread(refuse_what_would_exhaust);
}

fn refuse_what_would_exhaust() {
    let many = |text: &str, times| text.repeat(times);
    let chain = |n| {
        let links: String = (1..=n)
            .map(|n| format!(", t{n} AS (SELECT a.* FROM t{0} a, t{0} b)", n - 1))
            .collect();
        format!("WITH t0 AS (SELECT 1){links} SELECT * FROM t{n}")
    };
    for text in [
        format!("SELECT {}1{}", many("(", 40), many(")", 40)),
        format!("SELECT {}1{}", many("(", 30_000), many(")", 30_000)),
        format!("SELECT 1{}", many("+1", 300)),
        format!("SELECT 1{}", many("+1", 32_000)),
        format!("SELECT {} 1", many("NOT ", 8_000)),
        format!("SELECT {}1{}", many("CASE WHEN ", 13), many(" = 1 THEN 1 END", 13)),
        format!(
            "SELECT {}1{}",
            many("CASE WHEN ", 4),
            many("+1+1+1+1+1+1+1+1+1+1+1+1+1+1+1 = 1 THEN 1 END", 4)
        ),
        format!("SELECT 1{} FROM logs", many(" = ALL(level)", 24)),
        format!("SELECT {}1{}", many("1 = ANY(", 6), many(")", 6)),
        format!("SELECT NULL::int{}", many("[]", 30_000)),
        format!("SELECT a{}", many("[1]", 10_000)),
        format!("SELECT {}'1'", many("INTERVAL(3)", 4_000)),
        format!("SELECT {}'1'", many("INTERVAL ", 4_000)),
        format!("SELECT {}f({}", many("CAST(", 11), many("1,", 30_000)),
        format!("SELECT 1::{}int{}", many("ARRAY<", 100), many(">", 100)),
        format!("SELECT {}{}a", many("FROM (((SELECT ", 8), many("a,", 30_000)),
        format!("SELECT 1 FROM logs{}", many(",logs", 12_000)),
        format!("SELECT 1{}", many(" UNION ALL SELECT 1", 3_000)),
        format!("SELECT 1{}", many("::int", 3_000)),
        format!("{} SELECT 1", many("EXPLAIN ", 8_000)),
        format!("SELECT '{}'", many("x", LONGEST)),
        chain(8),
        chain(40),
    ] {
        let error = refused(&text);
        assert_eq!(error.kind(), QueryErrorKind::Statement, "{} …: {error}", &text[..40]);
    }
    let list: Vec<_> = (0..9_000).map(|n| n.to_string()).collect();
    assert!(read(&format!("SELECT 1 WHERE 1 IN ({})", list.join(",")), &none()).is_ok());
    assert!(read(&chain(3), &none()).is_ok());
    let nested = format!(
        "SELECT 1 WHERE 1 IN {}SELECT lower('A'){}",
        many("(", 20),
        many(")", 20)
    );
    assert!(read(&nested, &none()).is_ok());
}

#[test]
fn parameters_become_literals_and_each_has_its_place() {
    let given = |parameters| serde_json::from_value::<SqlParameters>(parameters).unwrap();
    let asked = read(
        "SELECT $1, $2, $3 FROM logs LIMIT $4",
        &given(json!(["a'; DROP TABLE logs; --", -2.5, null, 3])),
    );
    let text = asked.unwrap().statement.to_string();
    assert_eq!(
        text,
        "SELECT 'a''; DROP TABLE logs; --' AS \"$1\", -2.5 AS \"$2\", NULL AS \"$3\" FROM logs LIMIT 3"
    );
    assert!(read("SELECT $level, $level", &given(json!({"level": "warn"}))).is_ok());
    for (text, parameters) in [
        ("SELECT $2", json!(["a"])),
        ("SELECT $1", json!(["a", "b"])),
        ("SELECT $1", json!([[["a"]]])),
        ("SELECT $a", json!({"b": 1})),
        ("SELECT 1", json!({"b": 1})),
    ] {
        assert!(read(text, &given(parameters)).is_err(), "{text}");
    }
}

#[test]
fn a_comparison_of_distinctness_ends_where_postgresql_ends_it() {
    for (written, meant) in [
        ("a IS DISTINCT FROM b AND c", "(a IS DISTINCT FROM b) AND c"),
        ("a IS DISTINCT FROM b AND c OR d", "((a IS DISTINCT FROM b) AND c) OR d"),
        (
            "a IS NOT DISTINCT FROM b OR c AND d",
            "(a IS NOT DISTINCT FROM b) OR (c AND d)",
        ),
        ("d AND a IS DISTINCT FROM b OR c", "(d AND (a IS DISTINCT FROM b)) OR c"),
        (
            "d AND a IS DISTINCT FROM b AND c",
            "d AND ((a IS DISTINCT FROM b) AND c)",
        ),
        (
            "d OR e AND a IS DISTINCT FROM b OR c",
            "d OR ((e AND (a IS DISTINCT FROM b)) OR c)",
        ),
        ("NOT a IS DISTINCT FROM b AND c", "(NOT (a IS DISTINCT FROM b)) AND c"),
        (
            "a IS DISTINCT FROM b AND c IS DISTINCT FROM d AND e",
            "(a IS DISTINCT FROM b) AND ((c IS DISTINCT FROM d) AND e)",
        ),
        ("a IS DISTINCT FROM b = c", "a IS DISTINCT FROM (b = c)"),
        ("a IS DISTINCT FROM (b AND c)", "a IS DISTINCT FROM (b AND c)"),
        (
            "d AND (a IS DISTINCT FROM b OR c)",
            "d AND ((a IS DISTINCT FROM b) OR c)",
        ),
        ("d AND e OR c", "(d AND e) OR c"),
    ] {
        let shape = |text: &str| {
            let asked = read(&format!("SELECT {text}"), &none()).unwrap();
            let Parsed::Statement(ast) = asked.statement else {
                panic!("{text}");
            };
            shape(&ast)
        };
        assert_eq!(shape(written), shape(meant), "{written}");
    }
}

/// A parser that meets an error tries the next thing that could be there, at each level: it would take years.
#[test]
fn statements_that_a_parser_would_read_exponentially_are_refused() {
    on_a_query_thread(refuse_what_is_read_again);
}

fn refuse_what_is_read_again() {
    for (unit, times) in [
        ("CASE WHEN true THEN ", 40),
        ("POSITION (", 24),
        ("upper(CASE WHEN a THEN ", 24),
        ("NOT - ", 28),
        ("INTERVAL - (", 24),
        ("CURRENT_TIMESTAMP(", 24),
    ] {
        let error = refused(&format!("SELECT {}", unit.repeat(times)));
        assert!(error.to_string().contains("too many ways"), "{unit}: {error}");
    }
}

#[test]
fn what_is_beside_each_other_or_not_too_deep_passes() {
    let case = |inner: &str| format!("CASE WHEN level = 'a' THEN {inner} END");
    let within = (0..16).fold("level".to_owned(), |inner, _| case(&inner));
    let beside = vec![case("'x'"); 100].join(", ");
    let calls = (0..14).fold("level".to_owned(), |inner, _| format!("upper({inner})"));
    let positions = (0..6).fold("'a'".to_owned(), |inner, _| format!("POSITION('a' IN {inner}::text)"));
    let queries = (0..12).fold("1".to_owned(), |inner, _| format!("(SELECT {inner})"));
    for text in [within, beside, calls, positions, queries] {
        let read = read(&format!("SELECT {text} FROM logs"), &none());
        assert!(read.is_ok(), "{text}: {read:?}");
    }
}

#[test]
fn comparisons_of_rows_within_each_other_do_not_double() {
    on_a_query_thread(|| {
        let within = (0..23).fold("true".to_owned(), |inner, _| format!("({inner}, 1) < (true, 1)"));
        let error = refused(&format!("SELECT {within}")).to_string();
        assert!(error.contains("bytes"), "{error}");
    });
}

/// What an expression is, brackets aside.
fn shape(ast: &Ast) -> String {
    fn of(expr: &Expr) -> String {
        match expr {
            Expr::Nested(inner) => of(inner),
            Expr::BinaryOp { left, op, right } => format!("({} {op} {})", of(left), of(right)),
            Expr::UnaryOp { op, expr } => format!("({op} {})", of(expr)),
            Expr::IsDistinctFrom(left, right) => format!("({} <> {})", of(left), of(right)),
            Expr::IsNotDistinctFrom(left, right) => format!("({} == {})", of(left), of(right)),
            other => other.to_string(),
        }
    }
    let Ast::Query(query) = ast else { panic!("{ast}") };
    let SetExpr::Select(select) = query.body.as_ref() else {
        panic!("{ast}");
    };
    let [SelectItem::UnnamedExpr(expr)] = select.projection.as_slice() else {
        panic!("{ast}");
    };
    of(expr)
}

#[test]
fn clauses_that_the_planner_ignores_are_refused_with_an_alternative() {
    for (text, way) in [
        ("SELECT * FROM logs TABLESAMPLE SYSTEM (1)", "random()"),
        ("SELECT 1 FROM (SELECT 2) t TABLESAMPLE BERNOULLI (1)", "random()"),
        ("SELECT 1 EXCEPT ALL SELECT 2", "row_number()"),
        ("SELECT 1 UNION ALL (SELECT 1 INTERSECT ALL SELECT 2)", "row_number()"),
        ("SELECT 1 UNION ALL SELECT 1 INTERSECT ALL SELECT 2", "row_number()"),
        (
            "WITH a AS (SELECT 1 EXCEPT ALL SELECT 2) SELECT * FROM a",
            "row_number()",
        ),
    ] {
        let error = refused(text).to_string();
        assert!(
            error.contains("is not supported") && error.contains(way),
            "{text}: {error}"
        );
    }
    for text in [
        "SELECT 1 EXCEPT SELECT 2",
        "SELECT 1 INTERSECT DISTINCT SELECT 2",
        "SELECT 1 UNION ALL SELECT 2",
    ] {
        assert!(read(text, &none()).is_ok(), "{text}");
    }
}

#[test]
fn rows_newest_first_are_told_from_the_rest() {
    for (text, newest) in [
        ("SELECT * FROM logs ORDER BY ts DESC LIMIT 5", true),
        (
            "SELECT l.message FROM logs l WHERE level = 'x' ORDER BY l.ts DESC",
            true,
        ),
        ("SELECT * FROM logs ORDER BY ts", false),
        ("SELECT ts, count(*) FROM logs GROUP BY ts ORDER BY ts DESC", false),
        (
            "SELECT * FROM logs l JOIN traces t USING (flux_id) ORDER BY ts DESC",
            false,
        ),
        ("SELECT * FROM (SELECT * FROM logs) l ORDER BY ts DESC", false),
        (
            "WITH m AS (SELECT ts FROM logs GROUP BY 1) SELECT * FROM m ORDER BY ts DESC",
            false,
        ),
    ] {
        assert_eq!(read(text, &none()).unwrap().newest_first, newest, "{text}");
    }
}

#[test]
fn a_statement_without_values_has_nulls_in_their_places_and_says_how_many() {
    let two = open("SELECT $2, $1 FROM logs WHERE level = $1", &[]).unwrap();
    assert_eq!(two.parameters, 2);
    assert_eq!(
        two.asked.statement.to_string(),
        "SELECT NULL AS \"$2\", NULL AS \"$1\" FROM logs WHERE level = NULL"
    );
    assert_eq!(
        two.with_places.to_string(),
        "SELECT $2 AS \"$2\", $1 AS \"$1\" FROM logs WHERE level = $1"
    );
    for text in [
        "SELECT $0",
        "SELECT $name",
        "SELECT $65536",
        "DELETE FROM logs WHERE level = $1",
    ] {
        assert!(open(text, &[]).is_err(), "{text}");
    }
}

#[test]
fn a_list_takes_the_place_of_a_parameter_and_its_items_are_compared() {
    let bound = |text: &str, value: serde_json::Value| {
        let listed = SqlParameters::Listed(vec![value]);
        read(text, &listed).map(|asked| asked.statement.to_string())
    };
    for (text, value, expected) in [
        (
            "SELECT 1 WHERE level = ANY($1)",
            json!(["a", "it's"]),
            "SELECT 1 WHERE (level IN ('a', 'it''s'))",
        ),
        (
            "SELECT 1 WHERE n <> ALL($1::int[])",
            json!([1, null]),
            "SELECT 1 WHERE (n NOT IN (1, NULL))",
        ),
        ("SELECT 1 WHERE n = ANY($1)", json!([]), "SELECT 1 WHERE false"),
        ("SELECT 1 WHERE n > ALL($1)", json!([]), "SELECT 1 WHERE true"),
        ("SELECT 1 WHERE n = ANY($1)", json!(null), "SELECT 1 WHERE NULL"),
        (
            "SELECT 1 WHERE array_has($1, n)",
            json!([1]),
            "SELECT 1 WHERE array_has(ARRAY[1], n)",
        ),
        ("SELECT $1::text[]", json!([]), "SELECT ARRAY[]::TEXT[] AS \"$1\""),
    ] {
        assert_eq!(bound(text, value).unwrap(), expected, "{text}");
    }
    for value in [json!([[1]]), json!({"a": 1})] {
        let refused = bound("SELECT $1", value).unwrap_err();
        assert!(refused.to_string().contains("list within another"), "{refused}");
    }
    let uses = |times: usize| format!("SELECT 1 WHERE n = ANY($1){}", " OR n = ANY($1)".repeat(times - 1));
    let many = |items: usize| json!(vec![1; items]);
    assert!(bound(&uses(5), many(10_000)).is_ok());
    let refused = bound(&uses(6), many(10_000)).unwrap_err();
    assert!(refused.to_string().contains("more than 50000 items"), "{refused}");
    let refused = bound(&uses(1), many(10_001)).unwrap_err();
    assert!(
        refused.to_string().contains("a list of more than 10000 items"),
        "{refused}"
    );
    let long = json!(["a".repeat(1 << 20)]);
    assert!(bound(&uses(4), long.clone()).is_ok());
    assert!(bound(&uses(5), long).is_err());
    let unbound = open("SELECT 1 WHERE level = ANY($1) AND n = ANY($2::bigint[])", &[]).unwrap();
    assert_eq!(
        unbound.asked.statement.to_string(),
        "SELECT 1 WHERE (level IN (NULL)) AND (n IN (NULL))"
    );
    assert!(
        unbound
            .with_places
            .to_string()
            .starts_with("SELECT 1 WHERE level = $1 AND n = ANY(")
    );
    assert_eq!(unbound.parameters, 2);
    assert_eq!(unbound.lists.into_iter().collect::<Vec<_>>(), ["$1"]);
    let item = arrow_schema::Field::new_list_field(DataType::Int64, true);
    assert_eq!(unbound.types.get("$2"), Some(&DataType::List(item.into())));
}

#[test]
fn an_interval_is_no_text_that_is_subtracted_from_a_time() {
    let interval = DataType::Interval(arrow_schema::IntervalUnit::MonthDayNano);
    let unbound = open("SELECT 1 WHERE now() - $1 > $2", &[(1, interval.clone())]).unwrap();
    assert_eq!(
        unbound.asked.statement.to_string(),
        "SELECT 1 WHERE now() - CAST(NULL AS INTERVAL) > NULL"
    );
    let statement = SqlStatement {
        query: "SELECT 1 WHERE ts > now() - $1".to_owned(),
        parameters: SqlParameters::Listed(vec![json!("1 hour")]),
        declared: [(1, interval)].into(),
        ..SqlStatement::default()
    };
    let bound = super::parse_bound(&statement, None).unwrap().statement.to_string();
    assert_eq!(bound, "SELECT 1 WHERE ts > now() - CAST('1 hour' AS INTERVAL)");
}

#[test]
fn a_parameter_that_is_selected_is_of_its_declared_type_and_bytes_are_bytes_everywhere() {
    let texts = DataType::List(arrow_schema::Field::new_list_field(DataType::Utf8, true).into());
    let declared = [(1, DataType::Boolean), (2, texts), (3, DataType::Binary)];
    let query = "SELECT $1, $2 AS t, $3 FROM logs WHERE m = $3 AND b = $1";
    let unbound = open(query, &declared).unwrap().asked.statement.to_string();
    assert_eq!(
        unbound,
        "SELECT CAST(NULL AS BOOLEAN) AS \"$1\", CAST(NULL AS TEXT[]) AS t, CAST(NULL AS BYTEA) AS \"$3\" FROM logs \
         WHERE m = CAST(NULL AS BYTEA) AND b = NULL"
    );
    let statement = SqlStatement {
        query: query.to_owned(),
        parameters: SqlParameters::Listed(vec![json!(true), json!(["a"]), json!("6162")]),
        declared: declared.into(),
        ..SqlStatement::default()
    };
    let bound = super::parse_bound(&statement, None).unwrap().statement.to_string();
    assert_eq!(
        bound,
        "SELECT CAST(true AS BOOLEAN) AS \"$1\", CAST(ARRAY['a'] AS TEXT[]) AS t, X'6162' AS \"$3\" FROM logs \
         WHERE m = X'6162' AND b = true"
    );
}

#[test]
fn a_number_that_is_grouped_or_sorted_by_is_no_place_of_a_column() {
    let declared = [(1, DataType::Int32)];
    let query = "SELECT $1, level FROM logs GROUP BY $1, level ORDER BY level, $1";
    let unbound = open(query, &declared).unwrap().asked.statement.to_string();
    assert_eq!(
        unbound,
        "SELECT CAST(NULL AS INTEGER) AS \"$1\", level FROM logs GROUP BY CAST(NULL AS INTEGER), level \
         ORDER BY level, CAST(NULL AS INTEGER)"
    );
    let statement = SqlStatement {
        query: query.to_owned(),
        parameters: SqlParameters::Listed(vec![json!(7)]),
        declared: declared.into(),
        ..SqlStatement::default()
    };
    let bound = super::parse_bound(&statement, None).unwrap().statement.to_string();
    assert_eq!(
        bound,
        "SELECT CAST(7 AS INTEGER) AS \"$1\", level FROM logs GROUP BY CAST(7 AS INTEGER), level ORDER BY level, CAST(7 AS INTEGER)"
    );
}

#[test]
fn a_column_beside_all_columns_has_a_name_of_its_own() {
    for (text, meant) in [
        (
            "SELECT *, ts::date FROM logs",
            "SELECT *, ts::DATE AS \"ts_1\" FROM logs",
        ),
        (
            "SELECT l.level, *, upper(level) FROM logs AS l",
            "SELECT l.level AS \"l.level_1\", *, upper(level) FROM logs AS l",
        ),
        (
            "SELECT l.*, t.ts FROM logs AS l, t",
            "SELECT l.*, t.ts FROM logs AS l, t",
        ),
    ] {
        assert_eq!(read(text, &none()).unwrap().statement.to_string(), meant);
    }
}

#[test]
fn a_text_falls_apart_into_its_statements_where_semicolons_stand_for_themselves() {
    for (text, expected) in [
        ("", &[][..]),
        (" ; ;\n", &[]),
        ("-- nothing;\n", &[]),
        ("SELECT 1", &[(0, "SELECT 1")]),
        (
            "SELECT 'a;b' ; \n select \"c;d\" -- e;f\n; /* g;h */",
            &[(0, "SELECT 'a;b' "), (14, " \n select \"c;d\" -- e;f\n")],
        ),
        ("SELECT 'ä日';SELECT 2;", &[(0, "SELECT 'ä日'"), (15, "SELECT 2")]),
        ("SELECT $$x;y$$; SELECT 'open", &[(0, "SELECT $$x;y$$; SELECT 'open")]),
    ] {
        assert_eq!(split_statements(text), expected, "{text:?}");
    }
}
