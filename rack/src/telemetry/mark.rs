//! The ids by which the bus knows a batch that is sent again.
//!
//! # Invariants
//!
//! - The same batch of the same Rack has the same mark, always: it is stored once, however often it is sent.
//! - Nobody without the Rack's secret knows a mark before its batch is on the bus. The bus drops what has the mark of another
//!   message, whoever sent that: with one that can be foreseen, a Rack could have the next batches of another dropped.

use std::fmt::Write as _;

use model::wire::BatchId;
use sha2::{Digest as _, Sha256};

/// The bytes of a mark.
const BYTES: usize = 16;

/// Makes the marks of one Rack.
#[derive(Clone)]
pub(crate) struct Marks([u8; 32]);

impl Marks {
    /// Those made with a secret that is used for nothing else.
    pub(crate) const fn new(secret: [u8; 32]) -> Self {
        Self(secret)
    }

    /// The mark of a batch.
    pub(crate) fn of(&self, id: BatchId) -> String {
        let digest = Sha256::new()
            .chain_update(self.0)
            .chain_update(id.entity.as_bytes())
            .chain_update(id.boot_epoch.to_be_bytes())
            .chain_update(id.seq.to_be_bytes())
            .finalize();
        let mut text = String::with_capacity(2 * BYTES);
        for byte in digest.iter().take(BYTES) {
            // A text takes everything.
            let _ = write!(text, "{byte:02x}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use model::EntityId;

    use super::*;

    #[test]
    fn a_batch_has_one_mark_and_no_other_rack_or_batch_has_it() {
        let id = |name: &str, boot_epoch, seq| BatchId {
            entity: EntityId::for_name(name),
            boot_epoch,
            seq,
        };
        let ours = Marks::new([1; 32]);
        let mark = ours.of(id("a", 1, 1));
        assert_eq!(mark.len(), 2 * BYTES);
        assert_eq!(mark, ours.clone().of(id("a", 1, 1)), "sent again");
        for other in [id("a", 1, 2), id("a", 2, 1), id("b", 1, 1)] {
            assert_ne!(mark, ours.of(other));
        }
        assert_ne!(
            mark,
            Marks::new([2; 32]).of(id("a", 1, 1)),
            "foreseen without the secret"
        );
    }
}
