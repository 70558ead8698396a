//! Memory budget of scrapes: what the answers of all targets take together, however many are hostile at a time.
//!
//! # Invariants
//!
//! - All answers together hold at most [`MOST_HELD`] bytes and [`FOR_SMALL`], counted before they are; one is read and stored at a time.
//! - A few targets with large answers, however slowly they come, leave room for small ones.
//! - A text is read only when its lines and labels are not too many for its samples: a label takes twenty times its text.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What all answers may hold: room for the largest one, in a buffer that grows.
const MOST_HELD: usize = 128 << 20;
/// What the beginnings of answers may hold beside, and what is the beginning of one.
const FOR_SMALL: usize = 32 << 20;
const SMALL: usize = 2 << 20;
/// So many labels may samples have, on the whole; of lines, comments among them, there are fewer.
const LABELS_OF_A_SAMPLE: usize = 32;
const LINES_OF_A_SAMPLE: usize = 8;
/// And so many of both beside.
const BESIDE: usize = 128;

/// The budget of a gear.
#[derive(Debug, Clone)]
pub(super) struct ScrapeMemory {
    /// For the beginnings of answers, and for all.
    pools: [Arc<Semaphore>; 2],
    turn: Arc<Semaphore>,
}

/// What one answer holds; given back when it is dropped.
#[derive(Debug)]
pub(super) struct AnswerRoom {
    pools: [Arc<Semaphore>; 2],
    held: [Option<OwnedSemaphorePermit>; 2],
    bytes: usize,
}

impl ScrapeMemory {
    pub(super) fn new() -> Self {
        Self {
            pools: [FOR_SMALL, MOST_HELD].map(|bytes| Arc::new(Semaphore::new(bytes))),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// A room in which nothing is yet.
    pub(super) fn room(&self) -> AnswerRoom {
        AnswerRoom {
            pools: self.pools.clone(),
            held: [None, None],
            bytes: 0,
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
        let more = bytes.saturating_mul(2);
        self.bytes = self.bytes.saturating_add(more);
        let none = "the answers of other targets hold the memory for scrapes";
        let more = u32::try_from(more).map_err(|_| none)?;
        // What is beyond the beginning passes over the first pool.
        let pools = self
            .pools
            .iter()
            .zip(&mut self.held)
            .skip(usize::from(self.bytes > SMALL));
        for (pool, held) in pools {
            if let Ok(taken) = Arc::clone(pool).try_acquire_many_owned(more) {
                match held {
                    Some(held) => held.merge(taken),
                    None => *held = Some(taken),
                }
                return Ok(());
            }
        }
        Err(none.to_owned())
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
    fn answers_that_do_not_fit_together_fail_until_others_are_gone_and_small_ones_have_room_beside() {
        let memory = ScrapeMemory::new();
        let mut large: Vec<_> = (0..4).map(|_| memory.room()).collect();
        for answer in &mut large {
            (0..17).for_each(|_| answer.grow(1 << 20).unwrap());
            assert!(answer.grow(64 << 20).unwrap_err().contains("other targets"));
        }
        let (mut small, mut other) = (memory.room(), memory.room());
        (0..1 << 10).for_each(|_| small.grow(1 << 10).unwrap());
        assert!(small.grow(1).unwrap_err().contains("other targets"));
        drop(large);
        other.grow(64 << 20).unwrap();
        assert!(other.grow(usize::MAX / 4).is_err());
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
