//! What became of the promises of a connector, one by one.
//!
//! Invariant: a promise is kept, broken or untested; an untested one has a reason.

use super::{Claim, Failure};

/// How the test of a promise ended, unless it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tested {
    /// The promise is kept.
    Kept,
    /// The promise does not apply, for this reason.
    Not(&'static str),
}

/// What became of a promise.
#[derive(Debug)]
pub enum Outcome {
    /// It is kept.
    Kept,
    /// It is broken, or an operation failed that it needs.
    Broken(Failure),
    /// It was not tested, for this reason.
    Untested(&'static str),
}

/// A promise and what became of it.
#[derive(Debug)]
pub struct Finding {
    /// The promise.
    pub claim: &'static str,
    /// What became of it.
    pub outcome: Outcome,
}

/// Findings, in the order of the tests.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds a promise that was tested. Returns whether it is not broken.
    pub fn add(&mut self, claim: Claim, tested: Result<Tested, Failure>) -> bool {
        let outcome = match tested {
            Ok(Tested::Kept) => Outcome::Kept,
            Ok(Tested::Not(reason)) => Outcome::Untested(reason),
            Err(failure) => Outcome::Broken(failure),
        };
        let is_fine = !matches!(outcome, Outcome::Broken(_));
        self.0.push(Finding { claim: claim.0, outcome });
        is_fine
    }

    /// Adds a promise that a value proves. Returns the value.
    pub fn take<T>(&mut self, claim: Claim, tested: Result<T, Failure>) -> Option<T> {
        match tested {
            Ok(value) => {
                self.add(claim, Ok(Tested::Kept));
                Some(value)
            }
            Err(failure) => {
                self.add(claim, Err(failure));
                None
            }
        }
    }

    /// Adds other findings.
    pub fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }

    /// The findings.
    pub fn iter(&self) -> impl Iterator<Item = &Finding> {
        self.0.iter()
    }

    /// Fails with the first promise that is broken.
    ///
    /// # Errors
    /// A promise is broken.
    pub fn kept(self) -> Result<(), Failure> {
        for finding in self.0 {
            if let Outcome::Broken(failure) = finding.outcome {
                return Err(failure);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_broken_promise_is_the_failure_and_an_untested_one_is_none() {
        let mut findings = Findings::default();
        assert!(findings.add(Claim("a"), Ok(Tested::Kept)));
        assert!(findings.add(Claim("b"), Ok(Tested::Not("there is one unit"))));
        assert!(!findings.add(Claim("c"), Claim("c").same(1, 2).map(|()| Tested::Kept)));
        assert_eq!(findings.take(Claim("d"), Ok(7)), Some(7));
        assert_eq!(findings.iter().count(), 4);
        let failure = findings.kept().unwrap_err().to_string();
        assert_eq!(failure, "c: expected 2, found 1");
        assert!(Findings::default().kept().is_ok());
    }
}
