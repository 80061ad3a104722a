//! Words that must not appear, each with the reason that is printed for it.

use super::Source;

/// A forbidden word in Rust code, and why.
///
/// The words are assembled from halves so that this file does not break its own rule.
const RUST: [(&str, &str); 8] = [
    (concat!("todo", "!("), "implement it or remove it"),
    (concat!("unimplemented", "!("), "implement it or remove it"),
    (concat!("dbg", "!("), "remove it: it is left over from debugging"),
    (
        concat!("#[ig", "nore"),
        "a test that cannot run skips loudly, and fails where services are required",
    ),
    (
        concat!("#[al", "low("),
        "use #[expect(.., reason = \"..\")]: it reports when it is no longer needed",
    ),
    (
        concat!("#![al", "low("),
        "use #![expect(.., reason = \"..\")]: it reports when it is no longer needed",
    ),
    (concat!("thread::", "sleep("), "wait for the event itself, not for a fixed time"),
    (
        concat!("process::", "exit("),
        "only main may end the process, so that nothing is interrupted",
    ),
];

/// A forbidden word in any file, and why.
const ANYWHERE: [(&str, &str); 3] = [
    (concat!("FIX", "ME"), "fix it or open an issue"),
    (concat!("XX", "X:"), "fix it or open an issue"),
    (concat!("TO", "DO:"), "do it or open an issue"),
];

/// Module names that fit everything.
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
        format!("{}: name a module after its contents; {name:?} fits everything", source.path)
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
