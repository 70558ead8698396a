//! An optional deadline.

use tokio::time::Instant;

/// Ends at a moment, or never.
pub(crate) async fn sleep_until_deadline(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
