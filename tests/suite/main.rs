//! The specification, sentence by sentence, on the real binaries. One binary, one file per subject.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a failed expectation is how a test fails"
)]

mod access;
mod alerts;
mod architecture;
mod browser;
mod check;
mod cli;
mod config_keys;
mod differential;
mod dlq;
mod endpoints;
mod examples;
mod export;
mod exposition;
mod faults;
mod file_modes;
mod first_light;
mod flux;
mod founding;
mod hardship;
mod http_ingest;
mod iceberg;
mod ingest;
mod init;
mod kill9;
mod lakehouse;
mod lanes;
mod losses;
mod migrate;
mod numbers;
mod object_stores;
mod otlp;
mod outside;
mod page;
mod page_logs;
mod pages;
mod postgres;
mod racks;
mod readme;
mod reference;
mod reload;
mod retention;
mod scenarios;
mod self_tracing;
mod senders;
mod service_units;
mod specs;
mod sql;
mod store;
mod supply_chain;
mod tail;
mod tap;
mod upgrade;
