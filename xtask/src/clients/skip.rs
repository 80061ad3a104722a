//! Lists of skipped tests: one `name => reason` per line, `#` begins a comment.

use std::path::PathBuf;

use anyhow::{Context as _, bail};

/// A file of `xtask/clients`.
pub(super) fn path(name: &str) -> PathBuf {
    crate::command::root().join("xtask").join("clients").join(name)
}

/// The names of a list.
///
/// # Errors
/// The file cannot be read, or a line gives no reason.
pub(super) fn names(file: &str) -> anyhow::Result<Vec<String>> {
    let path = path(file);
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let mut names = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match line.rsplit_once(" => ") {
            Some((name, reason)) if !reason.trim().is_empty() => names.push(name.to_owned()),
            _ => bail!("{}:{}: a test is skipped without a reason", path.display(), at + 1),
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_list_gives_reasons() {
        for file in ["redis-tcl.skip", "redis-py.skip"] {
            assert!(!names(file).unwrap().is_empty(), "{file}");
        }
    }
}
