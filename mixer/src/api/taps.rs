//! `GET /api/v1/racks/{id}/tap?port=gear.port`: messages as they leave an output port, as server-sent events.
//!
//! | event | data |
//! |---|---|
//! | none | a message: when it passed, its signal, its facts, its body |
//! | `lagged` | `missed`: so many messages passed and are not shown |
//! | `error` | `detail`: why the stream ends |
//!
//! | `encoding` | `body` |
//! |---|---|
//! | `json` | the message's value |
//! | `text` | its bytes, or the beginning of its value, as text |
//! | `hex` | its bytes |
//!
//! # Invariants
//!
//! - An answer with status 200 begins when the Rack has begun to show what passes.
//!
//! # Not here
//!
//! How a watcher that is too slow is kept from slowing anything ([`crate::control`]).

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use model::Token;
use model::hex;
use model::scenario::GearPort;
use model::tap::TapSample;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::authorization::RequestCaller;
use super::problem::ApiProblem;
use super::query_params::{InPath, QueryParams, in_path};
use super::server::ShutdownToken;
use super::tail::{ended, event_stream};
use crate::control::{ControlPlane, TapEvent, TapStream};
use crate::quotas::QuotaPlaces;

/// How long a stream is silent at most.
const HEARTBEAT: Duration = Duration::from_secs(15);

pub(crate) fn routes(control: Arc<ControlPlane>, tasks: TaskTracker) -> Router {
    Router::new()
        .route("/api/v1/racks/{id}/tap", get(tap))
        .with_state((control, tasks))
}

/// What is watched.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TapParams {
    port: Option<GearPort>,
}

async fn tap(
    State((control, tasks)): State<(Arc<ControlPlane>, TaskTracker)>,
    stopping: Extension<ShutdownToken>,
    RequestCaller(caller): RequestCaller,
    id: InPath,
    params: QueryParams,
) -> Result<Response, ApiProblem> {
    let id = in_path("id", id)?;
    if !caller.scope.entities.is_empty() || !caller.scope.racks.is_empty() {
        let (rack, known) = (id.clone(), Arc::clone(&control));
        let rack = tokio::task::spawn_blocking(move || known.rack(&rack)).await;
        let rack = rack.map_err(|error| ApiProblem::internal(format!("the read task failed: {error}")))??;
        if !caller.scope.has_rack(&rack.labels) {
            return Err(ApiProblem::forbidden(
                "the Rack does not have the labels of the token's scope",
            ));
        }
        if !caller.scope.has_entity(&rack.id.to_string(), rack.name.as_str()) {
            return Err(ApiProblem::forbidden(
                "the token's scope does not have the Rack among its entities",
            ));
        }
    }
    let place = match &caller.usage {
        Some(usage) => Some(usage.place(QuotaPlaces::Taps).ok_or_else(ApiProblem::too_many_taps)?),
        None => None,
    };
    let stream = control.tap(&id, output(params)?, tasks).await?;
    let hello = futures::stream::iter([Ok(Bytes::from_static(b": watching\n\n"))]);
    let pieces = futures::stream::unfold((stream, place), |(mut stream, place)| async move {
        let piece = next(&mut stream).await?;
        Some((Ok::<Bytes, Infallible>(piece), (stream, place)))
    });
    let pieces = futures::StreamExt::chain(hello, pieces);
    let Extension(ShutdownToken(stop)) = stopping;
    let until_stopped = futures::StreamExt::take_until(pieces, ended(stop, &caller));
    Ok(event_stream(Body::from_stream(until_stopped)))
}

/// The gear and the port that are asked for.
fn output(params: QueryParams) -> Result<(Token, Token), ApiProblem> {
    match params.filter::<TapParams>()?.port {
        Some(GearPort { rack: None, gear, port }) => Ok((gear, port)),
        Some(GearPort { rack: Some(_), .. }) => {
            let reason = "the Rack is named in the path: port=gear.port";
            Err(ApiProblem::parameter("port", reason))
        }
        None => Err(ApiProblem::parameter("port", "it is missing: port=gear.port")),
    }
}

async fn next(stream: &mut TapStream) -> Option<Bytes> {
    let Ok(news) = tokio::time::timeout(HEARTBEAT, stream.next()).await else {
        return Some(Bytes::from_static(b": hb\n\n"));
    };
    let text = match news? {
        TapEvent::Sample(sample) => format!("data: {}\n\n", row(*sample)),
        TapEvent::Missed(missed) => event("lagged", &json!({ "missed": missed })),
        TapEvent::Ended(detail) => event("error", &json!({ "detail": detail })),
    };
    Some(text.into())
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// A message under the names that the table of messages has, where it has them.
fn row(sample: TapSample) -> Value {
    let (encoding, body) = shown(&sample);
    json!({
        "ts": sample.ts,
        "flux_id": sample.flux_id,
        "message_id": sample.id,
        "content_type": sample.meta.get("content_type"),
        "meta": sample.meta,
        "meta_cut": sample.is_meta_cut,
        "encoding": encoding,
        "body": body,
        "bytes": sample.size,
        "cut": sample.is_cut,
    })
}

/// A value as it is, text as text, and other bytes in hexadecimal.
fn shown(sample: &TapSample) -> (&'static str, Value) {
    if sample.is_value
        && !sample.is_cut
        && let Ok(value) = serde_json::from_slice(&sample.body)
    {
        return ("json", value);
    }
    match text(&sample.body, sample.is_cut) {
        Some(text) => ("text", text.into()),
        None => ("hex", hex::encode(&sample.body).into()),
    }
}

/// Bytes as text, but for a character that was cut in two.
fn text(bytes: &[u8], is_cut: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if is_cut && error.error_len().is_none() => {
            std::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use model::{Attributes, FluxId, MessageId, Timestamp};

    use super::*;

    #[test]
    fn a_body_is_its_value_its_text_or_its_bytes_in_hexadecimal() {
        let ts = Timestamp::from_micros(1_763_728_200_000_000);
        let sample = |body: &[u8], is_value: bool, is_cut: bool| TapSample {
            number: 1,
            ts,
            id: MessageId::at(ts, [1; 10]),
            flux_id: FluxId::at(ts, [1; 10]),
            meta: Attributes::new().with("content_type", "text/x"),
            is_meta_cut: false,
            is_value,
            body: body.to_vec(),
            size: Some(9),
            is_cut,
        };
        for (body, is_value, is_cut, wanted) in [
            (&b"{\"a\":1}"[..], true, false, json!(["json", { "a": 1 }])),
            (b"{\"a\":1}", false, false, json!(["text", "{\"a\":1}"])),
            (b"{\"a\":\"\xc3", true, true, json!(["text", "{\"a\":\""])),
            (b"a\xc3", false, false, json!(["hex", "61c3"])),
            (b"\xff\xc3", false, true, json!(["hex", "ffc3"])),
            (b"", false, false, json!(["text", ""])),
        ] {
            let row = row(sample(body, is_value, is_cut));
            assert_eq!(json!([row["encoding"], row["body"]]), wanted);
            assert_eq!((&row["content_type"], &row["cut"]), (&json!("text/x"), &json!(is_cut)));
        }
    }
}
