//! Parses the ingest headers of a request.

use http::{HeaderMap, StatusCode};
use model::EntityId;
use model::telemetry_codec::{self, BatchEncoding, PublisherIdentity};

use crate::api::problem::ApiProblem;

/// The publisher of those that do not name themselves.
pub(super) const NAMELESS: &str = "http";

fn text<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, ApiProblem> {
    let value = headers.get(name).map(|value| std::str::from_utf8(value.as_bytes()));
    value
        .transpose()
        .map_err(|_| ApiProblem::parameter(name, "it is not UTF-8"))
}

pub(super) fn encoding(headers: &HeaderMap) -> Result<BatchEncoding, ApiProblem> {
    let unknown = |what: &str| {
        let known = [
            BatchEncoding::Ndjson,
            BatchEncoding::Json,
            BatchEncoding::Cbor,
            BatchEncoding::Arrow,
        ]
        .map(BatchEncoding::content_type);
        let detail = format!(
            "{} {what}: known are {}",
            telemetry_codec::CONTENT_TYPE,
            known.join(", ")
        );
        ApiProblem::body(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail)
    };
    let said = text(headers, telemetry_codec::CONTENT_TYPE)?.ok_or_else(|| unknown("is missing"))?;
    let known = said.parse();
    known.map_err(|error: model::BadId| unknown(&format!("{:?} is none of ours", error.text)))
}

/// Who sends, for rows that do not say it themselves.
pub(super) fn publisher(headers: &HeaderMap) -> Result<PublisherIdentity, ApiProblem> {
    let name = text(headers, telemetry_codec::ENTITY_NAME)?.unwrap_or(NAMELESS);
    if name.is_empty() || name.len() > telemetry_codec::MAX_ENTITY_NAME {
        let reason = format!(
            "it has {} bytes, not 1 to {}",
            name.len(),
            telemetry_codec::MAX_ENTITY_NAME
        );
        return Err(ApiProblem::parameter(telemetry_codec::ENTITY_NAME, reason));
    }
    let id = text(headers, telemetry_codec::ENTITY_ID)?.map(str::parse).transpose();
    let id = id.map_err(|error: model::BadId| ApiProblem::parameter(telemetry_codec::ENTITY_ID, error))?;
    Ok(PublisherIdentity {
        entity_id: id.unwrap_or_else(|| EntityId::for_name(name)),
        entity_name: name.to_owned(),
    })
}
