//! Patterns: backslashes, `SIMILAR TO`.

use serde_json::json;

use super::{asked, of_messages, one};
use crate::QueryErrorKind;

#[tokio::test(flavor = "multi_thread")]
async fn a_backslash_in_a_pattern_escapes_as_the_pattern_says_in_every_operator() {
    let bench = of_messages(&[r"c:\temp", r"C:\TEMP", r"a\cd", r"a\\cd", "plain", "100%"]).await;
    let from = r"(SELECT message, 'c:\\temp' AS p FROM logs)";
    for (condition, count) in [
        (r"message ~ 'c:\\temp'", 1),
        (r"message ~* 'c:\\temp'", 2),
        (r"message !~ 'c:\\temp'", 5),
        (r"message !~* 'c:\\temp'", 4),
        (r"message ~* '\\'", 4),
        (r"message !~* '\\'", 2),
        (r"message ~* '\\\\'", 1),
        (r"message ~* '^a\\cd$'", 1),
        (r"message ~* '^A\\CD|PLAIN$'", 2),
        (r"message !~ '\\|%'", 1),
        (r"regexp_like(message, '\\')", 4),
        (r"regexp_like(message, 'C:\\t', 'i')", 2),
        (r"regexp_like(message, 'c:\\t', '')", 1),
        (r"message ~* ('c:' || '\\temp')", 2),
        (r"message ~* p", 2),
        (r"message !~ p", 5),
        (r"NULL::text ~* '\\'", 0),
        (r"message !~ NULL::text", 0),
    ] {
        for query in [
            format!("SELECT count(*) FROM {from} WHERE {condition}"),
            format!("SELECT count(CASE WHEN {condition} THEN 1 END) FROM {from}"),
        ] {
            assert_eq!(one(&bench, &query).await, count, "{query}");
        }
    }
    let by_parameter = "SELECT count(*) AS n FROM logs WHERE message ~* $1";
    let answer = asked(&bench, by_parameter, json!([r"c:\\temp"])).await.unwrap();
    assert_eq!(answer["data"][0]["n"], 2);
    let patterns_of_rows = r"SELECT count(*) FROM logs, (VALUES ('C:\\'), ('plain'), (NULL)) v(p) WHERE message ~* p";
    assert_eq!(one(&bench, patterns_of_rows).await, 3);
    for bad in [
        "message ~* '('",
        "message !~ 'a{2'",
        "regexp_like(message, '[', 'i')",
        "message ~ lower('(')",
    ] {
        let error = asked(&bench, &format!("SELECT 1 FROM logs WHERE {bad}"), json!([]))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), QueryErrorKind::Statement, "{bad}: {error:?}");
        assert!(
            error.to_string().contains("is not a regular expression"),
            "{bad}: {error}"
        );
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn similar_to_matches_the_whole_text_with_the_wildcards_of_sql() {
    let bench = of_messages(&["abc", "b", "a.c", "100%"]).await;
    for (condition, count) in [
        ("message SIMILAR TO '%b%'", 2),
        ("message SIMILAR TO 'b'", 1),
        ("message NOT SIMILAR TO 'b'", 3),
        ("message SIMILAR TO '(a|b)(bc|.c)?'", 3),
        ("message SIMILAR TO 'a_c'", 2),
        ("message SIMILAR TO '100#%' ESCAPE '#'", 1),
        ("message SIMILAR TO NULL", 0),
    ] {
        let query = format!("SELECT count(*) FROM logs WHERE {condition}");
        assert_eq!(one(&bench, &query).await, count, "{condition}");
    }
    let computed = "SELECT 1 FROM logs WHERE message SIMILAR TO level";
    let error = asked(&bench, computed, json!([])).await.unwrap_err();
    assert!(error.to_string().contains("match a computed one with ~"), "{error}");
    bench.close().await;
}
