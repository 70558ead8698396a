//! Fault injection for tests: which file operations fail, and a record of them.
//!
//! Plans belong to a folder, so that tests in one process do not affect each other. Only with the feature `fault-injection`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// An operation that a test may make fail.
#[allow(missing_docs, reason = "the names say it")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsOperation {
    Create,
    SyncFile,
    Link,
    Rename,
    Remove,
    OpenFolder,
    SyncFolder,
}

#[derive(Debug)]
struct InjectedFault {
    op: FsOperation,
    part: String,
    times: usize,
    errno: i32,
}

#[derive(Debug, Default)]
struct FaultPlan {
    root: PathBuf,
    faults: Vec<InjectedFault>,
    done: Vec<(FsOperation, PathBuf)>,
}

static PLANS: Mutex<Vec<FaultPlan>> = Mutex::new(Vec::new());

fn plans() -> MutexGuard<'static, Vec<FaultPlan>> {
    PLANS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A plan for what lies below a folder, as long as it is held.
#[derive(Debug)]
pub struct FaultInjector(PathBuf);

impl FaultInjector {
    /// An empty plan: nothing fails yet.
    #[must_use]
    pub fn below(root: &Path) -> Self {
        plans().push(FaultPlan {
            root: root.to_owned(),
            ..FaultPlan::default()
        });
        Self(root.to_owned())
    }

    #[allow(clippy::expect_used, reason = "a test that has lost its plan must not pass")]
    fn with<T>(&self, change: impl FnOnce(&mut FaultPlan) -> T) -> T {
        let mut plans = plans();
        let plan = plans.iter_mut().find(|plan| plan.root == self.0);
        change(plan.expect("the plan is there as long as it is held"))
    }

    /// The next `times` operations of this kind on paths that contain `part` fail with the error number `errno`.
    pub fn fail(&self, op: FsOperation, part: &str, times: usize, errno: i32) {
        let part = part.to_owned();
        self.with(|plan| plan.faults.push(InjectedFault { op, part, times, errno }));
    }

    /// Failures that are still to come.
    #[must_use]
    pub fn left(&self) -> usize {
        self.with(|plan| plan.faults.iter().map(|fault| fault.times).sum())
    }

    /// What was done to paths that contain `part`, in order.
    #[must_use]
    pub fn done(&self, part: &str) -> Vec<FsOperation> {
        self.with(|plan| {
            let of_part = plan
                .done
                .iter()
                .filter(|(_, path)| path.to_string_lossy().contains(part));
            of_part.map(|(op, _)| *op).collect()
        })
    }
}

impl Drop for FaultInjector {
    fn drop(&mut self) {
        plans().retain(|plan| plan.root != self.0);
    }
}

/// Fails if a plan says so; else it counts as done.
pub(crate) fn before(op: FsOperation, path: &Path) -> io::Result<()> {
    let mut plans = plans();
    let Some(plan) = plans.iter_mut().find(|plan| path.starts_with(&plan.root)) else {
        return Ok(());
    };
    let meant =
        |fault: &&mut InjectedFault| fault.op == op && fault.times > 0 && path.to_string_lossy().contains(&fault.part);
    if let Some(fault) = plan.faults.iter_mut().find(meant) {
        fault.times -= 1;
        return Err(io::Error::from_raw_os_error(fault.errno));
    }
    plan.done.push((op, path.to_owned()));
    Ok(())
}
