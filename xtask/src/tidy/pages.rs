//! Format pages: every `format` module names its page, every page is named, every name exists.
//!
//! A page describes bytes on disk or on the wire to readers without the source code.

use super::Source;

const PAGES: &str = "docs/formats/";

/// Everything found.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    let pages: Vec<&str> = sources
        .iter()
        .map(|source| source.path.as_str())
        .filter(|path| path.starts_with(PAGES) && path.ends_with(".md"))
        .collect();
    let mut named = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust() && !is_tidy(&source.path)) {
        let names = names(&source.text);
        for name in names.iter().filter(|name| !pages.contains(&name.as_str())) {
            findings.push(format!("{}: names {name}, which does not exist", source.path));
        }
        if is_format_module(&source.path) && names.is_empty() {
            findings.push(format!(
                "{}: name the page in {PAGES} that describes this format",
                source.path
            ));
        }
        named.extend(names);
    }
    for page in pages {
        if !named.iter().any(|name| name == page) {
            findings.push(format!("{page}: no source file names this page"));
        }
    }
    findings
}

/// This rule's own examples are not pages.
fn is_tidy(path: &str) -> bool {
    path.starts_with("xtask/src/tidy/")
}

/// `format.rs`, or the head of a `format/` directory, inside a crate.
fn is_format_module(path: &str) -> bool {
    path.starts_with("crates/")
        && path.contains("/src/")
        && (path.ends_with("/format.rs") || path.ends_with("/format/mod.rs"))
}

/// Pages named in `text`.
fn names(text: &str) -> Vec<String> {
    text.match_indices(PAGES)
        .filter_map(|(at, _)| {
            let name = &text[at..];
            let end = name.find(".md")?;
            let name = &name[..end + 3];
            name[PAGES.len()..]
                .chars()
                .all(|c| c.is_alphanumeric() || "-_./".contains(c))
                .then_some(name)
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn a_format_without_a_page_and_a_page_without_a_format_are_found() {
        let good = source("crates/a/src/format.rs", "//! See `docs/formats/a.md`.");
        let page = source("docs/formats/a.md", "# a");
        assert_eq!(check(&[good, page]), Vec::<String>::new());
        let silent = source("crates/b/src/format/mod.rs", "//! Bytes.");
        let wrong = source("crates/c/src/lib.rs", "//! docs/formats/missing.md");
        let lonely = source("docs/formats/lonely.md", "# x");
        let findings = check(&[silent, wrong, lonely]);
        assert_eq!(findings.len(), 3, "{findings:?}");
    }
}
