//! What clients may take: places, time, rows; and that what is cancelled or left ends.

use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use harness::Failure;
use serde_json::json;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::wire::send_startup;
use super::{ENDLESS, SOON, connect, fill, mixer, run, told};

/// Asks until the one place of a query is taken.
async fn until_busy(client: &Client) -> Result<(), Failure> {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        if let Err(error) = client.simple_query("SELECT 1").await {
            assert_eq!(told(&error).0, "53000");
            return Ok(());
        }
    }
    Err("the other query never ran".into())
}

/// Asks until the one place of a query is free.
async fn until_free(client: &Client) -> Result<(), Failure> {
    until_answered(client, "53000").await
}

/// Asks until the threads are free again. How soon is not these tests': a busy machine's come to an end later; till then this may be
/// the answer.
async fn until_answered(client: &Client, till_then: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + SOON;
    while let Err(error) = client.simple_query("SELECT 1").await {
        assert_eq!(told(&error).0, till_then);
        if Instant::now() > deadline {
            return Err("the other query never ended".into());
        }
    }
    Ok(())
}

/// Asks what has no end, and again while the place is a probe's just then; what it ends with.
async fn ask_endless(client: &Client, extended: bool) -> Option<tokio_postgres::Error> {
    loop {
        let error = if extended {
            client.query(ENDLESS, &[]).await.err()
        } else {
            client.simple_query(ENDLESS).await.err()
        };
        let code = error.as_ref().and_then(tokio_postgres::Error::code);
        if code.is_none_or(|code| code.code() != "53000") {
            return error;
        }
    }
}

#[test]
fn it_listens_where_the_keys_say_and_nowhere_without_them() -> Result<(), Failure> {
    let silent = harness::TestMixer::with(&[], &[])?;
    assert_eq!(silent.postgres, None);
    let mixer = mixer(&[("postgres.host", "\"127.0.0.9\"")])?;
    assert_eq!(
        mixer.postgres.map(|address| address.ip().to_string()).as_deref(),
        Some("127.0.0.9")
    );
    run(async {
        connect(&mixer).await?.simple_query("SELECT 1").await?;
        Ok(())
    })?;
    let port = mixer
        .postgres
        .map(|address| address.port().to_string())
        .unwrap_or_default();
    let taken = harness::TestMixer::with(
        &[
            ("postgres.host", "\"127.0.0.9\""),
            ("postgres.enabled", "true"),
            ("postgres.port", &port),
        ],
        &[],
    );
    let error = taken.err().ok_or("two listen at one place")?.to_string();
    assert!(error.contains("postgres.port"), "{error}");
    Ok(())
}

#[test]
fn a_cancelled_statement_ends_and_so_does_one_whose_client_has_gone() -> Result<(), Failure> {
    // No statement ends by its time within that of the test.
    let mixer = mixer(&[("query.max_concurrent", "1"), ("query.timeout", "\"10m\"")])?;
    fill(&mixer, 200)?;
    run(async {
        let (first, second) = (connect(&mixer).await?, connect(&mixer).await?);
        for extended in [false, true] {
            let cancel = first.cancel_token();
            let asked = async { ask_endless(&first, extended).await.ok_or("it ended by itself") };
            let cancelled = async {
                until_busy(&second).await?;
                Ok::<_, Failure>(cancel.cancel_query(NoTls).await?)
            };
            let (error, cancelled) = tokio::join!(asked, cancelled);
            cancelled?;
            assert_eq!(told(&error?).0, "57014", "extended: {extended}");
            until_free(&second).await?;
            first.simple_query("SELECT 1").await?;
        }
        let address = mixer.postgres.ok_or("no port")?;
        let config = format!("host={} port={} user=a", address.ip(), address.port());
        let (leaving, connection) = tokio_postgres::connect(&config, NoTls).await?;
        let connection = tokio::spawn(connection);
        let asking = tokio::spawn(async move { ask_endless(&leaving, false).await });
        until_busy(&second).await?;
        connection.abort();
        let _ = asking.await?;
        until_free(&second).await?;
        Ok(())
    })
}

/// The first value of what a text answers.
async fn first(client: &Client, text: &str) -> Result<String, tokio_postgres::Error> {
    let answers = client.simple_query(text).await?;
    let value = answers.iter().find_map(|answer| match answer {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    Ok(value.unwrap_or("no row").to_owned())
}

#[test]
fn a_cursor_that_cannot_run_now_runs_later() -> Result<(), Failure> {
    let mixer = mixer(&[("query.max_concurrent", "1"), ("query.timeout", "\"10m\"")])?;
    fill(&mixer, 200)?;
    run(async {
        let (client, other) = (connect(&mixer).await?, connect(&mixer).await?);
        let declared = "DECLARE late CURSOR WITH HOLD FOR SELECT $1::text AS said";
        client.execute(declared, &[&"kept"]).await?;
        let cancel = other.cancel_token();
        let asked = async { ask_endless(&other, false).await.ok_or("it ended by itself") };
        let refused = async {
            until_busy(&client).await?;
            for text in ["FETCH late", "MOVE late"] {
                let error = first(&client, text).await.err().ok_or("it ran")?;
                assert_eq!(told(&error).0, "53000", "{text}");
            }
            Ok::<_, Failure>(cancel.cancel_query(NoTls).await?)
        };
        let (cancelled, refused) = tokio::join!(asked, refused);
        refused?;
        assert_eq!(told(&cancelled?).0, "57014");
        until_free(&client).await?;
        assert_eq!(first(&client, "FETCH late").await?, "kept");
        Ok(())
    })?;
    let mixer = super::mixer(&[])?;
    run(async {
        let client = connect(&mixer).await?;
        for name in ["a", "b", "c"] {
            let text = format!("DECLARE {name} CURSOR WITH HOLD FOR VALUES ('{name}'), ('2'), ('3')");
            client.simple_query(&text).await?;
        }
        assert_eq!(first(&client, "FETCH a").await?, "a");
        assert_eq!(first(&client, "FETCH b").await?, "b");
        let third = first(&client, "FETCH c").await.err().ok_or("three have rows left")?;
        assert_eq!(told(&third).0, "54000");
        client.simple_query("CLOSE a").await?;
        assert_eq!(first(&client, "FETCH c").await?, "c");
        // One whose query failed has no rows that could look like all.
        let failing = "DECLARE bad CURSOR WITH HOLD FOR SELECT 1 / (n - 1) FROM (VALUES (1)) v (n)";
        client.simple_query(&format!("CLOSE b; {failing}")).await?;
        for code in ["22012", "34000"] {
            let error = first(&client, "FETCH bad").await.err().ok_or("it has rows")?;
            assert_eq!(told(&error).0, code);
        }
        Ok(())
    })
}

#[test]
fn a_statement_ends_at_its_timeout_or_at_the_clients() -> Result<(), Failure> {
    let limited = mixer(&[("query.timeout", "\"300ms\"")])?;
    fill(&limited, 200)?;
    run(async {
        let client = connect(&limited).await?;
        let error = client.query(ENDLESS, &[]).await.err().ok_or("it ended")?;
        let (code, message, _) = told(&error);
        assert_eq!(code, "57014");
        assert!(message.contains("query.timeout"), "{message}");
        // On a busy machine these 300 ms may end before the threads are free.
        until_answered(&client, "57014").await
    })?;
    let mixer = mixer(&[])?;
    fill(&mixer, 200)?;
    run(async {
        let client = connect(&mixer).await?;
        client.simple_query("SET statement_timeout = '100ms'").await?;
        let error = client.simple_query(ENDLESS).await.err().ok_or("it ended")?;
        assert_eq!(told(&error).0, "57014");
        client.simple_query("SET statement_timeout = 0").await?;
        let wrong = client
            .simple_query("SET statement_timeout = 'soon'")
            .await
            .err()
            .ok_or("it passes")?;
        assert_eq!(told(&wrong).0, "22023");
        Ok(())
    })
}

#[test]
fn a_statement_has_the_timeout_that_is_set_when_it_begins_also_within_one_text() -> Result<(), Failure> {
    let mixer = mixer(&[("query.timeout", "\"20s\"")])?;
    fill(&mixer, 200)?;
    let quick = "SELECT count(*) FROM logs a, logs b WHERE a.message || b.message < a.message";
    run(async {
        for text in [
            format!("SET statement_timeout = '20ms'; {ENDLESS}"),
            format!("SET LOCAL statement_timeout = '20ms'; {ENDLESS}"),
            format!("BEGIN; SET LOCAL statement_timeout = '20ms'; {ENDLESS}; COMMIT"),
            format!("SELECT set_config('statement_timeout', '20ms', false); {ENDLESS}"),
            format!("SELECT pg_catalog.set_config('statement_timeout', '20ms', true); {ENDLESS}"),
        ] {
            let client = connect(&mixer).await?;
            let error = client.simple_query(&text).await.err().ok_or("it ended")?;
            let (code, message, _) = told(&error);
            assert_eq!(
                (code.as_str(), message.contains("statement timeout")),
                ("57014", true),
                "{text}: {message}"
            );
            // What a text set that failed is as it was before.
            client.simple_query("ROLLBACK").await?;
            client.simple_query(quick).await?;
        }
        let client = connect(&mixer).await?;
        client.simple_query("SET statement_timeout = 1").await?;
        client
            .simple_query(&format!("SET statement_timeout = 0; {quick}"))
            .await?;
        client
            .simple_query("BEGIN; SET LOCAL statement_timeout = 1; COMMIT")
            .await?;
        client.simple_query(quick).await?;
        for (text, class) in [
            ("SELECT set_config('TimeZone', 'Europe/Berlin', false)", "22023"),
            ("SELECT set_config('statement_timeout', '1', false), 1", "42883"),
        ] {
            let error = client.simple_query(text).await.err().ok_or("it passes")?;
            assert_eq!(told(&error).0, class, "{text}");
        }
        let set = client
            .query_one("SELECT set_config('application_name', 'a', false)", &[])
            .await?;
        assert_eq!(set.get::<_, String>(0), "a");
        // What drivers ask about a planner of another kind.
        let set = client
            .query_one(
                "SELECT current_setting('jit') AS cur, set_config('jit', 'off', false) AS new",
                &[],
            )
            .await?;
        assert_eq!(set.get::<_, Option<String>>(0), None);
        assert_eq!(set.get::<_, String>(1), "off");
        Ok(())
    })
}

#[test]
fn an_answer_with_too_many_rows_ends_with_an_error_and_never_looks_whole() -> Result<(), Failure> {
    let mixer = mixer(&[("query.max_rows", "3")])?;
    run(async {
        let client = connect(&mixer).await?;
        assert_eq!(client.query("VALUES (1), (2), (3)", &[]).await?.len(), 3);
        for extended in [false, true] {
            let text = "VALUES (1), (2), (3), (4)";
            let error = if extended {
                client.query(text, &[]).await.err()
            } else {
                client.simple_query(text).await.err()
            };
            let (code, message, _) = told(&error.ok_or("it looks whole")?);
            assert_eq!(code, "54000");
            assert!(message.contains("query.max_rows"), "{message}");
        }
        Ok(())
    })
}

#[test]
fn a_partial_answer_comes_with_a_warning_and_one_that_needs_no_rows_does_not() -> Result<(), Failure> {
    let mut mixer = mixer(&[])?;
    fill(&mixer, 5)?;
    mixer.lose_a_file("logs")?;
    run(async {
        let address = mixer.postgres.ok_or("no port")?;
        let config = format!("host={} port={} user=a", address.ip(), address.port());
        let (client, mut connection) = tokio_postgres::connect(&config, NoTls).await?;
        let (to, notices) = std::sync::mpsc::channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
                if let tokio_postgres::AsyncMessage::Notice(notice) = message {
                    let _ = to.send(notice);
                }
            }
        });
        for extended in [false, true] {
            let text = "SELECT message FROM logs";
            if extended {
                client.query(text, &[]).await?;
            } else {
                client.simple_query(text).await?;
            }
            let notice = notices
                .try_recv()
                .map_err(|_| format!("extended {extended}: no word"))?;
            assert_eq!((notice.severity(), notice.code().code()), ("WARNING", "01000"));
            assert!(notice.message().contains("the answer is partial"), "{notice}");
            client.simple_query("SELECT 1").await?;
            assert!(
                notices.try_recv().is_err(),
                "extended {extended}: told twice, or of no rows"
            );
        }
        Ok(())
    })
}

#[test]
fn a_caller_beyond_half_of_the_connections_is_refused_until_one_leaves_and_others_are_not() -> Result<(), Failure> {
    let mixer = mixer(&[])?;
    let made = mixer
        .api
        .post("/api/v1/tokens", &json!({ "name": "grafana", "roles": ["reader"] }))?;
    let token = made.json["data"]["token"].as_str().ok_or("no token")?.to_owned();
    run(async {
        let mut clients = Vec::new();
        for _ in 0..50 {
            clients.push(connect(&mixer).await?);
        }
        let refused = connect(&mixer).await.err().ok_or("there is no bound")?;
        let refused = refused.downcast::<tokio_postgres::Error>()?;
        assert_eq!(told(&refused).0, "53300");
        let address = mixer.postgres.ok_or("no port")?;
        let config = format!(
            "host={} port={} user=grafana password={token}",
            address.ip(),
            address.port()
        );
        let mut others = Vec::new();
        for _ in 0..50 {
            let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
            tokio::spawn(connection);
            others.push(client);
        }
        let refused = tokio_postgres::connect(&config, NoTls).await;
        assert_eq!(told(&refused.err().ok_or("there is no bound")?).0, "53300");
        clients[37].simple_query("SELECT 1").await?;
        clients.pop();
        let deadline = Instant::now() + SOON;
        while connect(&mixer).await.is_err() {
            assert!(Instant::now() < deadline, "the place never came back");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    })
}

#[test]
fn silent_connections_keep_an_honest_client_out_no_longer_than_they_may_be_silent() -> Result<(), Failure> {
    // 15 s, and as much again for a busy machine.
    const LONGEST: Duration = Duration::from_secs(30);
    let mixer = mixer(&[])?;
    let address = mixer.postgres.ok_or("no port")?;
    // More than there are places: the system's queue has the last ones, and the honest client behind them.
    let opened: Result<Vec<_>, _> = (0..140).map(|_| TcpStream::connect(address)).collect();
    let mut silent = opened?;
    run(async {
        let honest = tokio::time::timeout(LONGEST, connect(&mixer)).await;
        let honest = honest.map_err(|_| "an honest client is kept out")??;
        honest.simple_query("SELECT 1").await?;
        Ok(())
    })?;
    let first = silent.first_mut().ok_or("none is open")?;
    first.set_read_timeout(Some(SOON))?;
    let mut said = Vec::new();
    first.read_to_end(&mut said)?;
    let said = String::from_utf8_lossy(&said);
    assert!(
        said.contains("\0C08P01\0") && said.contains("did not come in time"),
        "{said:?}"
    );
    Ok(())
}

#[test]
fn who_says_late_who_it_is_has_no_more_time_for_its_password() -> Result<(), Failure> {
    let mixer = mixer(&[("api.auth", "\"tokens\"")])?;
    let address = mixer.postgres.ok_or("no port")?;
    let (ended, first) = std::sync::mpsc::channel();
    let ends = |name: &'static str, mut stream: TcpStream| {
        let ended = ended.clone();
        std::thread::spawn(move || {
            // An error is an end as well.
            let _ = stream.read_to_end(&mut Vec::new());
            let _ = ended.send(name);
        })
    };
    let mut late = TcpStream::connect(address)?;
    let waiting = ends("late", late.try_clone()?);
    // What passes between them is what the test is about: the silent one comes between the two messages of the other.
    std::thread::sleep(Duration::from_secs(3));
    let silent = ends("silent", TcpStream::connect(address)?);
    std::thread::sleep(Duration::from_secs(4));
    send_startup(&mut late, "a", b"")?;
    assert_eq!(first.recv_timeout(SOON)?, "late", "it came first, so it goes first");
    for thread in [waiting, silent] {
        thread.join().map_err(|_| "a reader failed")?;
    }
    Ok(())
}

#[test]
fn a_mixer_that_stops_tells_its_clients() -> Result<(), Failure> {
    let mut mixer = mixer(&[])?;
    let address = mixer.postgres.ok_or("no port")?;
    let config = format!("host={} port={} user=a", address.ip(), address.port());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let (idle, connection) = runtime.block_on(tokio_postgres::connect(&config, NoTls))?;
    let told_so = runtime.spawn(connection);
    mixer.process()?.terminate(SOON)?;
    let error = runtime
        .block_on(told_so)?
        .err()
        .ok_or("the connection ended without a word")?;
    assert_eq!(told(&error).0, "57P01");
    drop(idle);
    Ok(())
}

#[test]
fn a_statement_beyond_a_quota_of_its_token_is_refused_and_the_session_goes_on() -> Result<(), Failure> {
    let mixer = mixer(&[("quotas.requests", "1")])?;
    let made = mixer
        .api
        .post("/api/v1/tokens", &json!({ "name": "grafana", "roles": ["reader"] }))?;
    let token = made.json["data"]["token"].as_str().ok_or("no token")?;
    let address = mixer.postgres.ok_or("no port")?;
    let config = format!(
        "host={} port={} user=grafana password={token}",
        address.ip(),
        address.port()
    );
    run(async {
        let (client, connection) = tokio_postgres::connect(&config, NoTls).await?;
        tokio::spawn(connection);
        let mut refused = None;
        for _ in 0..1_000 {
            refused = client.simple_query("SELECT 1").await.err();
            if refused.is_some() {
                break;
            }
        }
        let (code, message, _) = told(&refused.ok_or("there is no bound")?);
        assert_eq!(code, "53400", "{message}");
        assert!(
            message.contains("grafana") && message.contains("quotas.requests"),
            "{message}"
        );
        client.simple_query("SHOW server_version").await?;
        let own = connect(&mixer).await?;
        own.simple_query("SELECT 1").await?;
        Ok(())
    })
}
