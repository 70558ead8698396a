//! Memory of aggregates that keep a list of values for each group: `array_agg`, several `count(DISTINCT …)`, exact percentiles.
//!
//! DataFusion counts the values that were gathered, and not the list that is made of them, nor the room that values of functions and
//! small sets leave empty. So such an operator takes [`COPIES`] times what it asks for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use arrow_schema::DataType;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::AggregateExec;
use parking_lot::Mutex;

/// How often a value is there at the end: as it came, in the list that is made of it, in that of the next stage.
const COPIES: usize = 3;

/// Whether an operator gathers values of groups: the state of a function is a list of them first of all. Sketches have theirs, of
/// bounded size, after their numbers.
pub(super) fn gathers(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = plan.downcast_ref::<AggregateExec>();
    let mut called = aggregate.into_iter().flat_map(AggregateExec::aggr_expr);
    called.any(|call| {
        let state = call.state_fields().unwrap_or_default();
        let is_list = state
            .first()
            .is_some_and(|first| matches!(first.data_type(), DataType::List(_)));
        // Its list is a text already.
        is_list || call.fun().name() == "string_agg"
    })
}

/// A pool of which reservations take [`COPIES`] times what they ask for.
#[derive(Debug)]
pub(super) struct GatheringPool {
    pool: Arc<dyn MemoryPool>,
    /// What consumers have of it, by their ids.
    taken: Mutex<HashMap<usize, Arc<MemoryReservation>>>,
}

impl GatheringPool {
    pub(super) fn within(pool: &Arc<dyn MemoryPool>) -> Arc<dyn MemoryPool> {
        Arc::new(Self {
            pool: Arc::clone(pool),
            taken: Mutex::default(),
        })
    }

    fn taken(&self, consumer: &MemoryConsumer) -> Arc<MemoryReservation> {
        let made = || Arc::new(consumer.clone_with_new_id().register(&self.pool));
        Arc::clone(self.taken.lock().entry(consumer.id()).or_insert_with(made))
    }
}

impl fmt::Display for GatheringPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pool.fmt(f)
    }
}

impl MemoryPool for GatheringPool {
    fn name(&self) -> &str {
        self.pool.name()
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.taken(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.taken.lock().remove(&consumer.id());
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let taken = self.taken(reservation.consumer());
        taken.grow(additional.saturating_mul(COPIES));
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let taken = self.taken(reservation.consumer());
        taken.shrink(shrink.saturating_mul(COPIES).min(taken.size()));
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let taken = self.taken(reservation.consumer());
        taken.try_grow(additional.saturating_mul(COPIES))
    }

    fn reserved(&self) -> usize {
        self.pool.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.pool.memory_limit()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::prelude::SessionContext;

    use super::*;

    fn any_gathers(plan: &Arc<dyn ExecutionPlan>) -> bool {
        gathers(plan) || plan.children().into_iter().any(any_gathers)
    }

    #[tokio::test]
    async fn functions_whose_state_is_a_list_gather_and_others_may_spill() {
        let session = SessionContext::new();
        for (called, expected) in [
            ("array_agg(a)", true),
            ("string_agg(a, ',')", true),
            ("median(b)", true),
            ("percentile_cont(0.5) WITHIN GROUP (ORDER BY b)", true),
            ("nth_value(a, 2)", true),
            ("count(DISTINCT a), count(DISTINCT b)", true),
            ("count(*), sum(DISTINCT b)", true),
            // It is two groupings.
            ("count(DISTINCT a)", false),
            ("count(*), sum(b), min(a), max(a), avg(b)", false),
            ("first_value(a), last_value(a), stddev(b), approx_distinct(a)", false),
            ("approx_percentile_cont(0.5) WITHIN GROUP (ORDER BY b)", false),
        ] {
            let query =
                format!("SELECT g, {called} FROM (VALUES (1, 'x', 2.5), (2, 'y', 3.5)) AS t(g, a, b) GROUP BY g");
            let plan = session.sql(&query).await.unwrap().create_physical_plan().await.unwrap();
            assert_eq!(any_gathers(&plan), expected, "{called}");
        }
    }

    #[test]
    fn what_is_gathered_is_counted_thrice_until_it_is_freed() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(90));
        let counted = GatheringPool::within(&pool);
        let (one, other) = (
            MemoryConsumer::new("one").register(&counted),
            MemoryConsumer::new("other").register(&counted),
        );
        one.try_grow(20).unwrap();
        assert_eq!(pool.reserved(), 60);
        other.try_grow(11).unwrap_err();
        other.try_grow(10).unwrap();
        assert_eq!((pool.reserved(), counted.reserved()), (90, 90));
        one.shrink(5);
        assert_eq!(pool.reserved(), 75);
        drop(one);
        assert_eq!(pool.reserved(), 30);
        drop(other);
        assert_eq!(pool.reserved(), 0);
    }
}
