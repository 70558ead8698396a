//! Seeded randomness: the seed is printed, and `PLATFORM_TEST_SEED` replays it.

use std::hash::{BuildHasher, Hasher, RandomState};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A generator whose seed is known.
#[derive(Debug)]
pub struct Random {
    /// The seed, for the replay line.
    pub seed: u64,
    rng: StdRng,
}

impl Random {
    /// A generator for a test; prints its seed.
    #[must_use]
    pub fn for_test(name: &str) -> Self {
        Self::seeded(name, RandomState::new().build_hasher().finish())
    }

    /// The same each time unless a seed is set: what another one finds is a new defect, not a build that broke.
    #[must_use]
    pub fn seeded(name: &str, seed: u64) -> Self {
        let chosen = std::env::var("PLATFORM_TEST_SEED")
            .ok()
            .and_then(|seed| seed.parse().ok());
        let seed = chosen.unwrap_or(seed);
        eprintln!("seed {seed}; replay: PLATFORM_TEST_SEED={seed} cargo nextest run --workspace -E 'test({name})'");
        Self {
            seed,
            rng: StdRng::seed_from_u64(seed),
        }
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.rng.random_range(0..end.max(1))
    }
}
