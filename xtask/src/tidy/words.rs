//! Words that must not appear, each with the reason told to whoever used it.

use super::Source;

/// A word in Rust code, and why not.
///
/// The words are put together from halves so that this file does not break its own rule.
const RUST: [(&str, &str); 8] = [
    (concat!("todo", "!("), "write it, or leave it out"),
    (concat!("unimplemented", "!("), "write it, or leave it out"),
    (concat!("dbg", "!("), "left over from looking for a fault"),
    (
        concat!("#[ig", "nore"),
        "a test that cannot run skips loudly, and fails where services are required",
    ),
    (
        concat!("#[al", "low("),
        "use #[expect(.., reason = \"..\")]: it tells when it is no longer needed",
    ),
    (
        concat!("#![al", "low("),
        "use #![expect(.., reason = \"..\")]: it tells when it is no longer needed",
    ),
    (concat!("thread::", "sleep("), "wait for what is to happen, not for time"),
    (concat!("process::", "exit("), "only main ends the process, so that nothing is cut short"),
];

/// A word anywhere, and why not.
const ANYWHERE: [(&str, &str); 3] = [
    (concat!("FIX", "ME"), "mend it, or open an issue"),
    (concat!("XX", "X:"), "mend it, or open an issue"),
    (concat!("TO", "DO:"), "do it, or open an issue"),
];

/// Module names that say nothing.
const MODULES: [&str; 6] = ["util", "utils", "common", "helper", "helpers", "manager"];

/// Everything found.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(|source| lines(source).chain(module(source))).collect()
}

fn lines(source: &Source) -> impl Iterator<Item = String> {
    let rust: &[_] = if source.is_rust() { &RUST } else { &[] };
    source.text.lines().enumerate().flat_map(move |(at, line)| {
        rust.iter()
            .chain(&ANYWHERE)
            .filter(move |(word, _)| line.contains(word))
            .map(move |(word, why)| format!("{}:{}: {word}: {why}", source.path, at + 1))
    })
}

fn module(source: &Source) -> Option<String> {
    let name = source.path.strip_suffix(".rs")?.trim_end_matches("/mod").rsplit('/').next()?;
    MODULES.contains(&name).then(|| {
        format!("{}: a module is called by what it holds; {name:?} says nothing", source.path)
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn a_forbidden_word_is_found_with_its_line() {
        let text = format!("//! x\nfn f() {{ {}); }}\n", RUST[0].0);
        let findings = check(&[source("a.rs", &text), source("a.md", &text)]);
        assert_eq!(findings.len(), 1, "code words are free in prose: {findings:?}");
        assert!(findings[0].starts_with("a.rs:2:"), "{findings:?}");
        let prose = format!("fine\n{} later\n", ANYWHERE[0].0);
        assert_eq!(check(&[source("a.md", &prose)]).len(), 1);
    }

    #[test]
    fn a_module_that_says_nothing_is_found() {
        assert_eq!(check(&[source("src/utils.rs", ""), source("src/helper/mod.rs", "")]).len(), 2);
        assert_eq!(check(&[source("src/common_prefix.rs", "")]).len(), 0);
    }
}
