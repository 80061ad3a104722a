//! Words of the vocabulary of STYLE.md that users do not read: counted in the literals of the code, in
//! the documentation that `clap`, the OpenAPI description and JSON schemas print, and in the pages.
//!
//! A Rust file is cut into tokens, so a word in a comment or a name is none of this rule's.

use std::str::FromStr as _;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::Source;

/// A word, and what to write.
const WORDS: [(&str, &str); 23] = [
    ("tell", "report, print, detect or distinguish"),
    ("tells", "reports, prints, detects or distinguishes"),
    ("told", "reported, printed, detected or given"),
    ("nobody", "no one, no client, nothing"),
    ("somebody", "the client, the user, the operator, a person"),
    ("whoever", "the client, the user, the caller"),
    ("anew", "again, from the start"),
    ("so many", "exactly N, at most N"),
    ("as many as", "at most N"),
    ("of its own", "its own, separate"),
    ("of their own", "their own, separate"),
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("cannot now", "temporarily unavailable"),
    ("stands for nothing", "does not exist"),
    ("stand for nothing", "do not exist"),
    ("dies", "expires, ends"),
    ("how it stands", "status, state"),
    ("what it may have", "limit, maximum"),
    ("the one before", "the previous one"),
    ("what comes behind", "what follows"),
    ("goes", "runs, is written, fails"),
];
/// Pages in which the words are named, or that say what was.
const EXEMPT: [&str; 2] = ["STYLE.md", "CHANGELOG.md"];

/// Everything found, as `file:line: word: what to write`.
pub(super) fn check(sources: &[Source]) -> Vec<String> {
    sources.iter().flat_map(check_one).collect()
}

fn check_one(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    let mut see = |line: usize, text: &str| {
        for (word, instead) in words_in(text) {
            findings.push(format!("{}:{line}: {word}: write {instead}", source.path));
        }
    };
    if source.path.ends_with(".md") {
        if !EXEMPT.contains(&&*source.path) {
            for (at, line) in source.text.lines().enumerate() {
                see(at + 1, line);
            }
        }
    } else if is_product(&source.path) {
        match TokenStream::from_str(&source.text) {
            Ok(tokens) => literals(tokens, is_printed(source), &mut see),
            Err(error) => findings.push(format!("{}: cannot be read: {error}", source.path)),
        }
    }
    findings
}

/// Whether a file is part of what users run.
fn is_product(path: &str) -> bool {
    let test = |part: &str| part == "tests" || part.contains("test") || part == "fuzzing.rs";
    path.ends_with(".rs") && path.starts_with("crates/") && !path.split('/').any(test)
}

/// Whether the documentation in a file is printed: help of commands, descriptions of settings, and
/// types that are described in OpenAPI or in a JSON schema.
fn is_printed(source: &Source) -> bool {
    let path = &source.path;
    path.starts_with("crates/forebay/src/cli/")
        || path.starts_with("crates/forebay/src/config/")
        || path.ends_with("/settings.rs")
        || ["ToSchema", "JsonSchema"].iter().any(|derived| source.text.contains(derived))
}

/// Passes every string of a file to `see`; tests within the file are left out.
fn literals(tokens: TokenStream, docs: bool, see: &mut impl FnMut(usize, &str)) {
    let mut tokens = tokens.into_iter().peekable();
    let mut is_test = false;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                if let Some(TokenTree::Punct(_)) = tokens.peek() {
                    drop(tokens.next());
                }
                let Some(TokenTree::Group(attribute)) = tokens.next() else { continue };
                let text = attribute.stream().to_string();
                is_test |= text.starts_with("cfg") && text.contains("test");
                if docs || !text.starts_with("doc ") {
                    literals(attribute.stream(), docs, see);
                }
            }
            // What an attribute is about ends with its body or at a semicolon.
            TokenTree::Group(group) if is_test && is_body(&group) => is_test = false,
            TokenTree::Punct(mark) if mark.as_char() == ';' => is_test = false,
            TokenTree::Group(group) if !is_test => literals(group.stream(), docs, see),
            TokenTree::Literal(literal) if !is_test => {
                let text = literal.to_string();
                if text.contains('"') {
                    see(literal.span().start().line, &text);
                }
            }
            _ => {}
        }
    }
}

fn is_body(group: &Group) -> bool {
    group.delimiter() == Delimiter::Brace
}

/// The words of the list in a text, each as whole words.
fn words_in(text: &str) -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let plain: String = text.to_lowercase().replace(['\n', '\\'], " ");
    let words: Vec<String> = plain
        .split(|c: char| !(c.is_alphanumeric() || c == '\'' || c == '_' || c == '-'))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    let joined = format!(" {} ", words.join(" "));
    WORDS.iter().filter(move |(word, _)| joined.contains(&format!(" {word} ")))
}

#[cfg(test)]
mod tests {
    use super::super::tests::source;
    use super::*;

    #[test]
    fn words_are_found_in_strings_help_and_pages_but_not_in_comments_or_tests() {
        let code = r#"
            /// Told by doc.
            #[error("nobody answered")]
            struct S; // nobody
            fn told() { print("so \
                many rows"); }
            #[cfg(test)]
            mod tests { fn f() { print("anew"); } }
            fn g() { print(r"it goes"); }
        "#;
        let found = check(&[source("crates/x/src/a.rs", code)]);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("crates/x/src/a.rs:3: nobody"), "{found:?}");
        assert!(found[1].contains(":5: so many") && found[2].contains(":9: goes"), "{found:?}");
        let printed = check(&[source("crates/forebay/src/cli/a.rs", code)]);
        assert_eq!(printed.len(), 4, "{printed:?}");
        for derived in ["utoipa::ToSchema", "schemars::JsonSchema"] {
            let described = code.replace("struct S;", &format!("#[derive({derived})] struct S;"));
            let described = check(&[source("crates/x/src/answers.rs", &described)]);
            assert_eq!(described.len(), 4, "{described:?}");
            assert!(described[0].starts_with("crates/x/src/answers.rs:2: told"), "{described:?}");
        }
        assert_eq!(check(&[source("crates/x/tests/it/a.rs", code)]).len(), 0);
        assert_eq!(check(&[source("docs/a.md", "x\nthe caller is told\n")]).len(), 1);
        assert_eq!(check(&[source("STYLE.md", "told")]).len(), 0);
    }

    #[test]
    fn a_word_is_a_whole_word() {
        assert_eq!(words_in("foretold storyteller undergoes is_told").count(), 0);
        assert_eq!(words_in("It tells, and so\n  many more; goes.").count(), 3);
    }
}
