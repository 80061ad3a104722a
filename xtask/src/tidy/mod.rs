//! `cargo xtask tidy`: the written rules that a program can check.
//!
//! Every rule returns its findings as `file:line: what is wrong`; no rule stops at the first.

mod english;
mod files;
mod floors;
mod pages;
mod words;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::command::{root, say};

/// One text file of the workspace.
#[derive(Debug)]
struct Source {
    /// Relative to the root, with `/`.
    path: String,
    text: String,
}

impl Source {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }
}

/// The task.
///
/// # Errors
/// The number of broken rules; each is printed before.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = root();
    let sources = read_all(&root)?;
    let mut findings = floors::check(&root)?;
    findings.extend(files::check(&sources));
    findings.extend(words::check(&sources));
    findings.extend(english::check(&sources));
    findings.extend(pages::check(&sources));
    for long in files::long(&sources) {
        say(format_args!("note: {long}"));
    }
    findings.sort();
    for finding in &findings {
        say(finding);
    }
    if findings.is_empty() { Ok(()) } else { bail!("tidy: {} rules broken", findings.len()) }
}

/// All text files of the workspace below `root`.
fn read_all(root: &Path) -> anyhow::Result<Vec<Source>> {
    const KINDS: [&str; 6] = ["rs", "md", "toml", "sh", "js", "css"];
    let mut sources = Vec::new();
    let mut dirs: Vec<PathBuf> = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        let entries =
            std::fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot list {}", dir.display()))?;
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                // Build output, a local server's data, and hidden directories do not belong to the
                // workspace.
                if !(name.starts_with('.') || name == "target" || name == "forebay-data") {
                    dirs.push(path);
                }
            } else if path.extension().is_some_and(|kind| KINDS.iter().any(|known| kind == *known))
            {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let path = path.strip_prefix(root).unwrap_or(&path).to_string_lossy().into_owned();
                sources.push(Source { path, text });
            }
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file for a rule's test.
    pub(super) fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn the_workspace_itself_is_tidy() {
        let sources = read_all(&root()).unwrap();
        assert!(sources.iter().any(|source| source.path == "xtask/src/tidy/mod.rs"));
        let broken: Vec<String> = floors::check(&root())
            .unwrap()
            .into_iter()
            .chain(files::check(&sources))
            .chain(words::check(&sources))
            .chain(english::check(&sources))
            .chain(pages::check(&sources))
            .collect();
        assert!(broken.is_empty(), "{broken:#?}");
    }
}
