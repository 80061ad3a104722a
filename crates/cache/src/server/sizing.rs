//! How many workers the pool should have: pure arithmetic, without threads or clocks.
//!
//! The pool grows if the queue is longer than half the workers, if nine in ten are busy, or if
//! tasks take longer than before. It shrinks if nothing waits, tasks average below a millisecond
//! and few workers are busy. Steps are a quarter up and an eighth down, so the pool reacts to a
//! burst within a few checks and shrinks slowly afterwards.
//! looks and forgets it slowly.

use std::time::Duration;

/// Tasks shorter than this on average let the pool shrink.
const SHORT_TASK: Duration = Duration::from_millis(1);
/// A rise of the average by this percentage counts as a rise and not as noise.
const RISE_PERCENT: u32 = 25;

/// The state of the pool at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) workers: usize,
    pub(super) busy: usize,
    pub(super) queued: usize,
    /// Average duration of the tasks since the last check; `None` if there were none.
    pub(super) task_average: Option<Duration>,
}

/// Limits and state of the decisions.
#[derive(Debug)]
pub(super) struct Sizer {
    min: usize,
    max: usize,
    average_before: Option<Duration>,
}

impl Sizer {
    /// Returns a sizer for `min` to `max` workers.
    pub(super) fn new(min: usize, max: usize) -> Self {
        let max = max.max(1);
        Self { min: min.clamp(1, max), max, average_before: None }
    }

    /// The initial number of workers.
    pub(super) fn start(&self) -> usize {
        self.min
    }

    /// Returns the desired number of workers.
    pub(super) fn decide(&mut self, load: Load) -> usize {
        let before = self.average_before;
        if load.task_average.is_some() {
            self.average_before = load.task_average;
        }
        let waits = load.queued > load.workers / 2;
        let full = load.busy * 10 >= load.workers * 9;
        // Tasks that take longer while workers are free are not waiting for workers.
        let rises = load.queued > 0
            && matches!((before, load.task_average), (Some(before), Some(now))
                if now * 100 > before * (100 + RISE_PERCENT));
        if waits || full || rises {
            return (load.workers + (load.workers / 4).max(1)).min(self.max);
        }
        let short = load.task_average.is_none_or(|average| average < SHORT_TASK);
        let few = load.busy * 2 < load.workers;
        if load.queued == 0 && short && few {
            return load.workers.saturating_sub((load.workers / 8).max(1)).max(self.min);
        }
        load.workers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(workers: usize, busy: usize, queued: usize, average_us: u64) -> Load {
        let task_average = Some(Duration::from_micros(average_us));
        Load { workers, busy, queued, task_average }
    }

    #[test]
    fn a_queue_longer_than_half_the_workers_grows_the_pool_by_a_quarter() {
        assert_eq!(Sizer::new(4, 200).decide(load(40, 10, 21, 5_000)), 50);
        assert_eq!(Sizer::new(4, 200).decide(load(40, 20, 20, 5_000)), 40);
    }

    #[test]
    fn nine_busy_workers_in_ten_grow_the_pool() {
        assert_eq!(Sizer::new(4, 200).decide(load(40, 36, 0, 100)), 50);
        assert_eq!(Sizer::new(4, 200).decide(load(40, 35, 0, 5_000)), 40);
    }

    #[test]
    fn tasks_that_take_longer_than_before_grow_the_pool_while_others_wait() {
        let mut sizer = Sizer::new(4, 200);
        assert_eq!(sizer.decide(load(40, 30, 1, 2_000)), 40);
        assert_eq!(sizer.decide(load(40, 30, 1, 3_000)), 50);
        assert_eq!(sizer.decide(load(40, 30, 1, 3_000)), 40, "no longer rising");
    }

    #[test]
    fn an_idle_pool_shrinks_to_its_least_and_a_loaded_one_never_passes_its_most() {
        let mut sizer = Sizer::new(4, 200);
        let mut workers = 200;
        for _ in 0..100 {
            workers = sizer.decide(Load { workers, busy: 0, queued: 0, task_average: None });
        }
        assert_eq!(workers, 4);
        for _ in 0..100 {
            workers = sizer.decide(load(workers, workers, 500, 10));
        }
        assert_eq!(workers, 200);
    }

    #[test]
    fn slow_tasks_or_many_busy_workers_keep_the_pool_as_it_is() {
        assert_eq!(Sizer::new(4, 200).decide(load(40, 5, 0, 1_500)), 40);
        assert_eq!(Sizer::new(4, 200).decide(load(40, 25, 0, 100)), 40);
    }
}
