//! What comes in over HTTP.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_posted_body_becomes_a_message_in_the_callers_trace() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime();
    runtime.apply(&push("h", &format!("{HTTP}{SINK}"), DOOR_TO_SINK)).await;
    let to = address(&bench, "door").await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let header = format!("traceparent: 00-{trace}-00f067aa0ba902b7-01\r\nContent-Type: text/plain\r\n");
    let answer = post(to, &header, b"hello there").await;
    assert_eq!(status(&answer), 202, "{answer}");
    assert_eq!(body(&answer)["trace_id"], trace);
    let unsampled = format!("traceparent: 00-{trace}-00f067aa0ba902b7-00\r\n");
    assert_eq!(status(&post(to, &unsampled, b"quiet one").await), 202);
    bench.says("sink", "quiet one").await;
    runtime.close().await;
    bench
        .wait("both spans", |bench| {
            (bench.rows(Table::Traces).len() >= 2).then_some(())
        })
        .await;
    let rows = bench.rows(Table::Logs);
    let record = rows.iter().find(|row| row["message"] == "hello there").unwrap();
    assert_eq!(record["flux_id"], body(&answer)["flux_id"]);
    assert_eq!(
        (&record["attributes"]["trace_id"], &record["attributes"]["content_type"]),
        (&trace.into(), &"text/plain".into())
    );
    let spans = bench.rows(Table::Traces);
    let door = spans.iter().find(|span| span["span_name"] == "http_in door").unwrap();
    assert_eq!((&door["parent_span_id"], spans.len()), (&"00f067aa0ba902b7".into(), 2));
    for (attribute, wanted) in [
        ("span.kind", "server".into()),
        ("http.request.method", "POST".into()),
        ("http.route", "/".into()),
        ("url.path", "/".into()),
        ("url.scheme", "http".into()),
        ("http.response.status_code", 202.into()),
        ("client.address", "127.0.0.1".into()),
        ("network.protocol.version", "1.1".into()),
        ("error.type", serde_json::Value::Null),
    ] {
        assert_eq!(door["attributes"][attribute], wanted, "{attribute}");
    }
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn http_in_refuses_what_it_cannot_pass_on_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench::open(folder.path());
    let mut runtime = bench.runtime_with(MessageLimits::new(64, 4096));
    let alone = "\n  - { name: alone, type: http_in, deploy: rack-a, config: { listen: '127.0.0.1:0' } }";
    runtime
        .apply(&push("h", &format!("{HTTP}{alone}{SINK}"), DOOR_TO_SINK))
        .await;
    let to = address(&bench, "door").await;
    for (request, wanted, says) in [
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
            405,
            "use POST",
        ),
        (
            "POST /other HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
            404,
            "taken at /",
        ),
        ("nonsense\r\n\r\n", 400, ""),
    ] {
        let answer = raw(to, request.as_bytes()).await;
        assert_eq!(status(&answer), wanted, "{answer}");
        assert!(answer.contains(says), "{answer}");
    }
    assert_eq!(status(&post(to, "", &vec![b'x'; 4097]).await), 413);
    // Far more than a socket holds: who still sends is answered, not cut off.
    assert_eq!(status(&post(to, "", &vec![b'x'; 16 << 20]).await), 413);
    let chunk = format!("1388\r\n{}\r\n0\r\n\r\n", "x".repeat(0x1388));
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n";
    let answer = raw(to, format!("{head}{chunk}").as_bytes()).await;
    assert_eq!((status(&answer), &body(&answer)["code"]), (413, &"too_large".into()));
    let nearly = post(to, "", &vec![b'x'; 4090]).await;
    assert_eq!((status(&nearly), &body(&nearly)["code"]), (413, &"too_large".into()));
    // The envelope counts: ids, facts and keys are some 300 bytes.
    assert_eq!(status(&post(to, "", &vec![b'x'; 3700]).await), 202);
    let alone = address(&bench, "alone").await;
    let answer = post(alone, "", b"x").await;
    assert_eq!((status(&answer), &body(&answer)["code"]), (503, &"unwired".into()));
    runtime.close().await;
    bench.close().await;
}
