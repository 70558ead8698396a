//! Headers by which a request says whose message it carries: between `http_out` of one Rack and `http_in` of another, a business signal
//! stays one.
//!
//! | header | what |
//! |---|---|
//! | `Flux-Id` | the business signal, a UUIDv7 |
//! | `Flux-Parent` | the message that the request was made of, a UUIDv7 |
//! | `baggage` | the business signal as its member `flux_id`, for programs between two Racks that pass on what W3C names; `Flux-Id` goes before it |
//!
//! # Invariants
//!
//! - What is read of our own headers is an id as Racks make them, written once; everything else is refused in words. A `baggage` without one
//!   is somebody else's, and names nothing.
//!
//! # Not here
//!
//! The trace ([`model::trace_context`]); whether a sender is trusted (`http_in`).

use gear_spec::http_headers::{FLUX_ID, FLUX_PARENT};
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use model::message::Message;
use model::trace_context::{BAGGAGE, baggage_flux_id};
use model::{FluxId, MessageId};

/// Whose message a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FluxHeaders {
    flux_id: FluxId,
    parent: Option<MessageId>,
}

impl FluxHeaders {
    /// What the headers of a request say; none if they name no signal. `baggage` is read only where it is obeyed.
    pub(crate) fn read(headers: &HeaderMap, obeys_baggage: bool) -> Result<Option<Self>, String> {
        let flux_id = id(headers, FLUX_ID, |text| text.parse().ok(), FluxId::created)?;
        let flux_id = flux_id.or_else(|| carried_flux_id(headers).filter(|_| obeys_baggage));
        let parent = id(headers, FLUX_PARENT, |text| text.parse().ok(), MessageId::created)?;
        Ok(flux_id.map(|flux_id| Self { flux_id, parent }))
    }

    /// Whether a request names a signal, well or badly.
    pub(crate) fn are_in(headers: &HeaderMap) -> bool {
        headers.contains_key(FLUX_ID) || carried_flux_id(headers).is_some()
    }

    /// Makes a message one of the signal.
    pub(crate) const fn apply_to(self, message: &mut Message) {
        message.flux_id = self.flux_id;
        message.parent = self.parent;
    }
}

/// The signal that the `baggage` of a request names.
fn carried_flux_id(headers: &HeaderMap) -> Option<FluxId> {
    baggage_flux_id(headers.get_all(BAGGAGE).iter().map(HeaderValue::as_bytes))
}

/// The one id of version 7 under this name, if there is any.
fn id<T, C>(
    headers: &HeaderMap,
    name: &str,
    parse: impl Fn(&str) -> Option<T>,
    created: impl Fn(&T) -> Option<C>,
) -> Result<Option<T>, String> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let read = value.to_str().ok().and_then(parse).filter(|id| created(id).is_some());
    match (read, values.next()) {
        (Some(id), None) => Ok(Some(id)),
        _ => Err(format!(
            "the header {name} must be one UUID of version 7; send it as http_out does, or leave it out"
        )),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const ID: &str = "0193c3f2-7d1a-7000-8000-0123456789ab";
    const OTHER: &str = "0193c3f2-7d1a-7000-8000-0123456789ac";

    fn read(headers: &[(&'static str, &str)]) -> Result<Option<FluxHeaders>, String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, value.parse().unwrap());
        }
        FluxHeaders::read(&map, true)
    }

    #[test]
    fn an_id_as_racks_make_them_is_read_and_everything_else_is_refused_by_the_headers_name() {
        let both = read(&[(FLUX_ID, ID), (FLUX_PARENT, OTHER)]).unwrap().unwrap();
        assert_eq!(both.flux_id.to_string(), ID);
        assert_eq!(both.parent.unwrap().to_string(), OTHER);
        assert_eq!(read(&[(FLUX_ID, ID)]).unwrap().unwrap().parent, None);
        assert_eq!(read(&[]), Ok(None));
        // A parent without a signal names nothing.
        assert_eq!(read(&[(FLUX_PARENT, OTHER)]), Ok(None));
        for bad in [
            "",
            "x",
            "\u{e9}",
            "0193c3f2-7d1a-4000-8000-0123456789ab",
            "00000000-0000-0000-0000-000000000000",
        ] {
            for name in [FLUX_ID, FLUX_PARENT] {
                let error = read(&[(name, bad)]).unwrap_err();
                assert!(error.contains(name) && error.contains("version 7"), "{bad}: {error}");
            }
        }
        assert!(read(&[(FLUX_ID, ID), (FLUX_ID, OTHER)]).is_err());
    }

    #[test]
    fn baggage_that_is_not_obeyed_names_no_signal() {
        let mut map = HeaderMap::new();
        map.insert(BAGGAGE, format!("flux_id={OTHER}").parse().unwrap());
        assert_eq!(FluxHeaders::read(&map, false), Ok(None));
        assert!(FluxHeaders::read(&map, true).unwrap().is_some());
        map.insert(FLUX_ID, ID.parse().unwrap());
        let named = FluxHeaders::read(&map, false).unwrap().unwrap();
        assert_eq!(named.flux_id.to_string(), ID);
    }

    #[test]
    fn baggage_names_the_signal_where_flux_id_does_not_and_a_foreign_one_names_none() {
        let (carried, foreign) = (format!("user=x,flux_id={OTHER}"), "flux_id=12,user=x");
        let flux_id =
            |headers: &[(&'static str, &str)]| read(headers).map(|read| read.map(|read| read.flux_id.to_string()));
        assert_eq!(flux_id(&[(BAGGAGE, &carried)]), Ok(Some(OTHER.to_owned())));
        assert_eq!(flux_id(&[(FLUX_ID, ID), (BAGGAGE, &carried)]), Ok(Some(ID.to_owned())));
        assert_eq!(flux_id(&[(BAGGAGE, foreign)]), Ok(None));
        let with_parent = read(&[(FLUX_PARENT, ID), (BAGGAGE, &carried)]).unwrap().unwrap();
        assert_eq!(with_parent.parent.unwrap().to_string(), ID);
    }
}
