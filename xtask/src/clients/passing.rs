//! Lists of tests that pass: one name per line, `#` begins a comment.
//!
//! Of clients whose own tests are of everything that Amazon's service does, or of extensions of one server.
//! A listed test that does not pass is a failure; others are counted as left out.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, ensure};

use super::{Outcome, skip};
use crate::command::say;

/// The names of a list.
///
/// # Errors
/// The file cannot be read.
pub(super) fn names(file: &str) -> anyhow::Result<BTreeSet<String>> {
    let path = skip::path("s3").join(file);
    let list = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let lines = list.lines().map(str::trim);
    Ok(lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect())
}

/// What became of tests.
#[derive(Debug, Default)]
pub(super) struct Results {
    passed: BTreeSet<String>,
    /// Names of those that did not pass, and why.
    failed: BTreeMap<String, String>,
}

impl Results {
    /// Notes a test by its name, or a step of one: a test has passed if each of its steps has.
    ///
    /// * `why`: why it did not pass.
    pub(super) fn note(&mut self, name: &str, why: Option<&str>) {
        match why {
            None => {
                self.passed.insert(name.to_owned());
            }
            Some(why) => {
                self.failed.entry(name.to_owned()).or_insert_with(|| why.to_owned());
            }
        }
    }

    /// Compares what passed with a list.
    ///
    /// * `part`: how the tests were run.
    ///
    /// # Errors
    /// None passed.
    pub(super) fn judge(
        mut self,
        listed: &BTreeSet<String>,
        part: &str,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        self.passed.retain(|name| !self.failed.contains_key(name));
        ensure!(!self.passed.is_empty(), "no test ran over {part}");
        for name in listed {
            let why = self.failed.get(name).map_or("", String::as_str);
            outcome.note(&format!("{part}: {name}: {why}"), self.passed.contains(name));
        }
        outcome.skipped += self.failed.keys().filter(|name| !listed.contains(*name)).count();
        let more = self.passed.iter().filter(|name| !listed.contains(*name));
        let more: Vec<&str> = more.map(String::as_str).collect();
        if !more.is_empty() {
            say(format_args!("pass over {part}, but are not in the list: {}", more.join(" ")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_test_that_does_not_pass_in_all_its_steps_is_a_failure() {
        let results = || {
            let mut results = Results::default();
            for (name, why) in
                [("a", None), ("b", Some("500")), ("b", None), ("c", Some("501")), ("d", None)]
            {
                results.note(name, why);
            }
            results
        };
        let listed = ["a", "b", "gone"].map(str::to_owned).into();
        let mut outcome = Outcome::default();
        results().judge(&listed, "http", &mut outcome).unwrap();
        assert_eq!((outcome.passed, outcome.skipped), (1, 1));
        assert_eq!(outcome.failed, ["http: b: 500", "http: gone: "]);
        assert!(Results::default().judge(&listed, "http", &mut outcome).is_err());
    }

    #[test]
    fn every_list_has_names() {
        let of_mint = ["awscli", "s3cmd", "aws-sdk-go-v2", "versioning"];
        let of_mint = of_mint.map(|core| format!("mint-{core}.passing"));
        let of_sdks = ["mint-aws-sdk-ruby", "mint-aws-sdk-java-v2", "mint-aws-sdk-php"];
        let of_minio = ["minio-go", "minio-py", "minio-java", "minio-js"];
        let others = of_sdks.iter().chain(&of_minio).chain(&["versitygw", "s3-tests"]);
        let others: Vec<String> = others.map(|name| format!("{name}.passing")).collect();
        for file in others.iter().chain(&of_mint) {
            assert!(!names(file).unwrap().is_empty(), "{file}");
        }
    }
}
