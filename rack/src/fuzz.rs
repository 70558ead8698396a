//! Fuzz targets of the Rack: what gears read from peers, brokers and bodies, what the Rack reads from its disk and its configuration.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. How inputs are made (`model::fuzz`), and
//! targets whose readers nobody else sees (beside those).

use std::path::Path;

use bytes::Bytes;
use chassis::config::migrate;
use chassis::config::schema_check::load_from;
use model::fuzz::FuzzTarget;

use crate::config::{RackConfig, SCHEMA};
use crate::outbox::{OutboxRecord, PortSequenceNumber};
use crate::{gears, policy, spool, state_file};

/// The targets of this room.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    let mut all = gears::fuzz_targets();
    all.extend([
        spool::fuzz_segment(),
        state_file::fuzz_sealed(),
        policy::fuzz_address_rule(),
    ]);
    all.extend([outbox_record(), port_sequence(), configuration()]);
    all
}

/// A record of the outbox, from the spool: what is read is written as the same bytes.
fn outbox_record() -> FuzzTarget {
    let text = |text: &str| {
        [
            &u16::try_from(text.len()).unwrap_or_default().to_le_bytes(),
            text.as_bytes(),
        ]
        .concat()
    };
    let head = |kind: u8| {
        [
            &[kind][..],
            &7_u64.to_le_bytes(),
            &2_u32.to_le_bytes(),
            &text("gear"),
            &text("out"),
        ]
        .concat()
    };
    let messages = [head(1), text("internal sink"), vec![0xa0, 0xa0]].concat();
    let dead = [
        head(3),
        text("why"),
        vec![1, 3, 0, 0, 0],
        text("flux.msg.a.b.c"),
        text(""),
        b"body".to_vec(),
    ]
    .concat();
    FuzzTarget::new("disk.outbox", vec![messages, dead], |bytes| {
        let read = OutboxRecord::decode(&Bytes::copy_from_slice(bytes));
        read.is_some_and(|record| {
            let again = OutboxRecord::decode(&record.encode().into());
            assert!(
                again.is_some_and(|again| again.encode() == record.encode()),
                "it is written as it is read"
            );
            record.subject(&model::Token::nearest("rack"));
            true
        })
    })
}

/// The place of a message, in a header of the bus.
fn port_sequence() -> FuzzTarget {
    let sample = "0198a8b0-2d5e-7c3a-8f6b-0123456789ab/1763728200000000/18446744073709551615";
    FuzzTarget::of_text("wire.place", &[sample], |text| {
        PortSequenceNumber::parse(text).is_some_and(|place| {
            assert_eq!(PortSequenceNumber::parse(&place.to_string()), Some(place));
            assert_eq!(PortSequenceNumber::from_bytes(&place.to_bytes()), Some(place));
            true
        })
    })
}

/// `platform.toml`, and its form of before.
fn configuration() -> FuzzTarget {
    let sample = "[base]\nname = \"press-1\"\n\n[snake]\nurl = \"nats://a:4222, nats://b:4222\"\nconnect_timeout = \"1m30s\" # long\n\n\
        [logging]\nlevel = \"warn\"\n[logging.throttling]\nburst = 9\n[gears.exec]\nallow = [\"/bin/date\"]\n[policy]\nlisten = [\"127.0.0.1:8000-8999\"]\n";
    FuzzTarget::of_text("config.rack", &[sample, ""], |text| {
        migrate(&SCHEMA, Path::new("platform.toml"), text).ok();
        load_from(&SCHEMA, text, &[]).is_ok_and(|settings| RackConfig::of(&settings).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_reader_of_the_rack_panics_or_believes_what_was_changed() -> Result<(), model::fuzz::FuzzFailure> {
        model::fuzz::check_targets(&targets(), 1_000)
    }
}
