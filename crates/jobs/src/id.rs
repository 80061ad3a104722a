//! Names of jobs.

use std::fmt;

/// The name of a job: a UUID of version 7, so that later jobs have greater names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub(crate) u128);

impl JobId {
    /// A name that no other job has.
    pub(crate) fn new() -> Self {
        Self(uuid::Uuid::now_v7().as_u128())
    }

    /// Parses 32 hexadecimal digits; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        forebay_base::id::parse_id(text).map(Self)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_32_digits_and_nothing_else() {
        let id = JobId::new();
        assert_eq!(JobId::parse(&id.to_string()), Some(id));
        let digits = "0".repeat(31);
        for text in ["", "+", &format!("{digits}G"), &format!("+{digits}"), &format!("{digits}A")] {
            assert_eq!(JobId::parse(text), None, "{text}");
        }
    }
}
