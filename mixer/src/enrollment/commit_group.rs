//! Group commit: what several threads ask for at one time is decided by one of them, in one transaction.
//!
//! # Invariants
//!
//! - One group is decided at a time, and what is asked meanwhile is the next one: nobody waits for more than two.
//! - An answer is given out after the group is decided, so after its commit.
//!
//! Not here: the transaction, and what one that fails means for the others ([`super::EnrollmentService`]).

use std::sync::mpsc::{Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What waits for the next transaction.
#[derive(Debug)]
pub(super) struct CommitGroup<Q, A> {
    waiting: Mutex<Vec<(Q, Sender<A>)>>,
    turn: Mutex<()>,
}

impl<Q, A> Default for CommitGroup<Q, A> {
    fn default() -> Self {
        Self {
            waiting: Mutex::default(),
            turn: Mutex::default(),
        }
    }
}

impl<Q, A> CommitGroup<Q, A> {
    /// The answer to a question, by `decide`, which has one for each question of its group in their order. Blocks. None if the thread that
    /// decided panicked.
    pub(super) fn decide(&self, question: Q, decide: impl FnOnce(&[Q]) -> Vec<A>) -> Option<A> {
        let (answer, mine) = channel();
        lock(&self.waiting).push((question, answer));
        let turn = lock(&self.turn);
        let (questions, answers): (Vec<_>, Vec<_>) = std::mem::take(&mut *lock(&self.waiting)).into_iter().unzip();
        // Who had the turn before may have decided this one too.
        if !questions.is_empty() {
            for (answer, decided) in answers.into_iter().zip(decide(&questions)) {
                // Who asked waits for it, or has panicked.
                let _ = answer.send(decided);
            }
        }
        drop(turn);
        mine.recv().ok()
    }

    /// Nothing is decided meanwhile.
    #[cfg(test)]
    pub(super) fn hold(&self) -> MutexGuard<'_, ()> {
        lock(&self.turn)
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

    use super::*;

    #[test]
    fn what_is_asked_during_a_commit_is_decided_together_and_each_gets_its_own_answer() {
        let group = CommitGroup::<u32, u32>::default();
        let groups = Mutex::new(Vec::new());
        let twice = |questions: &[u32]| {
            lock(&groups).push(questions.len());
            questions.iter().map(|question| question * 2).collect()
        };
        let answers = std::thread::scope(|threads| {
            let turn = group.hold();
            let ask = |question| (question, group.decide(question, twice));
            let asked: Vec<_> = (0..20).map(|question| threads.spawn(move || ask(question))).collect();
            while group.waiting() < 20 {
                std::thread::yield_now();
            }
            drop(turn);
            asked
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        assert!(
            answers.iter().all(|(question, answer)| *answer == Some(question * 2)),
            "{answers:?}"
        );
        assert_eq!(*lock(&groups), [20]);
    }

    #[test]
    fn a_panic_ends_its_group_and_no_other() {
        let group = CommitGroup::<u32, u32>::default();
        let died = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            group.decide(1, |_| std::panic::resume_unwind(Box::new("dead")))
        }));
        assert!(died.is_err());
        assert_eq!(group.decide(2, |questions| questions.to_vec()), Some(2));
    }
}
