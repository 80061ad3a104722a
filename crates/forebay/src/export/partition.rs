//! Chooses the directory of an event, and numbers the files.

use super::Format;

/// Which events share a directory.
#[derive(
    clap::ValueEnum, Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Partition {
    /// All events.
    None,
    /// The events of an hour, UTC.
    Hour,
    /// The events of a day, UTC.
    Day,
}

impl Partition {
    /// Returns the directory for a time, with a slash at its end unless it is the target itself.
    pub(crate) fn directory(self, timestamp_ns: i64) -> String {
        let pattern = match self {
            Self::None => return String::new(),
            Self::Hour => "date=%Y-%m-%d/hour=%H/",
            Self::Day => "date=%Y-%m-%d/",
        };
        jiff::Timestamp::from_nanosecond(i128::from(timestamp_ns))
            .map_or_else(|_| "date=unknown/".to_owned(), |time| time.strftime(pattern).to_string())
    }
}

/// Numbers the parts of each directory. Events are in order of time, so only the last directory's
/// number is kept.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    directory: String,
    next: u64,
}

impl Numbers {
    /// Returns the path of the next part of a directory, below the target.
    pub(crate) fn next(&mut self, directory: &str, format: Format) -> String {
        if self.directory != directory {
            directory.clone_into(&mut self.directory);
            self.next = 0;
        }
        let number = self.next;
        self.next += 1;
        format!("{directory}part-{number:05}.{}", format.extension())
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, Numbers, Partition};

    #[test]
    fn times_before_1970_and_at_both_ends_have_a_directory() {
        let hour = |time| Partition::Hour.directory(time);
        assert_eq!(hour(0), "date=1970-01-01/hour=00/");
        assert_eq!(hour(-1), "date=1969-12-31/hour=23/");
        assert_eq!(hour(i64::MIN), "date=1677-09-21/hour=00/");
        assert_eq!(Partition::Day.directory(i64::MAX), "date=2262-04-11/");
        assert_eq!(Partition::None.directory(i64::MAX), "");
    }

    #[test]
    fn each_directory_counts_from_zero() {
        let mut numbers = Numbers::default();
        let mut next = |directory| numbers.next(directory, Format::Ndjson);
        assert_eq!(next("date=1/"), "date=1/part-00000.ndjson");
        assert_eq!(next("date=1/"), "date=1/part-00001.ndjson");
        assert_eq!(next("date=2/"), "date=2/part-00000.ndjson");
    }
}
