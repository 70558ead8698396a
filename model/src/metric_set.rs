//! Metrics written once: name, kind, help, the counter and its place in a reading.
//!
//! # Invariants
//!
//! - A metric's name is the prefix of its set, `_` and the name of its field; its help is the field's documentation.
//! - Counters are relaxed: each is right by itself, and no order between two of them is promised.
//!
//! # Not here
//!
//! How metrics are written for a scrape (the API's exposition), labelled families.

use std::sync::atomic::{AtomicU64, Ordering};

/// What the value of a metric does: it only grows, or it goes up and down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows, from 0 at the start of the process.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// One metric with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MetricReading {
    /// Its name, without the prefix of the program and without `_total`.
    pub name: &'static str,
    /// What it counts, in one line, with the unit if the name does not end in it.
    pub help: &'static str,
    /// What its value does.
    pub kind: MetricKind,
    /// The value.
    pub value: u64,
}

/// One number that any thread counts.
#[derive(Debug, Default)]
pub struct AtomicCounter(AtomicU64);

impl AtomicCounter {
    /// Adds to it.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    /// Takes from it; never more than was added.
    pub fn sub(&self, by: u64) {
        self.0.fetch_sub(by, Ordering::Relaxed);
    }

    /// Sets it, if it is a gauge.
    pub fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    /// The number now.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Declares a set of metrics: the struct of a reading, with its `metrics()`, and the struct of the counters it is read from.
///
/// What stands under `counted` has an [`AtomicCounter`] of the same name; what stands under `computed` is filled in by whoever
/// makes the reading.
///
/// ```
/// model::metric_set! {
///     /// A reading of the lamp.
///     pub struct LampStats as "lamp";
///     /// The counters of the lamp.
///     pub struct LampCounters;
///     counted {
///         /// Times that it was switched
///         Counter switches,
///     }
///     computed {
///         /// 1 if it is on
///         Gauge on,
///     }
/// }
/// let counters = LampCounters::default();
/// counters.switches.add(2);
/// let stats = LampStats { on: 1, ..counters.read() };
/// let read: Vec<_> = stats.metrics().map(|metric| (metric.name, metric.help, metric.value)).collect();
/// assert_eq!(read, [("lamp_switches", "Times that it was switched", 2), ("lamp_on", "1 if it is on", 1)]);
/// ```
#[macro_export]
macro_rules! metric_set {
    (
        $(#[$of_stats:meta])* $vis:vis struct $stats:ident as $prefix:literal;
        $(#[$of_counters:meta])* $counters_vis:vis struct $counters:ident;
        counted { $(#[doc = $help:literal] $kind:ident $name:ident,)* }
        computed { $(#[doc = $computed_help:literal] $computed_kind:ident $computed:ident,)* }
        $(beside { $($beside:tt)* })?
    ) => {
        $crate::metric_set! {
            $(#[$of_stats])* $vis struct $stats as $prefix;
            computed {
                $(#[doc = $help] $kind $name,)*
                $(#[doc = $computed_help] $computed_kind $computed,)*
            }
            $(beside { $($beside)* })?
        }

        $(#[$of_counters])*
        #[derive(Debug, Default)]
        $counters_vis struct $counters {
            $(#[doc = $help] $counters_vis $name: $crate::AtomicCounter,)*
        }

        impl $counters {
            /// What was counted; what is computed is left at 0.
            #[must_use]
            $counters_vis fn read(&self) -> $stats {
                $stats { $($name: self.$name.get(),)* ..$stats::default() }
            }
        }
    };
    (
        $(#[$of_stats:meta])* $vis:vis struct $stats:ident as $prefix:literal;
        computed { $(#[doc = $help:literal] $kind:ident $name:ident,)* }
        $(beside { $($(#[$of_beside:meta])* $beside:ident: $type:ty,)* })?
    ) => {
        $(#[$of_stats])*
        #[derive(Debug, Clone, Default, PartialEq, Eq)]
        $vis struct $stats {
            $(#[doc = $help] $vis $name: u64,)*
            $($($(#[$of_beside])* $vis $beside: $type,)*)?
        }

        impl $stats {
            /// Each metric of this set with its value.
            $vis fn metrics(&self) -> impl Iterator<Item = $crate::MetricReading> + use<> {
                [$($crate::MetricReading {
                    name: concat!($prefix, "_", stringify!($name)),
                    help: $help.trim_ascii_start(),
                    kind: $crate::MetricKind::$kind,
                    value: self.$name,
                },)*]
                .into_iter()
            }
        }
    };
}
