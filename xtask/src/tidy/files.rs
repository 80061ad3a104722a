//! Length of files, and their opening comments.

use super::Source;

/// A longer Rust file is reported: does it have two purposes?
const LINES_ASK: usize = 600;
/// Maximum length of a Rust file.
const LINES_MAX: usize = 900;

/// Files without an opening comment, and files that are too long.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let rust = || sources.iter().filter(|source| source.is_rust());
    let silent = rust().filter(|source| !source.text.starts_with("//!")).map(|source| {
        format!("{}:1: start the file with a //! comment: purpose, invariants", source.path)
    });
    let too_long = rust()
        .map(|source| (source, source.text.lines().count()))
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(source, lines)| {
            format!("{}: {lines} lines; the maximum is {LINES_MAX}", source.path)
        });
    let ours = |path: &str| path.starts_with("crates/") && path.ends_with("/Cargo.toml");
    let crates = sources.iter().filter(|source| ours(&source.path));
    let nameless = crates
        .filter(|source| {
            source.text.contains("[package]") && !source.text.contains("description = ")
        })
        .map(|source| format!("{}: give the crate a description", source.path));
    silent.chain(too_long).chain(nameless).collect()
}

/// Files that may have two purposes.
pub(super) fn long(sources: &[Source]) -> Vec<String> {
    sources
        .iter()
        .filter(|source| source.is_rust())
        .map(|source| (source, source.text.lines().count()))
        .filter(|(_, lines)| (LINES_ASK + 1..=LINES_MAX).contains(lines))
        .map(|(source, lines)| {
            format!("{}: {lines} lines; does the file have two purposes?", source.path)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn a_file_opens_with_its_purpose_and_ends_in_time() {
        let lines = |count: usize| format!("//! x\n{}", "a\n".repeat(count - 1));
        let sources = [
            source("good.rs", &lines(LINES_ASK)),
            source("ask.rs", &lines(LINES_ASK + 1)),
            source("long.rs", &lines(LINES_MAX + 1)),
            source("silent.rs", "fn main() {}\n"),
            source("notes.md", "no rule for this\n"),
        ];
        let findings = check(&sources);
        assert_eq!(findings.len(), 2, "{findings:?}");
        assert!(findings[0].starts_with("silent.rs:1:") && findings[1].starts_with("long.rs: 901"));
        assert_eq!(long(&sources).len(), 1);
    }
}
