//! Memory budget of scrapes: what the answers of all targets take together, however many are hostile at a time.
//!
//! # Invariants
//!
//! - All answers together hold at most [`MOST_HELD`] bytes, counted before they are; one is read and stored at a time.
//! - A text is read only when its lines and labels are not too many for its samples: a label takes twenty times its text.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What all answers may hold: room for the largest one, in a buffer that grows.
const MOST_HELD: usize = 128 << 20;
/// So many labels may samples have, on the whole; of lines, comments among them, there are fewer.
const LABELS_OF_A_SAMPLE: usize = 32;
const LINES_OF_A_SAMPLE: usize = 8;
/// And so many of both beside.
const BESIDE: usize = 128;

/// The budget of a gear.
#[derive(Debug, Clone)]
pub(super) struct ScrapeMemory {
    bytes: Arc<Semaphore>,
    turn: Arc<Semaphore>,
}

/// What one answer holds; given back when it is dropped.
#[derive(Debug)]
pub(super) struct AnswerRoom {
    all: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl ScrapeMemory {
    pub(super) fn new() -> Self {
        Self {
            bytes: Arc::new(Semaphore::new(MOST_HELD)),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// A room in which nothing is yet.
    pub(super) fn room(&self) -> AnswerRoom {
        AnswerRoom {
            all: Arc::clone(&self.bytes),
            held: None,
        }
    }

    /// Waits until no other answer is read or stored.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }
}

impl AnswerRoom {
    /// Takes room for so many bytes more; in words why there is none.
    pub(super) fn grow(&mut self, bytes: usize) -> Result<(), String> {
        let taken = u32::try_from(2 * bytes)
            .ok()
            .and_then(|bytes| Arc::clone(&self.all).try_acquire_many_owned(bytes).ok());
        let taken = taken.ok_or("the answers of other targets hold the memory for scrapes")?;
        match &mut self.held {
            Some(held) => held.merge(taken),
            None => self.held = Some(taken),
        }
        Ok(())
    }
}

/// Refuses a text that would become very much more in memory.
pub(super) fn check_text(text: &str, max_samples: usize) -> Result<(), String> {
    for (mark, of_a_sample, what) in [
        (b'=', LABELS_OF_A_SAMPLE, "labels"),
        (b'\n', LINES_OF_A_SAMPLE, "lines"),
    ] {
        let most = max_samples.saturating_mul(of_a_sample).saturating_add(BESIDE);
        if text.bytes().filter(|byte| *byte == mark).count() > most {
            return Err(format!("its answer has more than {most} {what}; raise max_samples"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn answers_that_do_not_fit_together_fail_until_others_are_gone() {
        let memory = ScrapeMemory::new();
        let (mut first, mut second) = (memory.room(), memory.room());
        (0..64).for_each(|_| first.grow(1 << 20).unwrap());
        assert!(second.grow(1).unwrap_err().contains("other targets"));
        drop(first);
        second.grow(64 << 20).unwrap();
        assert!(second.grow(usize::MAX / 4).is_err());
    }

    #[test]
    fn a_text_of_very_many_labels_or_comments_is_refused() {
        let usual = "# HELP a b\n# TYPE a gauge\na{b=\"c\",d=\"e\"} 1\n".repeat(100);
        assert_eq!(check_text(&usual, 100), Ok(()));
        let labels = format!("a{{{}}} 1\n", "b=\"\",".repeat(100)).repeat(100);
        assert!(check_text(&labels, 100).unwrap_err().contains("more than 3328 labels"));
        assert!(
            check_text(&"#TYPE a b\n".repeat(1_000), 100)
                .unwrap_err()
                .contains("lines")
        );
    }

    #[tokio::test]
    async fn one_answer_is_read_at_a_time() {
        let memory = ScrapeMemory::new();
        let first = memory.turn().await;
        let other = memory.clone();
        let second = tokio::spawn(async move { other.turn().await.is_some() });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(first);
        assert!(second.await.unwrap());
    }
}
