//! Group commit: what several threads ask for at one time is decided by one of them, in one transaction.
//!
//! # Invariants
//!
//! - One group is decided at a time, and what is asked meanwhile is the next one. Who has an answer commits for nobody else.
//! - An answer is given out after its group is decided, so after its commit.
//!
//! Not here: the transaction, and what one that fails means for the others ([`super::EnrollmentService`]).

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What waits for the next transaction.
#[derive(Debug)]
pub(super) struct GroupCommit<Q, A> {
    waiting: Mutex<Vec<(Q, Sender<A>)>>,
    leader: Mutex<()>,
}

impl<Q, A> Default for GroupCommit<Q, A> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            leader: Mutex::default(),
        }
    }
}

impl<Q, A> GroupCommit<Q, A> {
    /// The answer to a question, by `commit`, which has one for each question of its group in their order. Blocks. None if the thread that
    /// committed panicked.
    pub(super) fn commit_with(&self, question: Q, commit: impl FnOnce(&[Q]) -> Vec<A>) -> Option<A> {
        let (answer, mine) = channel();
        lock(&self.waiting).push((question, answer));
        let leader = lock(&self.leader);
        // The leader before may have committed this one too.
        if let Ok(answer) = mine.try_recv() {
            return Some(answer);
        }
        let (questions, answers): (Vec<_>, Vec<_>) = std::mem::take(&mut *lock(&self.waiting)).into_iter().unzip();
        // None are left where that leader panicked.
        if !questions.is_empty() {
            for (answer, decided) in answers.into_iter().zip(commit(&questions)) {
                // Who asked waits for it, or has panicked.
                let _ = answer.send(decided);
            }
        }
        drop(leader);
        mine.recv().ok()
    }

    /// Nothing is committed meanwhile.
    #[cfg(test)]
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.leader)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        lock(&self.waiting).len()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    use super::*;

    /// The answers to 20 questions that wait at one time, each asked by a thread, and the sizes of their groups.
    fn asked(commit: impl Fn(&[u32]) -> Vec<u32> + Sync) -> (Vec<Option<u32>>, Vec<usize>) {
        let (group, sizes) = (GroupCommit::<u32, u32>::default(), Mutex::new(Vec::new()));
        let counted = |questions: &[u32]| {
            lock(&sizes).push(questions.len());
            commit(questions)
        };
        let answers = std::thread::scope(|threads| {
            let leader = group.hold();
            let ask = |question| catch_unwind(AssertUnwindSafe(|| group.commit_with(question, counted)));
            let asked: Vec<_> = (0..20).map(|question| threads.spawn(move || ask(question))).collect();
            while group.waiting() < 20 {
                std::thread::yield_now();
            }
            drop(leader);
            let answers = asked
                .into_iter()
                .map(|thread| thread.join().unwrap().unwrap_or_default());
            answers.collect()
        });
        assert_eq!(
            group.commit_with(7, |questions| questions.to_vec()),
            Some(7),
            "it goes on"
        );
        (answers, sizes.into_inner().unwrap())
    }

    #[test]
    fn what_is_asked_during_a_commit_is_decided_together_and_each_gets_its_own_answer() {
        let (answers, sizes) = asked(|questions| questions.iter().map(|question| question * 2).collect());
        let expected: Vec<_> = (0..20).map(|question| Some(question * 2)).collect();
        assert_eq!((answers, sizes), (expected, vec![20]));
    }

    #[test]
    fn a_panic_ends_its_group_and_nobody_waits_for_ever() {
        let (answers, sizes) = asked(|_| resume_unwind(Box::new("dead")));
        assert_eq!((answers, sizes), (vec![None; 20], vec![20]));
    }
}
