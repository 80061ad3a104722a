//! `SHA256SUMS`: the checksums of the files that were made, as `sha256sum -c` reads them.
//!
//! One line for each file, sorted by name: 64 hexadecimal digits, two spaces, the name without a
//! directory.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

const NAME: &str = "SHA256SUMS";

/// Writes the checksums of `files`, which are in `dir`; returns the path.
///
/// # Errors
/// A file cannot be read, or the list cannot be written.
pub(super) fn write(dir: &Path, files: &[PathBuf]) -> anyhow::Result<PathBuf> {
    let mut sums = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        sums.push((name, sum(file)?));
    }
    let path = dir.join(NAME);
    std::fs::write(&path, text(sums))
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The SHA-256 of a file, in hexadecimal.
fn sum(path: &Path) -> anyhow::Result<String> {
    let mut digest = Sha256::new();
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    std::io::copy(&mut file, &mut digest)
        .with_context(|| format!("cannot read {}", path.display()))?;
    Ok(format!("{:x}", digest.finalize()))
}

/// The list, from names and sums.
fn text(mut sums: Vec<(String, String)>) -> String {
    sums.sort();
    sums.iter().map(|(name, sum)| format!("{sum}  {name}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_has_the_form_that_sha256sum_reads() {
        let dir = tempfile::tempdir().unwrap();
        let files = ["b.deb", "a.tar.gz"].map(|name| dir.path().join(name));
        std::fs::write(&files[0], "").unwrap();
        std::fs::write(&files[1], "abc").unwrap();
        let list = std::fs::read_to_string(write(dir.path(), &files).unwrap()).unwrap();
        // The examples of FIPS 180-2, and of the empty message.
        assert_eq!(
            list,
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  a.tar.gz\n\
             e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  b.deb\n"
        );
        assert!(write(dir.path(), &[dir.path().join("absent")]).is_err());
    }
}
