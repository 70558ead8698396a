//! What an object store's refusal means, and what to do about it.

use std::error::Error as _;

use object_store::Error as StoreError;

use crate::Error;

/// What is the matter with an object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteTrouble {
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

pub(crate) fn trouble_of(error: &StoreError) -> RemoteTrouble {
    let said = text(error);
    let says = |codes: &[&str]| codes.iter().any(|code| said.contains(code));
    if says(&["NoSuchBucket"]) {
        return RemoteTrouble::NoBucket;
    }
    if says(&["RequestTimeTooSkewed"]) {
        return RemoteTrouble::ClockSkew;
    }
    if says(&[
        "AccessDenied",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "ExpiredToken",
        "InvalidToken",
    ]) {
        return RemoteTrouble::Denied;
    }
    // The last is what the client says of a redirect that does not say where to.
    if says(&[
        "PermanentRedirect",
        "AuthorizationHeaderMalformed",
        "IllegalLocationConstraintException",
        "incorrectly configured region",
    ]) {
        return RemoteTrouble::WrongRegion;
    }
    if says(&["NotImplemented"]) {
        return RemoteTrouble::Unsupported;
    }
    match error {
        StoreError::NotFound { .. } => RemoteTrouble::Missing,
        StoreError::AlreadyExists { .. } | StoreError::Precondition { .. } => RemoteTrouble::Exists,
        StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => RemoteTrouble::Denied,
        StoreError::NotImplemented { .. } | StoreError::NotSupported { .. } => RemoteTrouble::Unsupported,
        _ if says(&["error sending request", "Connect", "dns error", "connection refused"]) => {
            RemoteTrouble::Unreachable
        }
        _ => RemoteTrouble::Failing,
    }
}

/// Whether the same call may be answered the next time.
pub(crate) fn is_transient(error: &StoreError) -> bool {
    matches!(trouble_of(error), RemoteTrouble::Failing | RemoteTrouble::Unreachable)
}

/// The error for a call that failed for good.
pub(crate) fn refused(url: &str, action: &'static str, object: &str, error: &StoreError) -> Error {
    let trouble = trouble_of(error);
    let said = text(error);
    let reason = match trouble {
        RemoteTrouble::NoBucket => {
            format!("the bucket does not exist: create it, or correct observability.embedded.storage.url ({said})")
        }
        RemoteTrouble::Denied => format!(
            "access was denied: check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for keys of a session, \
             AWS_SESSION_TOKEN, and that they may read, write, list and delete there ({said})"
        ),
        RemoteTrouble::WrongRegion => format!("the bucket is in another region: set AWS_REGION to its region ({said})"),
        RemoteTrouble::ClockSkew => {
            format!("the clocks of this machine and of the store differ too much: set this machine's clock ({said})")
        }
        RemoteTrouble::Unreachable => {
            format!("nothing answers: check AWS_ENDPOINT_URL, AWS_REGION and the network ({said})")
        }
        RemoteTrouble::Unsupported => format!(
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
pub(crate) fn damaged(url: &str, object: &str, reason: &str) -> Error {
    Error::Remote {
        action: "read",
        object: format!("{object} of {url}"),
        trouble: RemoteTrouble::Damaged,
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
    fn refusals_are_told_from_failures_that_pass_and_name_the_fix() {
        for (said, trouble, fix) in [
            ("<Code>NoSuchBucket</Code>", RemoteTrouble::NoBucket, "create it"),
            ("<Code>RequestTimeTooSkewed</Code>", RemoteTrouble::ClockSkew, "clock"),
            ("<Code>AccessDenied</Code>", RemoteTrouble::Denied, "AWS_ACCESS_KEY_ID"),
            (
                "this normally indicates an incorrectly configured region",
                RemoteTrouble::WrongRegion,
                "AWS_REGION",
            ),
            (
                "error sending request for url",
                RemoteTrouble::Unreachable,
                "AWS_ENDPOINT_URL",
            ),
            ("500 InternalError", RemoteTrouble::Failing, "InternalError"),
        ] {
            let error = generic(said);
            assert_eq!(trouble_of(&error), trouble, "{said}");
            let told = refused("s3://b/p", "read", "x", &error).to_string();
            assert!(told.contains(fix) && told.contains("s3://b/p"), "{told}");
        }
        assert!(is_transient(&generic("503 SlowDown")));
        assert!(!is_transient(&generic("<Code>NoSuchBucket</Code>")));
    }
}
