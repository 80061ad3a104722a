//! Names of the files that are made, and of the manual pages in them.
//!
//! They are what scripts of users rely on, so they depend on version and platform only.

use anyhow::{Context as _, bail};

/// Platforms of Rust, and the architectures of Debian.
const ARCHITECTURES: [(&str, &str); 2] = [("x86_64", "amd64"), ("aarch64", "arm64")];

/// The directory, and the archive without its extension.
pub(super) fn stem(version: &str, platform: &str) -> String {
    format!("forebay-{version}-{platform}")
}

/// The Debian package, of the first revision.
///
/// # Errors
/// The architecture has no name here.
pub(super) fn deb(version: &str, platform: &str) -> anyhow::Result<String> {
    let processor = platform.split('-').next().unwrap_or_default();
    let architecture = ARCHITECTURES.iter().find(|(rust, _)| *rust == processor);
    let Some((_, debian)) = architecture else {
        bail!("no architecture of Debian is known for {platform}; use --no-deb");
    };
    // A pre-release sorts before its release: 1.0.0~rc.1 < 1.0.0.
    Ok(format!("forebay_{}-1_{debian}.deb", version.replacen('-', "~", 1)))
}

/// The manual page of a guide: `forebay-cache` for `cache.md`.
pub(super) fn page(guide: &str) -> String {
    format!("forebay-{guide}")
}

/// What a guide describes, from the list of guides in `docs/README.md`.
///
/// * `index`: the text of `docs/README.md`.
/// * `guide`: its file name without `.md`.
///
/// # Errors
/// The list has no such guide.
pub(super) fn summary<'a>(index: &'a str, guide: &str) -> anyhow::Result<&'a str> {
    let link = format!("](guide/{guide}.md)");
    let row = index.lines().find(|line| line.starts_with('|') && line.contains(&link));
    let summary = row.and_then(|row| row.split('|').nth(2)).map(str::trim);
    summary
        .filter(|summary| !summary.is_empty())
        .with_context(|| format!("docs/README.md does not say what the guide {guide} describes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_from_version_and_platform() {
        let platform = "x86_64-unknown-linux-gnu";
        assert_eq!(stem("0.1.0", platform), "forebay-0.1.0-x86_64-unknown-linux-gnu");
        assert_eq!(deb("0.1.0", platform).unwrap(), "forebay_0.1.0-1_amd64.deb");
        assert_eq!(
            deb("1.0.0-rc.1", "aarch64-unknown-linux-gnu").unwrap(),
            "forebay_1.0.0~rc.1-1_arm64.deb"
        );
        let error = deb("0.1.0", "riscv64gc-unknown-linux-gnu").unwrap_err().to_string();
        assert!(error.contains("--no-deb"), "{error}");
        assert_eq!(page("getting-started"), "forebay-getting-started");
    }

    #[test]
    fn the_summary_of_a_guide_is_in_the_index() {
        let index = "| [Cache](guide/cache.md) | RESP, and the text protocol |\n\
                     | [Empty](guide/empty.md) |  |\n\
                     See [Limits](guide/limits.md).\n";
        assert_eq!(summary(index, "cache").unwrap(), "RESP, and the text protocol");
        for absent in ["empty", "limits", "events"] {
            let error = summary(index, absent).unwrap_err().to_string();
            assert!(error.contains(absent), "{error}");
        }
    }
}
