//! Faults for tests: the n-th call on the log's folder fails, once or from then on.

use std::fs::File;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use super::disk::Op;

/// A plan of faults, shared by the log and the test.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults(Arc<Mutex<Plan>>);

#[derive(Debug, Default)]
struct Plan {
    calls: Vec<Op>,
}

impl Faults {
    pub(super) fn before(&self, op: Op) -> io::Result<()> {
        self.0.lock().calls.push(op);
        Ok(())
    }
    pub(super) fn created(&self, _name: &str, _file: &File) {}
    pub(super) fn synced(&self, _file: &File) {}
    pub(super) fn renamed(&self, _from: &str, _to: &str) {}
    pub(super) fn unlinked(&self, _name: &str) {}
    pub(super) fn synced_dir(&self) {}
}
