//! What the client of the API sends, and what it makes of answers.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpListener;

use model::filter::LogFilter;

use super::*;
use crate::args::OutputFormat;

/// An API that answers one request so, and holds the connection.
fn answering(answer: &'static str) -> ApiArgs {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let api_url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut peer, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = peer.read(&mut request);
        let _ = peer.write_all(answer.as_bytes());
        let _ = peer.read(&mut request);
    });
    ApiArgs {
        api_url: Some(api_url),
        output: OutputFormat::Json,
        utc: true,
        no_pager: true,
        wide: true,
    }
}

#[test]
fn a_response_timeout_is_not_called_unreachable_and_not_retried_at_once() {
    for answer in ["", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n[1"] {
        let client = ApiClient::within(&answering(answer), Duration::from_millis(300));
        let error = client.get_any_status("/api/v1/storage").unwrap_err();
        assert!(matches!(error, Error::Slow { .. }), "{error}");
        assert_eq!((error.exit_code(), error.is_unavailable()), (69, false));
        assert!(error.is_transient());
    }
}

#[test]
fn an_oversized_response_is_not_called_unreachable() {
    let args = answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n[100]");
    let client = ApiClient {
        largest: 4,
        ..ApiClient::new(&args)
    };
    let error = client.get_any_status("/api/v1/storage").unwrap_err();
    assert!(matches!(error, Error::Answer(_)), "{error}");
    assert_eq!((error.exit_code(), error.is_unavailable()), (65, false));
}

#[test]
fn every_entry_of_a_family_is_a_parameter() {
    let attributes = [("http.status", "500"), ("a", "<key>")];
    let filter = LogFilter {
        attributes: attributes.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
        not_entity: BTreeSet::from(["x", "y"].map(str::to_owned)),
        not_attributes: [("b".to_owned(), BTreeSet::from(["1", "2"].map(str::to_owned)))].into(),
        limit: Some(7),
        ..LogFilter::default()
    };
    let mut given = parameters(&filter).unwrap();
    given.sort();
    let expected = [
        ("attr.a", "<key>"),
        ("attr.http.status", "500"),
        ("limit", "7"),
        ("not.attr.b", "1"),
        ("not.attr.b", "2"),
        ("not.entity", "x"),
        ("not.entity", "y"),
    ];
    assert_eq!(given, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn a_name_is_one_segment_of_a_path_whatever_is_in_it() {
    assert_eq!(path_segment("http.server_req-dur~1"), "http.server_req-dur~1");
    assert_eq!(path_segment("a/b c%?#ü"), "a%2Fb%20c%25%3F%23%C3%BC");
}
