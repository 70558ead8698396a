//! What is known of a consumer: whether everything that it waits for is with us.
//!
//! # Invariants
//!
//! - *Sure up to a delivery* means: everything that the consumer has delivered up to there, to whomever, was acknowledged or is
//!   with us. The consumer numbers its deliveries without gaps.
//! - It is learned from the consumer's own words, when it waits for no more than what is with us; what was on its way to us when
//!   it spoke is counted as it arrives. The next delivery carries it on; one that went to somebody else ends it.
//! - If it waits for less than what we take for ours, nothing is known.

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// The last delivery that we saw.
    seen: u64,
    sure: Option<u64>,
    told: Option<Told>,
}

/// What the consumer said.
#[derive(Debug)]
struct Told {
    delivered: u64,
    /// What it waits for and was not with us so far.
    elsewhere: u64,
}

impl Proof {
    /// Of a consumer from which nothing is on its way to us.
    pub(super) fn begin(delivered: u64, pending: usize, with_us: usize) -> Self {
        let mut proof = Self {
            seen: delivered,
            ..Self::default()
        };
        proof.told(delivered, pending, with_us);
        proof
    }

    /// The consumer has said how far it has delivered and how many of that it waits for.
    pub(super) fn told(&mut self, delivered: u64, pending: usize, with_us: usize) {
        let elsewhere = pending.checked_sub(with_us).map(|elsewhere| elsewhere as u64);
        self.told = elsewhere.map(|elsewhere| Told { delivered, elsewhere });
        self.conclude();
    }

    /// A delivery came; it is new if it was not with us.
    pub(super) fn came(&mut self, delivery: u64, is_new: bool) {
        self.sure = self
            .sure
            .filter(|sure| sure.saturating_add(1) == delivery)
            .map(|_| delivery);
        self.seen = delivery;
        if let Some(told) = &mut self.told
            && delivery <= told.delivered
            && is_new
        {
            // More than it spoke of: it spoke of something else.
            match told.elsewhere.checked_sub(1) {
                Some(elsewhere) => told.elsewhere = elsewhere,
                None => self.told = None,
            }
        }
        self.conclude();
    }

    fn conclude(&mut self) {
        if let Some(told) = self.told.take_if(|told| self.seen >= told.delivered)
            && told.elsewhere == 0
            && self.seen == told.delivered
        {
            self.sure = Some(self.seen);
        }
    }

    /// The last delivery that we saw.
    pub(super) const fn seen(&self) -> u64 {
        self.seen
    }

    /// See the module.
    pub(super) const fn sure(&self) -> Option<u64> {
        self.sure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_that_waits_for_nobody_else_is_known_for_as_long_as_its_deliveries_follow_each_other() {
        let mut proof = Proof::begin(7, 2, 2);
        assert_eq!(proof.sure(), Some(7));
        proof.came(8, true);
        proof.came(9, false);
        assert_eq!(proof.sure(), Some(9));
        proof.came(11, true);
        assert_eq!(proof.sure(), None, "10 went to somebody else");
        proof.came(12, true);
        assert_eq!(proof.sure(), None);
    }

    #[test]
    fn what_was_on_its_way_when_the_consumer_spoke_is_counted_as_it_arrives() {
        let mut proof = Proof::begin(7, 5, 2);
        assert_eq!(proof.sure(), None);
        proof.came(8, true);
        proof.told(10, 5, 3);
        proof.came(9, true);
        assert_eq!(proof.sure(), None);
        proof.came(10, true);
        assert_eq!(proof.sure(), Some(10));
        proof.told(12, 8, 5);
        proof.came(11, true);
        proof.came(12, true);
        assert_eq!(proof.sure(), Some(12), "it was known before");
        let mut proof = Proof::begin(7, 5, 2);
        proof.told(9, 5, 2);
        proof.came(8, true);
        proof.came(9, false);
        assert_eq!(proof.sure(), None, "two are elsewhere");
    }

    #[test]
    fn a_consumer_that_waits_for_less_than_is_with_us_says_nothing() {
        assert_eq!(Proof::begin(7, 1, 2).sure(), None);
        let mut proof = Proof::begin(7, 3, 2);
        proof.told(9, 3, 2);
        proof.came(8, true);
        proof.came(9, true);
        assert_eq!(proof.sure(), None);
    }
}
