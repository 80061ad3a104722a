//! When a feed counts as behind: decided by its lag alone, without a clock or a network.
//!
//! Invariant: an alert that a feed is behind is followed by one that it caught up before the next first one, and a
//! feed whose lag moves around its limit causes one alert, not many.

use std::time::Duration;

use forebay_pipeline::config::AlertSettings;

/// How often the receiver is reminded of a feed that is still behind.
const REMIND_EVERY: Duration = Duration::from_secs(60 * 60);

/// How far a feed is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lag {
    /// The time since which every commit of the source is applied.
    pub(super) time: Duration,
    /// The size of what its log has after it, in bytes.
    pub(super) bytes: u64,
}

/// A change of the level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The lag exceeds a limit, or still does.
    Behind,
    /// It is at most half of every limit.
    CaughtUp,
}

/// Whether a feed is behind.
#[derive(Debug)]
pub(super) struct Level {
    max_time: Option<Duration>,
    max_bytes: Option<u64>,
    /// When the receiver is reminded, if the feed is behind: the time since the start of the run.
    remind_at: Option<Duration>,
}

impl Level {
    pub(super) fn new(settings: &AlertSettings) -> Self {
        Self {
            max_time: settings.max_lag.map(|limit| limit.get()),
            max_bytes: settings.max_lag_bytes.map(|limit| limit.0),
            remind_at: None,
        }
    }

    /// Takes the lag into account.
    ///
    /// * `now`: the time since the start of the run.
    pub(super) fn observe(&mut self, lag: Lag, now: Duration) -> Option<Turn> {
        let exceeds = |part: u32| {
            let time = self.max_time.is_some_and(|max| lag.time > max / part);
            time || self.max_bytes.is_some_and(|max| lag.bytes > max / u64::from(part))
        };
        match self.remind_at {
            None if exceeds(1) => self.remind(now),
            Some(at) if exceeds(1) && now >= at => self.remind(now),
            Some(_) if !exceeds(2) => {
                self.remind_at = None;
                Some(Turn::CaughtUp)
            }
            _ => None,
        }
    }

    fn remind(&mut self, now: Duration) -> Option<Turn> {
        self.remind_at = Some(now.saturating_add(REMIND_EVERY));
        Some(Turn::Behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn level(max_s: Option<u64>, max_bytes: Option<u64>) -> Level {
        Level { max_time: max_s.map(seconds), max_bytes, remind_at: None }
    }

    fn turns(level: &mut Level, lags: &[(u64, u64)], every: Duration) -> Vec<Option<Turn>> {
        let mut now = Duration::ZERO;
        let turns = lags.iter().map(|(time_s, bytes)| {
            now += every;
            level.observe(Lag { time: seconds(*time_s), bytes: *bytes }, now)
        });
        turns.collect()
    }

    #[test]
    fn a_lag_around_its_limit_is_one_alert_until_it_is_half() {
        let mut level = level(Some(60), None);
        let lags = [(60, 0), (61, 9), (59, 0), (61, 0), (31, 0), (30, 0), (60, 0), (61, 0)];
        let found = turns(&mut level, &lags, seconds(1));
        let (behind, caught_up) = (Some(Turn::Behind), Some(Turn::CaughtUp));
        assert_eq!(found, [None, behind, None, None, None, caught_up, None, behind]);
    }

    #[test]
    fn both_limits_have_to_be_kept_to_catch_up() {
        let mut level = level(Some(60), Some(100));
        let lags = [(0, 101), (61, 0), (0, 51), (30, 50)];
        let found = turns(&mut level, &lags, seconds(1));
        assert_eq!(found, [Some(Turn::Behind), None, None, Some(Turn::CaughtUp)]);
    }

    #[test]
    fn a_feed_that_stays_behind_is_reported_every_hour() {
        let mut level = level(None, Some(100));
        let found = turns(&mut level, &[(0, 101); 5], seconds(30 * 60));
        assert_eq!(found, [Some(Turn::Behind), None, Some(Turn::Behind), None, Some(Turn::Behind)]);
    }

    #[test]
    fn without_limits_nothing_is_behind() {
        let found = turns(&mut level(None, None), &[(u64::MAX / 2, u64::MAX)], seconds(1));
        assert_eq!(found, [None]);
    }
}
