//! Length of files, and their opening comments; the pages that name every crate.

use super::Source;

/// A longer Rust file is reported: does it have two purposes?
const LINES_ASK: usize = 600;
/// Maximum length of a Rust file.
const LINES_MAX: usize = 900;

/// The page that is read first, and its maximum number of words.
const FIRST_PAGE: &str = "README.md";
const FIRST_PAGE_WORDS_MAX: usize = 1_000;
/// The page with the table of crates.
const CRATES_PAGE: &str = "CONTRIBUTING.md";

/// Files without an opening comment, files that are too long, and crates that their page lacks.
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
    silent
        .chain(too_long)
        .chain(nameless)
        .chain(first_page(sources))
        .chain(unlisted(sources))
        .collect()
}

/// The first page, if it has too many words.
fn first_page(sources: &[Source]) -> Option<String> {
    let page = sources.iter().find(|source| source.path == FIRST_PAGE)?;
    let words = page.text.split_whitespace().count();
    (words > FIRST_PAGE_WORDS_MAX).then(|| {
        format!(
            "{FIRST_PAGE}: {words} words; the maximum is {FIRST_PAGE_WORDS_MAX}; move some to docs/"
        )
    })
}

/// Crates that the page with the table of crates does not name.
fn unlisted(sources: &[Source]) -> impl Iterator<Item = String> {
    let page = sources.iter().find(|source| source.path == CRATES_PAGE);
    let folder = |source: &Source| {
        let folder = source.path.strip_suffix("/Cargo.toml")?;
        let is_crate = folder.strip_prefix("crates/").is_some_and(|name| !name.contains('/'));
        is_crate.then(|| folder.to_owned())
    };
    sources
        .iter()
        .filter_map(folder)
        .filter(move |folder| page.is_some_and(|page| !page.text.contains(&format!("`{folder}`"))))
        .map(|folder| format!("{CRATES_PAGE}: the table of crates lacks `{folder}`"))
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

    #[test]
    fn the_first_page_is_short() {
        let page = |words: usize| source(FIRST_PAGE, &"word \n".repeat(words));
        assert_eq!(check(&[page(FIRST_PAGE_WORDS_MAX)]), Vec::<String>::new());
        let findings = check(&[page(FIRST_PAGE_WORDS_MAX + 1)]);
        assert!(findings.len() == 1 && findings[0].contains("1001 words"), "{findings:?}");
        let other = source("docs/guide/README.md", &"word ".repeat(2 * FIRST_PAGE_WORDS_MAX));
        assert_eq!(check(&[other]), Vec::<String>::new());
    }

    #[test]
    fn a_crate_that_the_table_lacks_is_found() {
        let page = source(CRATES_PAGE, "| `crates/log` | the log |");
        let of = |folder: &str| source(&format!("crates/{folder}/Cargo.toml"), "");
        let findings = check(&[page, of("log"), of("lo"), of("log/inner")]);
        assert_eq!(findings, ["CONTRIBUTING.md: the table of crates lacks `crates/lo`"]);
    }
}
