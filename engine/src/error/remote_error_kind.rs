//! Classifies errors of an object store, and names the fix.

use std::error::Error as _;

use object_store::Error as StoreError;

use crate::Error;

/// What is the matter with an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteErrorKind {
    /// An object is not there.
    Missing,
    /// An object is there already.
    Exists,
    /// The bucket does not exist.
    NoBucket,
    /// The credentials are unknown, wrong or not enough.
    Denied,
    /// The bucket is in another region than the one that requests are signed for.
    WrongRegion,
    /// Its clock and ours differ too much for signed requests.
    ClockSkew,
    /// Nothing answers under its address.
    Unreachable,
    /// It cannot do what is needed.
    Unsupported,
    /// An object is not what was written.
    Damaged,
    /// It failed for another reason.
    Failing,
}

/// Everything that an error says, its causes included.
fn text(error: &StoreError) -> String {
    let mut all = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !all.contains(&said) {
            all.push_str(": ");
            all.push_str(&said);
        }
        cause = error.source();
    }
    all.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(crate) fn error_kind(error: &StoreError) -> RemoteErrorKind {
    let said = text(error);
    let says = |codes: &[&str]| codes.iter().any(|code| said.contains(code));
    if says(&["NoSuchBucket"]) {
        return RemoteErrorKind::NoBucket;
    }
    if says(&["RequestTimeTooSkewed"]) {
        return RemoteErrorKind::ClockSkew;
    }
    if says(&[
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
    ]) {
        return RemoteErrorKind::Denied;
    }
    // The last is what the client says of a redirect that does not say where to.
    if says(&[
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "incorrectly configured region",
    ]) {
        return RemoteErrorKind::WrongRegion;
    }
    if says(&["NotImplemented"]) {
        return RemoteErrorKind::Unsupported;
    }
    match error {
        StoreError::NotFound { .. } => RemoteErrorKind::Missing,
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => RemoteErrorKind::Exists,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => RemoteErrorKind::Denied,
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => RemoteErrorKind::Unsupported,
        _ if says(&["error sending request", "Connect", "dns error", "connection refused"]) => {
            RemoteErrorKind::Unreachable
        }
        _ => RemoteErrorKind::Failing,
    }
}

/// Whether the same call may be answered the next time.
pub(crate) fn is_transient(error: &StoreError) -> bool {
    matches!(
        error_kind(error),
        RemoteErrorKind::Failing | RemoteErrorKind::Unreachable
    )
}

/// The error for a call that failed for good.
pub(crate) fn refused_by_store(url: &str, action: &'static str, object: &str, error: &StoreError) -> Error {
    let trouble = error_kind(error);
    let said = text(error);
    let reason = match trouble {
        RemoteErrorKind::NoBucket => {
            format!("the bucket does not exist: create it, or correct observability.embedded.storage.url ({said})")
        }
        RemoteErrorKind::Denied => format!(
            "access was denied: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for keys of a session, \
             AWS_SESSION_TOKEN, and that they may read, write, list and delete there ({said})"
        ),
        RemoteErrorKind::WrongRegion => {
            format!("the bucket is in another region: set AWS_REGION to its region ({said})")
        }
        RemoteErrorKind::ClockSkew => {
            format!("the clocks of this machine and of the store differ too much: set this machine's clock ({said})")
        }
        RemoteErrorKind::Unreachable => {
            format!("nothing answers: check AWS_ENDPOINT_URL, AWS_REGION and the network ({said})")
        }
        RemoteErrorKind::Unsupported => format!(
            "the store cannot do it: an S3 store is needed that creates objects only if absent (If-None-Match: *) ({said})"
        ),
        _ => said,
    };
    Error::Remote {
        action,
        object: format!("{object} of {url}"),
        trouble,
        reason,
    }
}

/// The error for an object that is not what was written.
pub(crate) fn damaged_object(url: &str, object: &str, reason: &str) -> Error {
    Error::Remote {
        action: "read",
        object: format!("{object} of {url}"),
        trouble: RemoteErrorKind::Damaged,
        reason: format!("it is damaged: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(said: &str) -> StoreError {
        StoreError::Generic {
            store: "S3",
            source: said.into(),
        }
    }

    #[test]
    fn permanent_errors_are_distinguished_from_transient_ones_and_name_the_fix() {
        for (said, trouble, fix) in [
            ("<Code>NoSuchBucket</Code>", RemoteErrorKind::NoBucket, "create it"),
            ("<Code>RequestTimeTooSkewed</Code>", RemoteErrorKind::ClockSkew, "clock"),
            (
                "<Code>AccessDenied</Code>",
                RemoteErrorKind::Denied,
                "AWS_ACCESS_KEY_ID",
            ),
            (
                "this normally indicates an incorrectly configured region",
                RemoteErrorKind::WrongRegion,
                "AWS_REGION",
            ),
            (
                "error sending request for url",
                RemoteErrorKind::Unreachable,
                "AWS_ENDPOINT_URL",
            ),
            ("500 InternalError", RemoteErrorKind::Failing, "InternalError"),
        ] {
            let error = generic(said);
            assert_eq!(error_kind(&error), trouble, "{said}");
            let told = refused_by_store("s3://b/p", "read", "x", &error).to_string();
            assert!(told.contains(fix) && told.contains("s3://b/p"), "{told}");
        }
        assert!(is_transient(&generic("503 SlowDown")));
        assert!(!is_transient(&generic("<Code>NoSuchBucket</Code>")));
    }
}
