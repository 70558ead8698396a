//! The address that a gear speaks HTTP to, as a configuration has it.

use http::Uri;

/// The address that a configuration's `url` means.
///
/// # Errors
/// A sentence that names the key.
pub fn parse_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| format!("url: {error}"))?;
    let authority = url.authority().map(http::uri::Authority::as_str);
    match (url.scheme_str(), authority) {
        (Some("http" | "https"), Some(host)) if host.contains('@') => {
            Err("url must not have a user or password: set the header authorization to a ${NAME} reference".into())
        }
        (Some("http" | "https"), Some(_)) => Ok(url),
        _ => Err(format!("url {text:?} must begin with http:// or https:// and a host")),
    }
}
