//! Predicates of subqueries: null is not false, and an aggregate of no rows is a row.

use serde_json::{Value, json};

use super::{Bench, asked, of_messages, rows};

const OUTER: &str = "(VALUES (1, 10), (2, 20), (NULL, 30), (4, 40)) o(id, n)";
const INNER: &str = "(VALUES (1, 5), (NULL, 50), (5, 10)) i(id, n)";

/// The ids of the outer rows that a condition is true of.
async fn met(bench: &Bench, condition: &str) -> Vec<Value> {
    let query = format!("SELECT o.id FROM {OUTER} WHERE {condition} ORDER BY n");
    rows(bench, &query)
        .await
        .into_iter()
        .map(|mut row| row.remove(0))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subquery_with_a_null_neither_has_a_value_nor_lacks_it() {
    let bench = of_messages(&["a"]).await;
    let all = format!("(SELECT i.id FROM {INNER})");
    let equal = format!("(SELECT i.id FROM {INNER} WHERE i.id = o.id)");
    let smaller = format!("(SELECT i.id FROM {INNER} WHERE i.n < o.n)");
    let known = format!("(SELECT i.id FROM {INNER} WHERE i.id IS NOT NULL)");
    for (condition, ids) in [
        (format!("o.id IN {all}"), json!([1])),
        (format!("o.id IN {all} OR n = 20"), json!([1, 2])),
        (format!("o.id NOT IN {all}"), json!([])),
        (format!("NOT o.id IN {all}"), json!([])),
        (format!("3 NOT IN {all}"), json!([])),
        (format!("3 NOT IN {known}"), json!([1, 2, null, 4])),
        (format!("o.id NOT IN {all} OR n = 40"), json!([4])),
        (format!("NOT (o.id IN {all} AND n < 40)"), json!([4])),
        (format!("(o.id IN {all}) IS NULL"), json!([2, null, 4])),
        (format!("o.id NOT IN {known}"), json!([2, 4])),
        (format!("o.id NOT IN {equal}"), json!([2, null, 4])),
        (format!("3 NOT IN {smaller}"), json!([1, 2, null, 4])),
        (
            format!("4 NOT IN (SELECT i.id FROM {INNER} WHERE i.n > o.n + 15)"),
            json!([4]),
        ),
        (
            format!("CASE WHEN o.id IN {all} THEN false ELSE true END"),
            json!([2, null, 4]),
        ),
    ] {
        assert_eq!(Value::Array(met(&bench, &condition).await), ids, "{condition}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn aggregates_that_depend_on_the_outer_row_are_compared_themselves() {
    let bench = of_messages(&["a"]).await;
    let count = format!("(SELECT count(*) FROM {INNER} WHERE i.id = o.id)");
    assert_eq!(
        met(&bench, &format!("{count} = 0")).await,
        [json!(2), json!(null), json!(4)]
    );
    let newest = format!("EXISTS (SELECT 1 FROM (SELECT max(n) AS n FROM {INNER}) m WHERE m.n > o.n + 15)");
    assert_eq!(met(&bench, &newest).await, [json!(1), json!(2), json!(null)]);
    let latest = format!("o.n IN (SELECT max(i.n) + 5 FROM {INNER} WHERE i.id = o.id)");
    let error = asked(&bench, &format!("SELECT 1 FROM {OUTER} WHERE {latest}"), json!([])).await;
    assert!(error.is_err());
    let latest = format!("o.n - 5 IN (SELECT max(i.n) FROM {INNER} WHERE i.id = o.id)");
    assert_eq!(met(&bench, &latest).await, [json!(1)]);
    for refused in [
        format!("EXISTS {count}"),
        format!("NOT EXISTS {count}"),
        format!("0 IN {count}"),
        format!("0 = ANY {count} OR n = 1"),
        format!("EXISTS (SELECT 1 FROM {INNER} WHERE i.id = o.id HAVING count(*) = 0)"),
    ] {
        let query = format!("SELECT 1 FROM {OUTER} WHERE {refused}");
        let error = asked(&bench, &query, json!([])).await.unwrap_err().to_string();
        assert!(error.contains("compare it itself"), "{refused}: {error}");
    }
    bench.close().await;
}
