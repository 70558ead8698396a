//! Iceberg's catalogue against roles and scopes: which tables a token finds in it.

use super::*;

const TABLES: &str = "/iceberg/v1/namespaces/telemetry/tables";

/// The answer to a token, or to nobody.
async fn read(api: &GuardedApi, path: &str, token: Option<&ApiToken>) -> (u16, Value) {
    let mut asked = request(&Method::GET, path);
    if let Some(token) = token {
        asked = asked.header(header::AUTHORIZATION, credential(token));
    }
    let (status, body) = api.fetch(asked, Body::empty()).await;
    (status.as_u16(), body)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_finds_the_tables_of_its_scope_and_its_refusals_are_icebergs() {
    let folder = tempfile::tempdir().unwrap();
    let mixer = whole_mixer(folder.path()).await;
    let api = GuardedApi::new(&mixer, folder.path());
    let all = api.token("all", &[AccessRole::Reader], AccessScope::default()).await;
    let listed = eventually("the first publication", || async {
        let (status, listed) = read(&api, TABLES, Some(&all)).await;
        (status == 200).then_some(listed)
    })
    .await;
    let names = |listed: &Value| -> Vec<String> {
        let identifiers = listed["identifiers"].as_array().unwrap().iter();
        identifiers
            .map(|table| table["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        names(&listed),
        ["dead_letters", "logs", "messages", "metrics", "traces"]
    );

    let scope = json!({ "tables": ["logs", "messages"] });
    let some = api.scoped("some", &[AccessRole::Reader], scope).await;
    let (_, listed) = read(&api, TABLES, Some(&some)).await;
    assert_eq!(names(&listed), ["logs", "messages"]);
    let scope = json!({ "entities": ["press-1"] });
    let one = api.scoped("one", &[AccessRole::Admin], scope).await;
    let ingester = api
        .token("ingester", &[AccessRole::Ingester], AccessScope::default())
        .await;
    for (token, table, status, kind) in [
        (Some(&all), "traces", 200, Value::Null),
        (Some(&some), "logs", 200, Value::Null),
        (Some(&some), "traces", 403, json!("ForbiddenException")),
        (Some(&some), "messages_orders", 404, json!("NoSuchTableException")),
        (Some(&some), "nothing", 404, json!("NoSuchTableException")),
        (Some(&one), "logs", 403, json!("ForbiddenException")),
        (Some(&one), "nothing", 403, json!("ForbiddenException")),
        (Some(&ingester), "logs", 403, json!("ForbiddenException")),
        (None, "logs", 401, json!("NotAuthorizedException")),
    ] {
        let (found, body) = read(&api, &format!("{TABLES}/{table}"), token).await;
        assert_eq!((found, &body["error"]["type"]), (status, &kind), "{table}: {body}");
    }
    let scope = json!({ "tables": ["traces"] });
    let traces = api.scoped("traces", &[AccessRole::Reader], scope).await;
    for table in ["messages", "messages_orders"] {
        let (status, body) = read(&api, &format!("{TABLES}/{table}"), Some(&traces)).await;
        assert_eq!(status, 403, "{table}: {body}");
    }
    let (_, body) = read(&api, TABLES, Some(&one)).await;
    let says = body["error"]["message"].as_str().unwrap();
    assert!(says.contains("rows of all entities"), "{says}");
    for (token, tables) in [(&all, 5), (&some, 2), (&traces, 1), (&one, 0)] {
        let (status, body) = read(&api, "/api/v1/catalog", Some(token)).await;
        let shown = body["data"]["tables"].as_array().map(Vec::len);
        assert_eq!((status, shown), (200, Some(tables)), "{body}");
        let reason = body["data"]["reason"].as_str().unwrap_or_default();
        assert_eq!(reason.contains("limited to some"), tables == 0, "{body}");
    }
    mixer.close().await;
}
