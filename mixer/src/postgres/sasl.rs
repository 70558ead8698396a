//! Authentication of a connection: a local user, or SCRAM-SHA-256 with an API token's name as the user and the token as the password.
//!
//! ```text
//!  R 10 SCRAM-SHA-256 ─▶ p (name, first message) ─▶ R 11 (challenge) ─▶ p (proof) ─▶ R 12 (the server's proof) ─▶ R 0
//! ```
//!
//! # Invariants
//!
//! - Who names a token as its user proves that it has it, over loopback too: so a reader's session has a reader's rights.
//! - A name that nobody has fails as a wrong password does, after the same steps.
//! - Before it is done, a message of a client has [`MAX_MESSAGE`] bytes at the most.
//!
//! Not here: the proofs (`access::scram`), and whose word is taken without one (`authentication`).

use std::sync::Arc;

use bytes::{BufMut, Bytes};

use super::framing::{BackendWriter, FrontendReader, MessageFields, put_text};
use super::pg_error::PgError;
use super::rows::PgReplyError;
use crate::access::{AccessRight, ApiCaller, BadExchange, CallerIdentity, ScramExchange, role_list};
use crate::audit_keeper::RefusalClass;
use crate::authentication::{ApiAuthenticator, ConnectionEnds};
use crate::registry::{AuditActor, CallerInterface};

/// The largest message of a client that has not said who it is.
const MAX_MESSAGE: usize = 4 << 10;
const MECHANISM: &str = "SCRAM-SHA-256";
const SASL: i32 = 10;
const SASL_CONTINUE: i32 = 11;
const SASL_FINAL: i32 = 12;

/// Who the client is, and that it may read rows; the audit log is told if it may not.
pub(super) async fn authenticate(
    authenticator: &ApiAuthenticator,
    (user, ends): (&str, ConnectionEnds),
    incoming: &mut FrontendReader,
    out: &mut BackendWriter,
) -> Result<Arc<ApiCaller>, PgReplyError> {
    let (caller, refused) = match prove(authenticator, (user, ends), incoming, out).await {
        Ok(caller) if caller.has(AccessRight::ReadRows) => return Ok(caller),
        Ok(caller) => {
            let refused = without_right(&caller);
            (Some(caller), refused)
        }
        Err(PgReplyError::Fault(fault)) => (None, fault),
        Err(PgReplyError::Gone) => return Err(PgReplyError::Gone),
    };
    let by = AuditActor::of_caller(CallerInterface::Postgres, Some(ends.peer.ip()), caller.as_deref());
    // What a stranger calls itself is not told: somebody may have put a token there.
    let why = match &caller {
        Some(_) => refused.message.clone(),
        None => format!("the login failed ({})", refused.code),
    };
    authenticator.refusals().report(&by, RefusalClass::of(&by), why);
    Err(refused.into())
}

/// Who the client is.
async fn prove(
    authenticator: &ApiAuthenticator,
    (user, ends): (&str, ConnectionEnds),
    incoming: &mut FrontendReader,
    out: &mut BackendWriter,
) -> Result<Arc<ApiCaller>, PgReplyError> {
    let tokens = authenticator.tokens();
    let (verifier, token) = tokens.scram(user);
    let local = match token {
        None => authenticator.by_connection(Some(ends)).ok(),
        Some(_) => None,
    };
    if let Some(caller) = local {
        return Ok(caller);
    }
    out.message(b'R', |out| {
        out.put_i32(SASL);
        put_text(out, MECHANISM);
        out.put_u8(0);
    });
    out.send().await?;
    let first = first_message(incoming).await?;
    let exchange = ScramExchange::begin(verifier, &first, tokens.entropy()).map_err(bad_exchange)?;
    step(out, SASL_CONTINUE, exchange.challenge()).await?;
    let proof = password_message(incoming).await?.rest();
    let proved = exchange.finish(&proof).map_err(bad_exchange)?;
    let (Some(answer), Some(digest)) = (proved, token) else {
        return Err(wrong_password(user).into());
    };
    let caller = tokens
        .authenticate(digest)
        .map_err(|error| PgError::fatal("28P01", error.to_string()))?;
    step(out, SASL_FINAL, &answer).await?;
    Ok(caller)
}

/// Whether a session's caller may still do what it began with, and nothing else.
pub(super) fn still_known(authenticator: &ApiAuthenticator, caller: &Arc<ApiCaller>) -> Result<(), PgReplyError> {
    let CallerIdentity::Token { digest, .. } = &caller.identity else {
        return Ok(());
    };
    let known = authenticator.tokens().authenticate(*digest);
    let known = known.map_err(|error| PgError::fatal("28P01", error.to_string()))?;
    match Arc::ptr_eq(&known, caller) {
        true => Ok(()),
        false => Err(revoked().into()),
    }
}

/// That the token of a session opens nothing any more, or something else.
pub(super) fn revoked() -> PgError {
    PgError::fatal(
        "28P01",
        "the token was revoked or changed, or has expired: connect again",
    )
}

fn without_right(caller: &ApiCaller) -> PgError {
    let message = format!("the role {} does not allow reading rows", role_list(&caller.roles));
    PgError::fatal("42501", message)
}

async fn first_message(incoming: &mut FrontendReader) -> Result<Bytes, PgReplyError> {
    let mut body = password_message(incoming).await?;
    if body.text()? != MECHANISM {
        return Err(PgError::protocol(format!("the mechanism is {MECHANISM}")).into());
    }
    let first = body.value()?;
    first.ok_or_else(|| PgError::protocol("the first SASL message is missing").into())
}

/// The fields of a message with a password, or with a step of SASL.
async fn password_message(incoming: &mut FrontendReader) -> Result<MessageFields, PgReplyError> {
    match incoming.next_within(MAX_MESSAGE).await? {
        Some(frame) if frame.kind == b'p' => Ok(frame.body),
        Some(_) => Err(PgError::protocol("a password message was expected").into()),
        None => Err(PgError::protocol("the client left before it said who it is").into()),
    }
}

async fn step(out: &mut BackendWriter, kind: i32, text: &str) -> std::io::Result<()> {
    out.message(b'R', |out| {
        out.put_i32(kind);
        out.put_slice(text.as_bytes());
    });
    out.send().await
}

fn bad_exchange(error: BadExchange) -> PgError {
    PgError::protocol(error.to_string())
}

fn wrong_password(user: &str) -> PgError {
    let message = format!(
        "password authentication failed for user {user:?}: the user is a token's name, the password the token (platform token create)"
    );
    PgError::fatal("28P01", message)
}
