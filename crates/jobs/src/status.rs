//! How urgent a job is, its status, and how many have ended.

/// How urgent a job is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// 8 of 13 jobs.
    High,
    /// 4 of 13 jobs.
    #[default]
    Normal,
    /// 1 of 13 jobs.
    Low,
}

impl Priority {
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(crate) fn number(self) -> u8 {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }

    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.number() == number)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.number())
    }

    pub(crate) fn weight(self) -> i32 {
        match self {
            Self::High => 8,
            Self::Normal => 4,
            Self::Low => 1,
        }
    }

    /// Its name: `high`, `normal` or `low`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Normal => "normal",
            Self::Low => "low",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|priority| priority.name() == name)
    }
}

/// What is known of the progress of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It waits for a worker, or for its next attempt.
    Queued,
    /// A worker has it.
    Running,
    /// It was done.
    Completed,
    /// It was refused, or its attempts are used up.
    Failed,
    /// It was cancelled.
    Cancelled,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Running, Self::Completed, Self::Failed, Self::Cancelled];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether nothing more happens to the job by itself.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// Numbers of jobs by how they ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EndCounts {
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
}

impl EndCounts {
    /// The count of a status; `None` for one that is no end.
    fn of(&mut self, status: Status) -> Option<&mut u64> {
        match status {
            Status::Completed => Some(&mut self.completed),
            Status::Failed => Some(&mut self.failed),
            Status::Cancelled => Some(&mut self.cancelled),
            Status::Queued | Status::Running => None,
        }
    }

    pub(crate) fn add(&mut self, status: Status) {
        if let Some(count) = self.of(status) {
            *count += 1;
        }
    }

    pub(crate) fn subtract(&mut self, status: Status) {
        if let Some(count) = self.of(status) {
            *count -= 1;
        }
    }
}
