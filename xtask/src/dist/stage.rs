//! The staged directory: everything that is installed, as it lies below a prefix.
//!
//! ```text
//! bin/forebay
//! etc/forebay/forebay.toml      every setting at its default, but for the data directory
//! lib/systemd/system/           forebay.service
//! lib/sysusers.d/ tmpfiles.d/   the user and the data directory of the service
//! share/man/man1/ man7/         the commands, and the guides
//! share/bash-completion/ ...    completions for bash, zsh and fish
//! docs/ README.md CHANGELOG.md LICENSE Containerfile
//! deploy/                       files for compose and Kubernetes
//! ```
//!
//! Manual pages, completions and settings are printed by the packaged binary, so they describe it.
//!
//! Invariant: the directory has only what this run put there.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::guide::{self, Guide};
use super::{Release, names};
use crate::command::{output, root, run};

/// Files of the workspace, and where they are staged.
const COPIED: [(&str, &str); 11] = [
    ("LICENSE", "LICENSE"),
    ("README.md", "README.md"),
    ("CHANGELOG.md", "CHANGELOG.md"),
    ("packaging/Containerfile", "Containerfile"),
    ("packaging/deploy/compose.yaml", "deploy/compose.yaml"),
    ("packaging/deploy/compose-s3.yaml", "deploy/compose-s3.yaml"),
    ("packaging/deploy/kubernetes.yaml", "deploy/kubernetes.yaml"),
    ("packaging/deploy/kubernetes-s3.yaml", "deploy/kubernetes-s3.yaml"),
    ("packaging/forebay.service", "lib/systemd/system/forebay.service"),
    ("packaging/forebay.sysusers", "lib/sysusers.d/forebay.conf"),
    ("packaging/forebay.tmpfile", "lib/tmpfiles.d/forebay.conf"),
];
/// Shells, and where each looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/forebay"),
    ("zsh", "share/zsh/site-functions/_forebay"),
    ("fish", "share/fish/vendor_completions.d/forebay.fish"),
];
/// The data directory of the service, as its unit names it.
const DATA: &str = "/var/lib/forebay";

/// Fills the staged directory from the start; returns its path.
///
/// # Errors
/// A file is missing or cannot be written, or a command of the binary fails.
pub(super) fn fill(release: &Release, binary: &Path) -> anyhow::Result<PathBuf> {
    let staged = release.out.join(release.stem());
    if let Err(error) = std::fs::remove_dir_all(&staged)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error).with_context(|| format!("cannot remove {}", staged.display()));
    }
    copy(binary, &staged.join("bin/forebay"))?;
    for (from, to) in COPIED {
        copy(&root().join(from), &staged.join(to))?;
    }
    copy_pages(&root().join("docs"), &staged.join("docs"))?;
    for (shell, to) in COMPLETIONS {
        let script = output(Command::new(binary).args(["completions", shell]))?;
        write(&staged.join(to), &script)?;
    }
    let settings = output(Command::new(binary).args(["config", "init"]))?;
    write(&staged.join("etc/forebay/forebay.toml"), &with_data(&settings)?)?;
    write_manual(release, binary, &staged.join("share/man"))?;
    Ok(staged)
}

/// Writes the manual pages: section 1 by the binary, section 7 from the guides.
fn write_manual(release: &Release, binary: &Path, man: &Path) -> anyhow::Result<()> {
    let commands = man.join("man1");
    run(Command::new(binary).arg("man").arg(&commands))?;
    let guides = guides()?;
    let main = commands.join("forebay.1");
    let mut text = read(&main)?;
    text.push_str(&guide::see_also(guides.iter().map(|name| format!("{}(7)", names::page(name)))));
    write(&main, &text)?;
    let index = read(&root().join("docs/README.md"))?;
    let date = date(release.epoch)?;
    for name in &guides {
        let summary = names::summary(&index, name)?;
        let guide = Guide { name, summary, date: &date, version: &release.version, all: &guides };
        let markdown = read(&root().join("docs/guide").join(format!("{name}.md")))?;
        let page = guide::page(&guide, &markdown)
            .with_context(|| format!("cannot make a manual page of docs/guide/{name}.md"))?;
        write(&man.join("man7").join(format!("{}.7", names::page(name))), &page)?;
    }
    Ok(())
}

/// The names of the guides, sorted.
fn guides() -> anyhow::Result<Vec<String>> {
    let paths = list(&root().join("docs/guide"))?;
    let pages = paths.iter().filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    let mut names: Vec<String> =
        pages.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
    names.sort();
    ensure!(!names.is_empty(), "there is no guide in docs/guide");
    Ok(names)
}

/// The day of a time in UTC, `YYYY-MM-DD`.
fn date(epoch: i64) -> anyhow::Result<String> {
    let time = jiff::Timestamp::from_second(epoch)
        .with_context(|| format!("{epoch} seconds since 1970 is no time"))?;
    Ok(time.to_zoned(jiff::tz::TimeZone::UTC).date().to_string())
}

/// The settings that are installed: the template, with the data directory of the service.
///
/// * `template`: what `forebay config init` prints.
fn with_data(template: &str) -> anyhow::Result<String> {
    let is_data = |line: &str| line.starts_with("#data = ");
    let count = template.lines().filter(|line| is_data(line)).count();
    ensure!(count == 1, "`forebay config init` prints {count} lines with the setting data, not 1");
    let lines = template.lines().map(|line| {
        if is_data(line) { format!("data = \"{DATA}\"\n") } else { format!("{line}\n") }
    });
    Ok(lines.collect())
}

/// Copies the Markdown below a directory.
fn copy_pages(from: &Path, to: &Path) -> anyhow::Result<()> {
    for path in list(from)? {
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            copy_pages(&path, &to)?;
        } else if path.extension().is_some_and(|kind| kind == "md") {
            copy(&path, &to)?;
        }
    }
    Ok(())
}

/// Copies the files in a directory.
pub(super) fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    for path in list(from)? {
        copy(&path, &to.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// The paths in a directory.
fn list(dir: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let failed = || format!("cannot list {}", dir.display());
    let entries = std::fs::read_dir(dir).with_context(failed)?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.with_context(failed)?.path());
    }
    Ok(paths)
}

pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    make_parent(to)?;
    std::fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    make_parent(path)?;
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn make_parent(path: &Path) -> anyhow::Result<()> {
    let parent = path.parent().unwrap_or(path);
    std::fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::super::tests::release;
    use super::*;

    /// Stands for the binary: it answers the commands that staging runs.
    const BINARY: &str = r##"#!/bin/sh
case "$1" in
    completions) echo "completions for $2" ;;
    config) printf '#data = "./forebay-data"\n\n[server]\n' ;;
    man) mkdir -p "$2" && echo '.SH NAME' > "$2/forebay.1" ;;
esac
"##;

    #[test]
    fn the_directory_has_everything_that_is_installed_and_nothing_of_an_earlier_run() {
        let dir = tempfile::tempdir().unwrap();
        let binary = dir.path().join("forebay");
        // Written by another process: a file that a test running in parallel has inherited for
        // writing could not be run.
        let script = r#"printf '%s' "$1" > "$0" && chmod 755 "$0""#;
        run(Command::new("sh").args(["-c", script]).arg(&binary).arg(BINARY)).unwrap();
        let release = release(&dir.path().join("out"));
        let stale = release.out.join(release.stem()).join("stale");
        write(&stale, "").unwrap();
        let staged = fill(&release, &binary).unwrap();
        assert!(!stale.exists());
        for path in [
            "LICENSE",
            "Containerfile",
            "deploy/kubernetes-s3.yaml",
            "docs/README.md",
            "docs/guide/cache.md",
            "lib/systemd/system/forebay.service",
            "lib/sysusers.d/forebay.conf",
            "lib/tmpfiles.d/forebay.conf",
            "share/zsh/site-functions/_forebay",
            "share/man/man7/forebay-getting-started.7",
        ] {
            assert!(staged.join(path).is_file(), "{path}");
        }
        let mode = std::fs::metadata(staged.join("bin/forebay")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
        let settings = read(&staged.join("etc/forebay/forebay.toml")).unwrap();
        assert_eq!(settings, "data = \"/var/lib/forebay\"\n\n[server]\n");
        let main = read(&staged.join("share/man/man1/forebay.1")).unwrap();
        assert!(main.starts_with(".SH NAME\n.SH SEE ALSO\n") && main.contains("cache"), "{main}");
        let page = read(&staged.join("share/man/man7/forebay-cache.7")).unwrap();
        assert!(page.contains(".TH FOREBAY\\-CACHE 7 2026\\-11\\-18 \"forebay 1.2.3\""), "{page}");
    }

    #[test]
    fn settings_without_a_data_directory_are_refused() {
        assert!(with_data("[server]\n").is_err());
        assert!(with_data("#data = \"a\"\n#data = \"b\"\n").is_err());
    }

    #[test]
    fn the_unit_the_user_and_the_container_have_the_same_data_directory() {
        for file in ["forebay.service", "forebay.sysusers", "forebay.tmpfile", "Containerfile"] {
            let text = read(&root().join("packaging").join(file)).unwrap();
            assert!(text.contains(DATA), "{file}");
        }
    }
}
