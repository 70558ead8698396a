//! Fuzzing: targets that read untrusted bytes, and seeded mutations of valid samples to read.
//!
//! ```text
//! samples ─▶ InputMutator (seed, name of the target, number) ─▶ input ─▶ FuzzTarget::read ─▶ accepted, refused or failed
//! ```
//!
//! # Invariants
//!
//! - The input of a number is a function of the seed, the target and its samples, whatever ran before it: two numbers repeat a failure.
//! - Every sample is accepted. A target that refuses its own samples parses nothing and would find nothing.
//! - A target says with assertions what it must not believe; a panic of any kind is a failure.
//!
//! # Not here
//!
//! Anything that the product runs: this module is compiled only for tests and with the feature `fuzz`. The targets of the other rooms (their own
//! `fuzz`), and the long run over all of them (`bench-hostile-inputs`).

mod input_mutator;
mod message_targets;
mod signed_targets;
mod text_targets;
mod wire_parties;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

pub use input_mutator::InputMutator;

use crate::panic_text;

/// What reads an input: true if it accepts it.
type InputReader = Box<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// A reader of untrusted bytes, and valid inputs of it.
pub struct FuzzTarget {
    name: &'static str,
    samples: Vec<Vec<u8>>,
    reader: InputReader,
}

/// What a target did with its inputs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct FuzzTally {
    /// Inputs that were read.
    pub accepted: u64,
    /// Inputs that were refused.
    pub refused: u64,
}

/// A defect: what repeats it, and what it said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("target {target}, seed {seed}, input {number:?}: {reason}")]
pub struct FuzzFailure {
    /// The target's name.
    pub target: &'static str,
    /// The seed of the run.
    pub seed: u64,
    /// The number of the input; none for a sample.
    pub number: Option<u64>,
    /// What the panic said.
    pub reason: String,
}

impl FuzzTarget {
    /// A target of bytes.
    pub fn new(
        name: &'static str,
        samples: Vec<Vec<u8>>,
        reader: impl Fn(&[u8]) -> bool + Send + Sync + 'static,
    ) -> Self {
        let reader = Box::new(reader);
        Self { name, samples, reader }
    }

    /// A target of text: bytes that are not UTF-8 are replaced, so that they reach the parser as well.
    pub fn of_text(
        name: &'static str,
        samples: &[&str],
        reader: impl Fn(&str) -> bool + Send + Sync + 'static,
    ) -> Self {
        let samples = samples.iter().map(|text| text.as_bytes().to_vec()).collect();
        Self::new(name, samples, move |bytes| reader(&String::from_utf8_lossy(bytes)))
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The input with this number.
    #[must_use]
    pub fn input(&self, seed: u64, number: u64) -> Vec<u8> {
        InputMutator::new(seed, self.name, number).input(&self.samples)
    }

    /// Reads bytes: whether they are accepted.
    ///
    /// # Errors
    /// What the panic said.
    pub fn read(&self, bytes: &[u8]) -> Result<bool, String> {
        catch_unwind(AssertUnwindSafe(|| (self.reader)(bytes))).map_err(|panic| panic_text(panic.as_ref()).to_owned())
    }

    /// Reads every sample, which must be accepted.
    ///
    /// # Errors
    /// [`FuzzFailure`] of the first one that is not.
    pub fn check_samples(&self, seed: u64) -> Result<(), FuzzFailure> {
        let failed = |reason: String| FuzzFailure {
            target: self.name,
            seed,
            number: None,
            reason,
        };
        if self.samples.is_empty() {
            return Err(failed("it has no samples".to_owned()));
        }
        for (place, sample) in self.samples.iter().enumerate() {
            match self.read(sample) {
                Ok(true) => {}
                Ok(false) => return Err(failed(format!("it refuses its own sample {place}"))),
                Err(panic) => return Err(failed(format!("sample {place}: {panic}"))),
            }
        }
        Ok(())
    }

    /// Reads the inputs with the numbers below `cases`.
    ///
    /// # Errors
    /// [`FuzzFailure`] of the first one.
    pub fn check(&self, seed: u64, cases: u64) -> Result<FuzzTally, FuzzFailure> {
        self.check_samples(seed)?;
        let mut tally = FuzzTally::default();
        for number in 0..cases {
            match self.read(&self.input(seed, number)) {
                Ok(true) => tally.accepted += 1,
                Ok(false) => tally.refused += 1,
                Err(reason) => {
                    return Err(FuzzFailure {
                        target: self.name,
                        seed,
                        number: Some(number),
                        reason,
                    });
                }
            }
        }
        Ok(tally)
    }
}

impl fmt::Debug for FuzzTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuzzTarget")
            .field("name", &self.name)
            .field("samples", &self.samples.len())
            .finish_non_exhaustive()
    }
}

/// Checks targets as the tests of a room do: `PLATFORM_TEST_FUZZ_CASES` inputs of each, `cases` where it is not set, from the seed of
/// `PLATFORM_TEST_SEED`.
///
/// # Errors
/// [`FuzzFailure`] of the first defect.
pub fn check_targets(targets: &[FuzzTarget], cases: u64) -> Result<(), FuzzFailure> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    let seed = number("PLATFORM_TEST_SEED").unwrap_or(1);
    let cases = number("PLATFORM_TEST_FUZZ_CASES").unwrap_or(cases);
    println!("PLATFORM_TEST_SEED={seed} PLATFORM_TEST_FUZZ_CASES={cases}");
    for target in targets {
        let FuzzTally { accepted, refused } = target.check(seed, cases)?;
        println!("{}: {accepted} accepted, {refused} refused", target.name());
    }
    Ok(())
}

/// The targets of this room.
#[must_use]
pub fn targets() -> Vec<FuzzTarget> {
    let mut all = signed_targets::targets();
    all.extend(message_targets::targets());
    all.extend(text_targets::targets());
    all
}

#[cfg(test)]
mod tests {
    #![allow(clippy::panic, clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn no_reader_of_the_model_panics_or_believes_what_was_changed() -> Result<(), FuzzFailure> {
        check_targets(&targets(), 2_000)
    }

    #[test]
    fn an_input_is_a_function_of_seed_target_and_number() {
        let target = |name| FuzzTarget::of_text(name, &["one: 1", "two: [2, 3]"], |_| true);
        let inputs = |name, seed| (0..100).map(|n| target(name).input(seed, n)).collect::<Vec<_>>();
        assert_eq!(inputs("a", 7), inputs("a", 7));
        assert_ne!(inputs("a", 7), inputs("a", 8));
        assert_ne!(inputs("a", 7), inputs("b", 7));
    }

    #[test]
    fn a_panic_is_told_with_what_repeats_it_and_refused_samples_are_failures() {
        let target = FuzzTarget::of_text("t", &["sample"], |text| match text {
            "sample" => true,
            _ => panic!("met {}", text.len()),
        });
        let failure = target.check(3, 50).unwrap_err();
        let number = failure.number.unwrap();
        assert!(target.read(&target.input(3, number)).is_err(), "{failure}");
        assert!(failure.reason.starts_with("met "), "{failure}");
        let refusing = FuzzTarget::of_text("t", &["sample"], |_| false);
        assert_eq!(refusing.check(3, 50).unwrap_err().number, None);
        assert!(FuzzTarget::of_text("t", &[], |_| true).check(3, 50).is_err());
    }
}
