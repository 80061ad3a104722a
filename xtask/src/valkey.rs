//! Valkey, with which the benchmark of the cache compares it where it is installed.
//!
//! Debian 12 has it only in its backports, which are not among the sources of packages by default.
//! So they are added, in a file of our own, from the server that the system's packages come from.
//! A package of the backports is installed only if it is asked for or has no other version, so
//! nothing else changes. Without root's rights, a network or Debian, nothing is installed and
//! nothing fails.

use std::path::Path;
use std::process::Command;

use crate::command::{output, run, say, works};
use crate::setup::{install as install_packages, is_there};

/// The source of packages that is added.
const SOURCE: &str = "/etc/apt/sources.list.d/forebay-backports.list";
/// The keys that sign it.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// The programs used.
const PROGRAMS: [&str; 2] = ["valkey-server", "valkey-benchmark"];

/// Installs it if it is missing and that is possible.
pub(crate) fn install() {
    let is_installed = || PROGRAMS.iter().all(|program| is_there(program));
    let is_offered = || works(Command::new("apt-cache").args(["show", "valkey-server"]));
    if !is_installed() && (is_offered() || (add_backports() && is_offered())) {
        install_packages(&["valkey-server", "valkey-tools"]);
    }
    if !is_installed() {
        say("Valkey is missing: the benchmark of the cache will leave out the comparison with it");
    }
}

/// Adds the backports to the sources of packages; `false` if that is not possible.
fn add_backports() -> bool {
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", "$(ORIGIN) $(REPO_URI) $(RELEASE)"]);
    let Ok(targets) = output(targets.arg("Created-By: Packages")) else { return false };
    let Some(source) = backports(&targets, Path::new(KEYRING).is_file()) else { return false };
    if Path::new(SOURCE).exists() || std::fs::write(SOURCE, source).is_err() {
        return false;
    }
    // Only this source: the others are as recent as their owner wants them.
    let mut update = Command::new("apt-get");
    update.args(["update", "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Get::List-Cleanup=0"]);
    update.arg("-o").arg(format!("Dir::Etc::sourcelist={SOURCE}"));
    // apt-get succeeds although it could not reach a source.
    update.args(["-o", "APT::Update::Error-Mode=any"]);
    let updated = run(&mut update);
    if let Err(error) = &updated {
        say(format_args!("{error:#}"));
        // A source that cannot be reached would make every later update fail.
        if let Err(error) = std::fs::remove_file(SOURCE) {
            say(format_args!("cannot remove {SOURCE}: {error}"));
        }
    }
    updated.is_ok()
}

/// Returns the line for the backports of the release of Debian that the sources name.
///
/// * `targets`: lines of origin, address and release.
fn backports(targets: &str, has_keyring: bool) -> Option<String> {
    let (address, release) = targets.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["Debian", address, release] if !release.contains('-') => Some((*address, *release)),
            _ => None,
        }
    })?;
    let options = if has_keyring { format!("[signed-by={KEYRING}] ") } else { String::new() };
    Some(format!("deb {options}{address} {release}-backports main\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backports_come_from_where_the_release_does() {
        let targets = "Debian http://mirror/debian-security/ bookworm-security\n\
                       Other http://mirror/other/ stable\n\
                       Debian http://mirror/debian/ bookworm-updates\n\
                       Debian http://mirror/debian/ bookworm\n";
        let line = backports(targets, false).unwrap();
        assert_eq!(line, "deb http://mirror/debian/ bookworm-backports main\n");
        let line = backports(targets, true).unwrap();
        assert!(line.starts_with("deb [signed-by=/usr/share/keyrings/"));
        assert_eq!(backports("Ubuntu http://mirror/ubuntu/ noble\n", true), None);
        assert_eq!(backports("", true), None);
    }
}
