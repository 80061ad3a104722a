//! Which backups are kept: the newest, and the newest of the last days, weeks and months that have one, as by
//! `restic forget`.
//!
//! Invariant: what cannot be understood is kept.

use jiff::civil::{Date, DateTime};

/// How many backups are kept by each rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Keep {
    /// The newest.
    pub(crate) last: u32,
    /// The newest of each day (UTC).
    pub(crate) daily: u32,
    /// The newest of each week, which begins on Monday.
    pub(crate) weekly: u32,
    /// The newest of each month.
    pub(crate) monthly: u32,
}

/// A backup, and whether it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) id: String,
    /// The rules that keep it: none if it is to be removed.
    pub(crate) reasons: Vec<&'static str>,
}

/// A rule: its name, how many it may still keep, the period of a day, and the last period that it kept one of.
struct Rule {
    name: &'static str,
    left: u32,
    period: fn(Date) -> (i16, i16),
    seen: Option<(i16, i16)>,
}

impl Keep {
    /// Decides for each backup.
    ///
    /// * `ids`: the oldest first.
    pub(crate) fn decide(&self, ids: &[String]) -> Vec<Decision> {
        let rule = |name, left, period| Rule { name, left, period, seen: None };
        let mut rules = [
            rule("daily", self.daily, |day| (day.year(), day.day_of_year())),
            rule("weekly", self.weekly, |day| {
                let week = day.iso_week_date();
                (week.year(), week.week().into())
            }),
            rule("monthly", self.monthly, |day| (day.year(), day.month().into())),
        ];
        let mut last = self.last;
        let decide = |id: &String| {
            let mut reasons = Vec::new();
            if last > 0 {
                last -= 1;
                reasons.push("last");
            }
            match day_of(id) {
                Some(day) => reasons.extend(rules.iter_mut().filter_map(|rule| rule.keeps(day))),
                None => reasons.push("its id has no time"),
            }
            Decision { id: id.clone(), reasons }
        };
        let mut decisions: Vec<_> = ids.iter().rev().map(decide).collect();
        decisions.reverse();
        decisions
    }
}

impl Rule {
    /// Its name if it keeps a backup of this day. Backups come from the newest to the oldest.
    fn keeps(&mut self, day: Date) -> Option<&'static str> {
        let period = (self.period)(day);
        if self.left == 0 || self.seen == Some(period) {
            return None;
        }
        self.left -= 1;
        self.seen = Some(period);
        Some(self.name)
    }
}

/// The day on which a backup was begun, in UTC.
fn day_of(id: &str) -> Option<Date> {
    let time = id.get(.."20261125T200523".len())?;
    DateTime::strptime("%Y%m%dT%H%M%S", time).ok().map(DateTime::date)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is kept of backups with these times, and why.
    fn kept(keep: Keep, times: &[&str]) -> Vec<String> {
        let ids: Vec<_> = times.iter().map(|time| format!("{time}00000Z-0a0b0c0d")).collect();
        let decisions = keep.decide(&ids);
        assert!(decisions.iter().map(|decision| &decision.id).eq(&ids));
        let kept = decisions.iter().zip(times).filter(|(decision, _)| !decision.reasons.is_empty());
        kept.map(|(decision, time)| format!("{time} {}", decision.reasons.join(","))).collect()
    }

    const TIMES: [&str; 9] = [
        "20251115T1200",
        "20251228T1200",
        // Monday of the first week of 2026.
        "20251229T1200",
        "20260104T1200",
        "20260131T0000",
        "20260131T2359",
        "20260201T0000",
        "20260202T0800",
        "20260202T0900",
    ];

    #[test]
    fn the_newest_of_a_period_is_kept() {
        let keep = Keep { last: 2, ..Keep::default() };
        assert_eq!(kept(keep, &TIMES), ["20260202T0800 last", "20260202T0900 last"]);
        let keep = Keep { daily: 3, ..Keep::default() };
        assert_eq!(
            kept(keep, &TIMES),
            ["20260131T2359 daily", "20260201T0000 daily", "20260202T0900 daily"]
        );
        let keep = Keep { weekly: 4, ..Keep::default() };
        assert_eq!(
            kept(keep, &TIMES),
            [
                "20251228T1200 weekly",
                "20260104T1200 weekly",
                "20260201T0000 weekly",
                "20260202T0900 weekly"
            ]
        );
        let keep = Keep { last: 1, monthly: 12, ..Keep::default() };
        assert_eq!(
            kept(keep, &TIMES),
            [
                "20251115T1200 monthly",
                "20251229T1200 monthly",
                "20260131T2359 monthly",
                "20260202T0900 last,monthly"
            ]
        );
    }

    #[test]
    fn any_rule_keeps_the_newest_and_what_has_no_time_stays() {
        for keep in [
            Keep { last: 1, ..Keep::default() },
            Keep { daily: 1, ..Keep::default() },
            Keep { weekly: 1, ..Keep::default() },
            Keep { monthly: 1, ..Keep::default() },
        ] {
            assert_eq!(kept(keep, &TIMES).len(), 1, "{keep:?}");
        }
        let ids = ["20260202T090000000Z-0a".to_owned(), "mine".to_owned()];
        let decisions = Keep { daily: 1, ..Keep::default() }.decide(&ids);
        assert!(decisions.iter().all(|decision| !decision.reasons.is_empty()), "{decisions:?}");
    }
}
