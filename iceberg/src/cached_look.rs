//! A cache with single flight: one caller at a time looks for a newer value, and the others take the known one meanwhile.
//!
//! # Invariants
//!
//! - The known value is locked for moments only. A look takes as long as the storage does, and has a lock of its own.
//! - Looks begin no sooner after each other than the time of rest, whatever came of them: what failed is not tried again at once.
//! - A value that was shared is not looked for again, and a look that was under way does not take its place.
//! - A failure leaves what was known. It is told once, until a look succeeds or fails in another way.

use std::mem::discriminant;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::warn;

use crate::error::IcebergError;

/// How long a caller waits for the look of another one where nothing is known yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// Whether a caller looks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LookPolicy {
    /// If the last look was so long ago. It blocks.
    After(Duration),
    /// Never: it gets an error if the last look was so long ago and nobody looks.
    AtOnce(Duration),
    /// Never: it takes what is known, however old that is.
    Never,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct CachedLook<T> {
    known: Mutex<KnownValue<T>>,
    /// Held by who looks.
    turn: Mutex<()>,
}

#[derive(Debug)]
struct KnownValue<T> {
    value: Option<T>,
    freshness: CacheFreshness,
    /// Why the last look failed.
    failure: Option<IcebergError>,
}

/// How recent something is.
#[derive(Debug, Clone, Copy)]
enum CacheFreshness {
    Never,
    LookedAt(Instant),
    /// The publisher of this process brings what is new.
    Shared,
}

impl CacheFreshness {
    fn is_due(self, rest: Duration) -> bool {
        match self {
            Self::Never => true,
            Self::LookedAt(at) => at.elapsed() >= rest,
            Self::Shared => false,
        }
    }
}

impl<T> Default for CachedLook<T> {
    fn default() -> Self {
        Self {
            known: Mutex::new(KnownValue {
                value: None,
                freshness: CacheFreshness::Never,
                failure: None,
            }),
            turn: Mutex::default(),
        }
    }
}

impl<T: Clone> KnownValue<T> {
    fn answer(&self) -> Result<Option<T>, IcebergError> {
        match (&self.value, &self.failure, self.freshness) {
            (None, Some(failure), _) => Err(failure.again()),
            (None, None, CacheFreshness::Never) => {
                Err(IcebergError::Away("the storage has not answered yet".to_owned()))
            }
            (value, ..) => Ok(value.clone()),
        }
    }
}

impl<T: Clone> CachedLook<T> {
    /// Takes what the publisher of this process brings.
    pub(crate) fn share(&self, value: T) {
        *self.known.lock() = KnownValue {
            value: Some(value),
            freshness: CacheFreshness::Shared,
            failure: None,
        };
    }

    /// What is known, after a look if one is due. `look` gives what is newer than the known value.
    pub(crate) fn get(
        &self,
        policy: LookPolicy,
        look: impl FnOnce(Option<&T>) -> Result<Option<T>, IcebergError>,
    ) -> Result<Option<T>, IcebergError> {
        match policy {
            LookPolicy::After(rest) if self.is_due(rest) => {
                let is_known = self.known.lock().value.is_some();
                let turn = if is_known {
                    self.turn.try_lock()
                } else {
                    self.turn.try_lock_for(PATIENCE)
                };
                if turn.is_some() && self.is_due(rest) {
                    self.look(look);
                }
            }
            LookPolicy::AtOnce(rest) if self.is_due(rest) && !self.turn.is_locked() => {
                return Err(IcebergError::Away("it is to be looked for first".to_owned()));
            }
            _ => {}
        }
        self.known.lock().answer()
    }

    /// Whether the storage did not answer the last look.
    pub(crate) fn is_away(&self) -> bool {
        matches!(self.known.lock().failure, Some(IcebergError::Storage(_)))
    }

    fn is_due(&self, rest: Duration) -> bool {
        self.known.lock().freshness.is_due(rest)
    }

    fn look(&self, look: impl FnOnce(Option<&T>) -> Result<Option<T>, IcebergError>) {
        let before = self.known.lock().value.clone();
        let found = look(before.as_ref());
        let mut known = self.known.lock();
        if matches!(known.freshness, CacheFreshness::Shared) {
            return;
        }
        known.freshness = CacheFreshness::LookedAt(Instant::now());
        match found {
            Ok(newer) => {
                if newer.is_some() {
                    known.value = newer;
                }
                known.failure = None;
            }
            Err(error) => {
                let is_told = |told: &IcebergError| discriminant(told) == discriminant(&error);
                if !known.failure.as_ref().is_some_and(is_told) {
                    warn!(%error, "could not look for what is new in the Iceberg catalogue; it is tried again");
                }
                known.failure = Some(error);
            }
        }
    }
}
