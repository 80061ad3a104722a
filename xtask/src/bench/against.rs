//! `cargo xtask bench pipeline --against REV`: another revision is built beside this one, both run
//! in turns, and what became slower is named.
//!
//! Thresholds: a whole run more than 5 % slower in three rounds or more, a phase more than 20 %, a
//! process that takes twice as long around its run. The working tree is measured as it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};

use super::report::Report;
use crate::command::{FEATURES, FEATURES_WITH_PEERS, output, root, say};

/// Rounds in which a run may be more than 5 % slower.
const SLOWER_ROUNDS_MAX: f64 = 2.0;
/// What a phase may take, of the other revision's.
const PHASE_RATIO_MAX: f64 = 1.2;
/// What a process may take around its run.
const START_RATIO_MAX: f64 = 2.0;

/// Builds the other revision and measures both.
///
/// # Errors
/// It cannot be built, the measurement failed, or something became slower.
pub(super) fn run(revision: &str, profile: &str, rest: &[String]) -> anyhow::Result<()> {
    let other = build(revision, profile)?;
    let mut measure = super::forebay("run", FEATURES_WITH_PEERS, profile);
    measure.args(["--", "bench", "pipeline", "--json", "--against"]).arg(other).args(rest);
    let report = Report::parse(&output(&mut measure)?)?;
    let mut slower = Vec::new();
    say(format_args!("{:<34} {:>12}", "figure, this tree / the other", revision));
    for (name, figure) in &report.figures {
        let value = figure.value;
        let is_over = over(name).is_some_and(|most| value > most);
        let mark = if is_over { "  SLOWER" } else { "" };
        say(format_args!("{name:<34} {value:>12.3}{mark}"));
        if is_over {
            slower.push(name.clone());
        }
    }
    if slower.is_empty() {
        say(format_args!("nothing is slower than at {revision}"));
        return Ok(());
    }
    bail!("slower than at {revision}: {}", slower.join(", "))
}

/// The maximum of a figure; `None` for one that is only reported.
fn over(name: &str) -> Option<f64> {
    if name.ends_with("_slower_rounds") {
        Some(SLOWER_ROUNDS_MAX)
    } else if name.ends_with("_phase_ratio") && !name.ends_with("_wait_phase_ratio") {
        // Waiting is what the other side's work takes.
        Some(PHASE_RATIO_MAX)
    } else if name.ends_with("_start_ratio") {
        Some(START_RATIO_MAX)
    } else {
        None
    }
}

fn git(args: &[&str]) -> anyhow::Result<String> {
    let mut git = Command::new("git");
    let text = output(git.current_dir(root()).args(args))?;
    Ok(text.trim().to_owned())
}

/// The program of a revision; built once.
fn build(revision: &str, profile: &str) -> anyhow::Result<PathBuf> {
    let commit = git(&["rev-parse", "--verify", &format!("{revision}^{{commit}}")])
        .with_context(|| format!("unknown revision {revision}"))?;
    let home = root().join("target/against");
    let program = home.join(format!("forebay-{profile}-{commit}"));
    if program.is_file() {
        return Ok(program);
    }
    std::fs::create_dir_all(&home).with_context(|| format!("cannot create {}", home.display()))?;
    let tree = home.join("tree");
    let place = tree.display().to_string();
    remove(&tree)?;
    git(&["worktree", "add", "--detach", "--force", &place, &commit])?;
    say(format_args!("building {commit}; the first time this is a full build"));
    let mut build = super::forebay("build", FEATURES, profile);
    build.arg("--manifest-path").arg(tree.join("Cargo.toml"));
    let built = output(build.env("CARGO_TARGET_DIR", home.join("build")));
    let removed = remove(&tree);
    built.with_context(|| format!("cannot build {revision}"))?;
    removed?;
    let folder = if profile == "dev" { "debug" } else { profile };
    let made = home.join("build").join(folder).join("forebay");
    std::fs::copy(&made, &program).with_context(|| format!("cannot copy {}", made.display()))?;
    Ok(program)
}

/// Removes the tree, if one is there.
fn remove(tree: &Path) -> anyhow::Result<()> {
    if tree.exists() {
        git(&["worktree", "remove", "--force", &tree.display().to_string()])?;
    }
    git(&["worktree", "prune"]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_figure_has_its_threshold() {
        assert_eq!(over("copy_one_slower_rounds"), Some(2.0));
        assert_eq!(over("copy_one_flush_phase_ratio"), Some(1.2));
        assert_eq!(over("copy_one_start_ratio"), Some(2.0));
        for figure in ["copy_one_this_ms", "copy_one_other_ms", "copy_two_wait_phase_ratio"] {
            assert_eq!(over(figure), None, "{figure}");
        }
    }
}
