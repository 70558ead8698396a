//! The Mixer's SQL over PostgreSQL's wire protocol, version 3, so that its clients connect.
//!
//! ```text
//! server: accepts ─> startup: who, cancel ─> sasl ─> session: one message after the other ─┬─> utility, settings: SET, SHOW, BEGIN …
//!                                                │                                 └─> query::Querier: all else
//!                                              wire: frames, messages    values, parameters: types and their bytes
//!                                                                        row_statements: COPY … TO STDOUT, cursors of SQL
//! ```
//!
//! # Invariants
//!
//! - Statements go where those of the REST API go, with the same bounds; nothing here reads the store by itself.
//! - Nothing that a client sends is larger than `wire::MAX_FRAME`, or takes memory before it is there.
//! - A client that leaves, and a request to cancel, end the statement that runs; its work stops with the next batch. One that has
//!   only closed its sending half gets its answers.
//! - At `server::MAX_CONNECTIONS` a client is told so (53300). One that has not said who it is in `server::STARTUP_TIME`, or between
//!   statements for `server::IDLE_TIME`, is let go.
//!
//! # Not here
//!
//! Who a client is ([`crate::authentication`]). Channel binding of SCRAM.
//! `COPY … FROM`, cursors that go backward, notifications, replication: nothing but reading is offered.

mod bind_parameters;
mod copy_out;
mod copy_statement;
mod cursor_statement;
mod extended_query;
mod framing;
#[cfg(any(test, feature = "fuzz"))]
mod fuzz;
mod numeric;
mod pg_error;
mod pg_types;
mod row_statements;
mod rows;
mod sasl;
mod savepoint_stack;
mod server;
mod session;
mod session_settings;
mod startup;
mod statement_portal;
mod text_format;
mod transaction_block;
mod utility_statement;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use fuzz::fuzz_targets;
pub use server::PostgresServer;
pub(crate) use server::{MAX_CONNECTIONS, serve};
