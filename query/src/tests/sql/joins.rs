//! Joins: columns of the same name on both sides, which a filter that is pushed below the join must not confuse.

use super::{bench, one, rows};

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_on_one_side_of_a_join_is_not_applied_to_the_other() {
    let bench = bench().await;
    let never_equal = "FROM logs a RIGHT JOIN logs b ON a.attributes->>'none' = b.level";
    for (condition, expected) in [
        ("bit_length(a.level) IS NOT NULL", 0),
        ("(b.message > a.message) IS DISTINCT FROM (b.level ILIKE '%\\%%')", 180),
        ("coalesce(a.level, 'x') = 'x'", 180),
        ("(a.ts - b.ts) < INTERVAL '24 hours'", 0),
    ] {
        let query = format!("SELECT count(*) {never_equal} WHERE {condition}");
        assert_eq!(one(&bench, &query).await, expected, "{query}");
        let query = format!("SELECT a.level, b.level {never_equal} WHERE {condition}");
        assert_eq!(rows(&bench, &query).await.len(), expected, "{query}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_rows_of_joins_are_those_of_the_column_that_is_sorted_by() {
    let bench = bench().await;
    let joined = "FROM logs a JOIN logs b ON a.level = b.level AND a.flux_id = b.flux_id JOIN logs c ON b.ts = c.ts";
    for column in ["a.message", "b.message", "c.message", "b.ts", "c.level"] {
        for direction in ["ASC", "DESC"] {
            let query = format!(
                "SELECT a.message, b.message, c.message, {column} AS key {joined} ORDER BY key {direction} LIMIT 3"
            );
            let found: Vec<_> = rows(&bench, &query)
                .await
                .into_iter()
                .map(|row| row[3].clone())
                .collect();
            let all = rows(&bench, &format!("SELECT {column} AS key {joined}")).await;
            let mut expected: Vec<_> = all.into_iter().map(|row| row[0].as_str().unwrap().to_owned()).collect();
            expected.sort_unstable();
            if direction == "DESC" {
                expected.reverse();
            }
            expected.truncate(3);
            assert_eq!(found, expected, "{query}");
        }
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_join_loses_no_rows_of_unions_and_semi_joins_whose_sides_have_other_names() {
    let bench = bench().await;
    let pairs = "SELECT DISTINCT level, message FROM logs UNION ALL SELECT DISTINCT message, level FROM logs";
    let few = "(SELECT DISTINCT message AS key FROM logs WHERE length(message) < 8)";
    for (joined, alone) in [
        (
            format!("SELECT count(*) FROM {few} k JOIN ({pairs}) u ON u.level = k.key"),
            format!("SELECT count(*) FROM ({pairs}) u WHERE u.level IN (SELECT key FROM {few} k)"),
        ),
        (
            format!("SELECT count(*) FROM {few} k JOIN ({pairs}) u ON u.message = k.key"),
            "SELECT count(*) FROM (SELECT DISTINCT level, message FROM logs) x WHERE length(message) < 8".to_owned(),
        ),
        (
            "SELECT count(*) FROM (SELECT DISTINCT entity_name AS key FROM logs) k JOIN (SELECT l.entity_name FROM logs l WHERE EXISTS \
             (SELECT 1 FROM traces r WHERE r.entity_name = l.entity_name AND r.span_name <> l.message)) x ON x.entity_name = k.key"
                .to_owned(),
            "SELECT count(*) FROM logs l WHERE EXISTS (SELECT 1 FROM traces r WHERE r.entity_name = l.entity_name AND r.span_name <> l.message)"
                .to_owned(),
        ),
    ] {
        let expected: i64 = one(&bench, &alone).await.as_i64().unwrap();
        assert!(expected > 0, "{alone}");
        assert_eq!(one(&bench, &joined).await, expected, "{joined}");
    }
    bench.close().await;
}
