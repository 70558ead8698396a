//! Errors of the services as problems: which status and code each has.

use http::StatusCode;
use model::scenario::{BadScenario, SourceDiagnostic};
use serde_json::{Value, json};

use super::{ApiProblem, ProblemPosition};
use crate::authentication::TokenError;
use crate::backup::BackupError;
use crate::control::ControlError;
use crate::dlq::DlqError;
use crate::iceberg_catalog::CatalogReadError;
use crate::quotas::QuotaExceeded;

impl ApiProblem {
    /// What the dead-letter queue says of letters.
    pub(crate) fn of_letters(error: &DlqError) -> Self {
        let (status, code) = match error {
            DlqError::Unknown(_) => (StatusCode::NOT_FOUND, "unknown_letter"),
            DlqError::Refused { .. } => (StatusCode::CONFLICT, "letter_refused"),
            DlqError::Full => (StatusCode::CONFLICT, "too_many_marks"),
            DlqError::TooMany => (StatusCode::UNPROCESSABLE_ENTITY, "too_many_letters"),
            DlqError::Wish { .. } => (StatusCode::BAD_REQUEST, "bad_parameter"),
            DlqError::Query(_) | DlqError::Registry(_) => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<TokenError> for ApiProblem {
    fn from(error: TokenError) -> Self {
        let (status, code) = match error {
            TokenError::UnknownToken(_) => (StatusCode::NOT_FOUND, "unknown_token"),
            TokenError::NameTaken(_) => (StatusCode::CONFLICT, "name_taken"),
            TokenError::Provided(_) => (StatusCode::CONFLICT, "token_provided"),
            TokenError::BadToken(_) => (StatusCode::BAD_REQUEST, "bad_body"),
            TokenError::TooMany => (StatusCode::UNPROCESSABLE_ENTITY, "too_many_tokens"),
            TokenError::Registry(_) => (StatusCode::INTERNAL_SERVER_ERROR, "registry"),
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<BackupError> for ApiProblem {
    fn from(error: BackupError) -> Self {
        Self::internal(error.to_string())
    }
}

impl From<CatalogReadError> for ApiProblem {
    fn from(error: CatalogReadError) -> Self {
        match error {
            CatalogReadError::Busy | CatalogReadError::NotPublished | CatalogReadError::Storage => Self::busy(error),
            CatalogReadError::Damaged(_) | CatalogReadError::Interrupted(_) => Self::internal(error.to_string()),
        }
    }
}

impl From<QuotaExceeded> for ApiProblem {
    fn from(exceeded: QuotaExceeded) -> Self {
        Self {
            retry_after: Some(exceeded.retry_seconds()),
            quota: Some(exceeded.quota()),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "quota_exceeded", exceeded.to_string())
        }
    }
}

impl From<query::Error> for ApiProblem {
    fn from(error: query::Error) -> Self {
        use query::QueryErrorKind;
        if let query::Error::Parameter { parameter, reason } = &error {
            return Self::parameter(parameter, reason);
        }
        let (status, code) = match (error.kind(), &error) {
            (QueryErrorKind::Parameter, _) => (StatusCode::BAD_REQUEST, "bad_parameter"),
            (QueryErrorKind::Statement, _) => (StatusCode::BAD_REQUEST, "sql_error"),
            (QueryErrorKind::ReadOnly, _) => (StatusCode::FORBIDDEN, "read_only"),
            (QueryErrorKind::Forbidden, _) => (StatusCode::FORBIDDEN, "outside_scope"),
            (QueryErrorKind::StoredElsewhere, _) => (StatusCode::FORBIDDEN, "stored_elsewhere"),
            (QueryErrorKind::NotFound, query::Error::NotFound { what: "trace", .. }) => {
                (StatusCode::NOT_FOUND, "trace_not_found")
            }
            (QueryErrorKind::NotFound, query::Error::NotFound { what: "flux", .. }) => {
                (StatusCode::NOT_FOUND, "flux_not_found")
            }
            (QueryErrorKind::NotFound, _) => (StatusCode::NOT_FOUND, "metric_not_found"),
            (QueryErrorKind::TooMuch, _) => (StatusCode::UNPROCESSABLE_ENTITY, "query_too_large"),
            (QueryErrorKind::QuotaExceeded, _) => (StatusCode::TOO_MANY_REQUESTS, "quota_exceeded"),
            (QueryErrorKind::TooMany, _) => (StatusCode::TOO_MANY_REQUESTS, "too_many"),
            (QueryErrorKind::Busy, _) => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            (QueryErrorKind::Timeout, _) => (StatusCode::GATEWAY_TIMEOUT, "query_timeout"),
            (QueryErrorKind::Closed, _) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
            (QueryErrorKind::Internal, _) => (StatusCode::INTERNAL_SERVER_ERROR, "query_failed"),
        };
        let quota = matches!(error, query::Error::CallerBusy { .. }).then_some("queries");
        let position = match error {
            query::Error::Statement { at, .. } => at.map(|(line, column)| Box::new(ProblemPosition { line, column })),
            _ => None,
        };
        Self {
            position,
            quota,
            ..Self::new(status, code, error.to_string())
        }
    }
}

impl From<ControlError> for ApiProblem {
    fn from(error: ControlError) -> Self {
        let status = match &error {
            ControlError::UnknownRack(_)
            | ControlError::UnknownInvite(_)
            | ControlError::UnknownRequest(_)
            | ControlError::UnknownScenario { .. }
            | ControlError::NotStored(_)
            | ControlError::UnknownPort { .. } => StatusCode::NOT_FOUND,
            ControlError::TooManyTaps(_) | ControlError::TooManyRequests(_) => StatusCode::TOO_MANY_REQUESTS,
            ControlError::NameTaken { .. }
            | ControlError::NameIsId(_)
            | ControlError::KeyMismatch { .. }
            | ControlError::State { .. }
            | ControlError::ReferenceTaken { .. }
            | ControlError::ScenarioActive(_)
            | ControlError::NothingBefore
            | ControlError::FormerChanged { .. } => StatusCode::CONFLICT,
            ControlError::Silent { .. } => StatusCode::SERVICE_UNAVAILABLE,
            ControlError::BadScenario(_)
            | ControlError::BadFormer { .. }
            | ControlError::TooManyLabels(_)
            | ControlError::TooManyInvites(_)
            | ControlError::InviteLifetime
            | ControlError::TooManyScenarios => StatusCode::UNPROCESSABLE_ENTITY,
            ControlError::Registry(_) | ControlError::InviteForm(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        let problem = Self::new(status, error.code(), error.to_string());
        match error {
            ControlError::BadScenario(BadScenario(faults))
            | ControlError::BadFormer {
                reason: BadScenario(faults),
                ..
            } => Self {
                errors: faults.iter().map(fault).collect(),
                ..problem
            },
            _ => problem,
        }
    }
}

fn fault(at: &SourceDiagnostic) -> Value {
    json!({ "line": at.line, "column": at.column, "detail": at.text })
}
