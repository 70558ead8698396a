//! `http_get` against real servers in a real runtime.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use hyper::header::IF_MODIFIED_SINCE;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::gears::testing::Flow;
use crate::gears::testing::http_server::{Server, answer, answers};

/// A gear `get` that polls a server, before a sink.
async fn start(at: std::net::SocketAddr, config: &str) -> Flow {
    let gears = format!(
        "
  - {{ name: get, type: http_get, deploy: rack-a, config: {{ url: 'http://{at}/state?token=hush', every: 1ms, {config} }} }}
  - {{ name: sink, type: log_sink, deploy: rack-a }}"
    );
    Flow::start(&gears, "{ from: get.out, to: sink.in }").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_answer_is_a_message_with_metadata_and_an_unchanged_one_is_none() {
    let etag = |tag| vec![("etag", tag), ("content-type", "application/json")];
    let since = [
        ("last-modified", "Sun, 22 Nov 2026 10:00:00 GMT"),
        ("date", "Sun, 22 Nov 2026 10:00:01 GMT"),
    ];
    let just_now = [
        ("last-modified", "Sun, 22 Nov 2026 10:00:01 GMT"),
        ("date", "Sun, 22 Nov 2026 10:00:01 GMT"),
    ];
    let mut server = Server::start(answers(vec![
        answer(200, &etag("\"a\""), "one"),
        answer(304, &[], ""),
        // From a server that does not care what it is asked.
        answer(200, &etag("\"a\""), "one"),
        answer(203, &etag("W/\"b\""), "two"),
        answer(200, &since, "three"),
        answer(304, &[], ""),
        answer(200, &just_now, "four"),
        answer(200, &[], "four"),
    ]))
    .await;
    let config = "headers: { authorization: 'Bearer ${CARGO_PKG_NAME}' }";
    let mut flow = start(server.at, config).await;
    flow.reach("sink", 5).await;
    flow.stop().await;
    let rows = flow.rows("sink");
    let texts: Vec<_> = rows.iter().map(|row| row["message"].as_str().unwrap()).collect();
    assert_eq!(texts[..5], ["one", "two", "three", "four", "four"]);
    let facts = &rows[1]["attributes"];
    assert_eq!(
        (
            &facts["http.response.status_code"],
            &facts["content_type"],
            &facts["http.response.header.etag"]
        ),
        (&json!(203), &json!("application/json"), &json!("W/\"b\""))
    );
    let mut asked = Vec::new();
    for _ in 0..8 {
        let seen = server.next().await;
        assert_eq!((seen.method.as_str(), seen.uri.as_str()), ("GET", "/state?token=hush"));
        assert_eq!(seen.headers["authorization"], "Bearer platform-rack");
        let text = |name| {
            seen.headers
                .get(name)
                .map(|value: &HeaderValue| value.to_str().unwrap().to_owned())
        };
        asked.push((text(IF_NONE_MATCH), text(IF_MODIFIED_SINCE)));
    }
    let [none, a, b] = [None, Some("\"a\"".to_owned()), Some("W/\"b\"".to_owned())];
    let since = Some(since[0].1.to_owned());
    let by_etag = [&none, &a, &a, &a, &b, &none, &none, &none].map(Clone::clone);
    let by_time = [&none, &none, &none, &none, &none, &since, &since, &none].map(Clone::clone);
    assert_eq!(asked, by_etag.into_iter().zip(by_time).collect::<Vec<_>>());
    assert_eq!(flow.counter("get", "gear.errors"), 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_poll_is_counted_logged_without_the_query_and_retried() {
    let server = Server::start(answers(vec![
        answer(503, &[("retry-after", "0")], "busy"),
        answer(404, &[], "no"),
        answer(302, &[("location", "/x")], ""),
        answer(304, &[], ""),
        answer(200, &[], "0123456789"),
        answer(200, &[("etag", "\"x\"")], "good"),
    ]))
    .await;
    let mut flow = start(server.at, "max_body: 9").await;
    flow.reach("sink", 1).await;
    flow.hears("get", "answers again").await;
    flow.stop().await;
    let at = server.at;
    for said in [
        format!("cannot poll http://{at}/state: it answered 503 Service Unavailable; retrying in 1ms"),
        format!("cannot poll http://{at}/state: it answered 404 Not Found; retrying in 2ms"),
        "redirects are not followed; set url to where it leads; retrying in 4ms".to_owned(),
        "it answered 304 Not Modified, though no answer is known that it could mean; retrying in 8ms".to_owned(),
        "its answer has more than 9 bytes; raise max_body; retrying in 16ms".to_owned(),
    ] {
        assert!(flow.says("get", &said), "{said}");
    }
    assert!(!flow.says("get", "hush"));
    assert_eq!(flow.counter("get", "gear.errors"), 5.0);
    assert_eq!(flow.rows("sink")[0]["message"], "good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_speaks_no_http_is_silent_or_hangs_up_does_not_end_the_gear() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut silent = Vec::new();
        let bad = [Some(&b"\0\xff garbage"[..]), None, Some(b"")];
        // Good from then on: a slow machine may give up on the first good answer.
        let good = Some(&b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood"[..]);
        for behaviour in bad.into_iter().chain(std::iter::repeat(good)) {
            let (mut stream, _) = listener.accept().await.unwrap();
            match behaviour {
                Some(bytes) => {
                    // Who gave up has closed it.
                    let _count = stream.read(&mut [0; 4096]).await;
                    stream.write_all(bytes).await.ok();
                }
                None => silent.push(stream),
            }
        }
    });
    let mut flow = start(at, "timeout: 300ms").await;
    flow.reach("sink", 1).await;
    flow.stop().await;
    server.abort();
    assert!(flow.says("get", "no answer within 300ms"));
    assert_eq!(flow.rows("sink")[0]["message"], "good");
}

#[test]
fn the_pause_grows_to_a_bound_and_is_what_the_server_asks_for_but_no_shorter_than_the_interval() {
    let every = Duration::from_secs(60);
    let pauses = [1, 2, 3, 4, 5, 40].map(|failures| pause_after(failures, every, None).as_secs());
    assert_eq!(pauses, [60, 120, 240, 480, 900, 900]);
    assert_eq!(pause_after(9, every * 60, None), every * 60);
    assert_eq!(pause_after(9, every, Some(Duration::from_secs(120))), every * 2);
    assert_eq!(pause_after(1, every, Some(Duration::ZERO)), every);
}
