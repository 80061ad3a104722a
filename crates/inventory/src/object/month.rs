//! Calendar months (UTC), the resolution of the age histogram.

use std::fmt;

use serde::{Serialize, Serializer};

const MS_PER_DAY: i64 = 86_400_000;

/// A month, or unknown. Months are ordered; the unknown one is the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Month(u16);

impl Month {
    /// Not known, or before 1970 or after the year 7000.
    pub const UNKNOWN: Self = Self(0);

    /// The month of a time, in milliseconds since 1970 (UTC).
    #[must_use]
    #[inline]
    pub fn from_unix_ms(ms: i64) -> Self {
        let days = ms.div_euclid(MS_PER_DAY);
        if !(0..1_837_000).contains(&days) {
            return Self::UNKNOWN;
        }
        // Years are counted from March, so that the leap day is the last of its year; days from
        // 0000-03-01, in eras of 400 years.
        let days = days + 719_468;
        let era = days / 146_097;
        let day = days % 146_097;
        let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
        let day = day - (365 * year + year / 4 - year / 100);
        let from_march = (5 * day + 2) / 153;
        let months = (era * 400 + year) * 12 + from_march + 2;
        u16::try_from(months - 1970 * 12 + 1).map_or(Self::UNKNOWN, Self)
    }

    /// The month with a number: 1 is January 1970, 0 is unknown.
    #[must_use]
    pub const fn from_number(number: u16) -> Self {
        Self(number)
    }

    /// Its number: 1 is January 1970, 0 is unknown.
    #[must_use]
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Year and month of the year (1 to 12); `None` if it is unknown.
    #[must_use]
    pub fn year_and_month(self) -> Option<(u16, u16)> {
        let months = self.0.checked_sub(1)?;
        Some((1970 + months / 12, months % 12 + 1))
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.year_and_month() {
            Some((year, month)) => write!(f, "{year:04}-{month:02}"),
            None => f.write_str("unknown"),
        }
    }
}

impl Serialize for Month {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_a_thousand_years_is_in_its_month() {
        let mut date = jiff::civil::date(1970, 1, 1);
        for day in 0..365_242_i64 {
            let month = Month::from_unix_ms(day * MS_PER_DAY + day % MS_PER_DAY);
            let expected = format!("{:04}-{:02}", date.year(), date.month());
            assert_eq!(month.to_string(), expected);
            date = date.tomorrow().unwrap();
        }
    }

    #[test]
    fn moments_out_of_range_are_unknown() {
        for ms in [-1, i64::MIN, i64::MAX] {
            assert_eq!(Month::from_unix_ms(ms), Month::UNKNOWN);
        }
        assert_eq!(Month::UNKNOWN.to_string(), "unknown");
        assert!(Month::UNKNOWN < Month::from_unix_ms(0));
    }
}
