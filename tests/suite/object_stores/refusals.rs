//! What an S3 store refuses at the start: each refusal is an error at once, and names what to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use engine::{Error, RemoteErrorKind};
use harness::s3::{BUCKET, KEY, SECRET, client};
use harness::{Failure, binary, process};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::world::{Bucket, Machine};

/// A server that gives every request the same answer.
struct OneAnswer {
    url: String,
    requests: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for OneAnswer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl OneAnswer {
    async fn new(status: &'static str, body: String) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let requests = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                // A client that leaves early is not what is tried here.
                let _ = answer(stream, status, &body).await;
            }
        });
        Ok(Self { url, requests, task })
    }

    fn bucket(&self) -> Result<Bucket, Failure> {
        let store = client(&self.url, BUCKET, KEY, SECRET)?;
        Ok(Bucket::new(Arc::clone(&store) as _, Some(store)).under("refused"))
    }
}

/// Reads one request and answers it.
async fn answer(mut stream: TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    let head = loop {
        if let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    };
    let text = String::from_utf8_lossy(&request[..head]).to_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    while request.len() < head + length && stream.read_buf(&mut request).await? > 0 {}
    let all = format!(
        "HTTP/1.1 {status}\r\nETag: \"1\"\r\nContent-Type: application/xml\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(all.as_bytes()).await?;
    stream.shutdown().await
}

fn xml(code: &str) -> String {
    format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>no</Message><RequestId>1</RequestId></Error>")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_refusal_of_a_store_is_an_error_at_once_that_names_the_fix() -> Result<(), Failure> {
    use RemoteErrorKind::{ClockSkew, Denied, NoBucket, Unsupported, WrongRegion};
    for (status, code, trouble, fix) in [
        (
            "403 Forbidden",
            "RequestTimeTooSkewed",
            ClockSkew,
            "set this machine's clock",
        ),
        ("403 Forbidden", "InvalidAccessKeyId", Denied, "AWS_ACCESS_KEY_ID"),
        (
            "403 Forbidden",
            "SignatureDoesNotMatch",
            Denied,
            "AWS_SECRET_ACCESS_KEY",
        ),
        ("403 Forbidden", "AccessDenied", Denied, "read, write, list and delete"),
        ("400 Bad Request", "ExpiredToken", Denied, "AWS_SESSION_TOKEN"),
        ("400 Bad Request", "InvalidToken", Denied, "AWS_SESSION_TOKEN"),
        ("404 Not Found", "NoSuchBucket", NoBucket, "create it"),
        ("301 Moved Permanently", "PermanentRedirect", WrongRegion, "AWS_REGION"),
        (
            "400 Bad Request",
            "AuthorizationHeaderMalformed",
            WrongRegion,
            "AWS_REGION",
        ),
        (
            "400 Bad Request",
            "IllegalLocationConstraintException",
            WrongRegion,
            "AWS_REGION",
        ),
        ("501 Not Implemented", "NotImplemented", Unsupported, "If-None-Match"),
    ] {
        let server = OneAnswer::new(status, xml(code)).await?;
        let machine = Machine::new(&server.bucket()?, "one")?;
        match machine.open().await {
            Err(Error::Remote {
                trouble: found, reason, ..
            }) => {
                assert_eq!(found, trouble, "{code}: {reason}");
                assert!(reason.contains(fix) && !reason.contains(SECRET), "{code}: {reason}");
            }
            other => panic!("{code}: {other:?}"),
        }
        assert_eq!(
            server.requests.load(Ordering::Relaxed),
            1,
            "{code} is not worth another try"
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_ignores_the_condition_of_a_put_is_refused() -> Result<(), Failure> {
    let server = OneAnswer::new(
        "200 OK",
        "<DeleteResult><Deleted><Key>probe</Key></Deleted></DeleteResult>".to_owned(),
    )
    .await?;
    let machine = Machine::new(&server.bucket()?, "one")?;
    let refused = machine.open().await.map(|_| ()).unwrap_err();
    assert!(
        matches!(
            &refused,
            Error::Remote {
                trouble: RemoteErrorKind::Unsupported,
                ..
            }
        ),
        "{refused}"
    );
    assert!(refused.to_string().contains("If-None-Match"), "{refused}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixer_says_in_one_line_why_it_does_not_start_with_its_bucket() -> Result<(), Failure> {
    for (code, exit, fix) in [
        ("RequestTimeTooSkewed", 69, "set this machine's clock"),
        ("InvalidAccessKeyId", 77, "AWS_ACCESS_KEY_ID"),
    ] {
        let server = OneAnswer::new("403 Forbidden", xml(code)).await?;
        let folder = tempfile::tempdir()?;
        let url = server.url.clone();
        let ran = tokio::task::spawn_blocking(move || {
            let bucket = format!("s3://{BUCKET}/refused");
            let envs = [
                ("AWS_ACCESS_KEY_ID", KEY),
                ("AWS_SECRET_ACCESS_KEY", SECRET),
                ("AWS_ENDPOINT_URL", url.as_str()),
                ("PLATFORM_OBSERVABILITY_EMBEDDED_STORAGE_URL", bucket.as_str()),
                ("PLATFORM_API_PORT", "0"),
                ("PLATFORM_SNAKE_PORT", "0"),
            ];
            process::run(&binary("platform-mixer")?, &[], folder.path(), &envs)
        });
        let ran = ran.await??;
        assert_eq!(ran.code, Some(exit), "{}", ran.err);
        assert!(ran.err.contains(fix) && !ran.err.contains(SECRET), "{}", ran.err);
    }
    Ok(())
}
