//! Locating the files of a manifest: never outside of the directory of the manifest, or of the
//! directory that was specified as the root of its bucket.

use std::path::{Component, Path, PathBuf};

use crate::source::SourceError;

/// Whether a key may become a path: it consists of plain names. Between them there may be empty
/// ones, as behind a destination prefix that ends in `/`: a path with `//` is that with `/`.
pub(crate) fn is_safe(key: &str) -> bool {
    let plain = |component| matches!(component, Component::Normal(_));
    let names = key.split('/').all(|name| name != "." && name != "..");
    let is_file = !key.is_empty() && !key.ends_with('/');
    names && is_file && !key.contains(['\0', '\\']) && Path::new(key).components().all(plain)
}

/// Where a file of a manifest in a bucket may be: its own key in the bucket that the manifest names,
/// and, for an inventory that was copied, the same places in the bucket of the manifest as beside a
/// local manifest ([`local`]). Keys are returned with whether they are in the named bucket, always
/// in the same order for one manifest.
pub(crate) fn remote(manifest: &str, key: &str) -> Vec<(bool, String)> {
    let name = key.rsplit('/').next().unwrap_or(key);
    // With the `/` at its end.
    let dir = manifest.rsplit_once('/').map_or(0, |(dir, _)| dir.len() + 1);
    let dir = manifest.get(..dir).unwrap_or_default();
    let mut places = vec![
        (true, key.to_owned()),
        (false, key.to_owned()),
        (false, format!("{dir}{key}")),
        (false, format!("{dir}data/{name}")),
    ];
    let own = dir.strip_suffix('/').unwrap_or(dir);
    let last = own.rsplit('/').next().unwrap_or(own);
    if is_date(last.as_bytes())
        && let Some(parent) = own.strip_suffix(last)
    {
        places.push((false, format!("{parent}data/{name}")));
    }
    places.push((false, format!("{dir}{name}")));
    places
}

/// The path of the data file with the key `key`, in one of the usual layouts: below `root` by its
/// whole key, below the manifest's directory by its whole key, or by its name in `data/` beside the
/// manifest, in `data/` beside its directory if that is named by a date (S3's own layout), or
/// beside the manifest.
///
/// # Errors
/// A key that is not a plain path, or a file that does not exist.
pub(crate) fn local(
    manifest: &Path,
    root: Option<&Path>,
    key: &str,
) -> Result<PathBuf, SourceError> {
    let wrong = |reason| SourceError::Manifest { manifest: manifest.display().to_string(), reason };
    if !is_safe(key) {
        return Err(wrong(format!("it lists the file {key:?}, which leads outside its directory")));
    }
    let name = key.rsplit('/').next().unwrap_or(key);
    let dir = manifest.parent().unwrap_or(Path::new(""));
    let beside = |dir: &Path| dir.join("data").join(name);
    // The parent of "." is not "", although `Path::parent` returns it.
    let whole = dir.canonicalize().ok().filter(|dir| is_dated(dir));
    let parent = whole.as_deref().and_then(Path::parent);
    let places = [
        root.map(|root| root.join(key)),
        Some(dir.join(key)),
        Some(beside(dir)),
        parent.map(beside),
        Some(dir.join(name)),
    ];
    if let Some(found) = places.iter().flatten().find(|path| path.is_file()) {
        return Ok(found.clone());
    }
    let tried: Vec<String> =
        places.iter().flatten().map(|path| path.display().to_string()).collect();
    Err(wrong(format!("its file {key:?} does not exist; tried {}", tried.join(", "))))
}

/// Whether a directory is named like S3's manifest directories: `2024-05-06T01-00Z`.
fn is_dated(dir: &Path) -> bool {
    is_date(dir.file_name().map_or(&b""[..], |name| name.as_encoded_bytes()))
}

fn is_date(name: &[u8]) -> bool {
    let like = b"0000-00-00T00-00Z";
    name.len() == like.len()
        && name.iter().zip(like).all(|(byte, like)| match like {
            b'0' => byte.is_ascii_digit(),
            _ => byte == like,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_names_are_safe() {
        for key in ["a", "inventory/bucket/config/data/1.csv.gz", "a b/ü", "inv//b/1", "a///b"] {
            assert!(is_safe(key), "{key}");
        }
        for key in
            ["", "/etc/passwd", "../a", "a/../../b", "//b", "a/", "./a", "a//./b", "a\0", "a\\b"]
        {
            assert!(!is_safe(key), "{key:?}");
        }
    }

    #[test]
    fn files_are_found_in_the_usual_layouts_and_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = dir.path().join("conf/2024-01-01T00-00Z/manifest.json");
        let key = "dest/bucket/conf/data/1.csv.gz";
        let layouts = ["root/dest/bucket/conf/data", "conf/2024-01-01T00-00Z/data", "conf/data"];
        std::fs::create_dir_all(manifest.parent().unwrap()).unwrap();
        let root = dir.path().join("root");
        assert!(
            local(&manifest, Some(&root), key)
                .unwrap_err()
                .to_string()
                .contains("does not exist; tried")
        );
        for layout in layouts {
            let layout = dir.path().join(layout);
            std::fs::create_dir_all(&layout).unwrap();
            let file = layout.join("1.csv.gz");
            std::fs::write(&file, "").unwrap();
            let found = local(&manifest, Some(&root), key).unwrap();
            assert_eq!(found.canonicalize().unwrap(), file.canonicalize().unwrap());
            std::fs::remove_file(file).unwrap();
        }
        std::fs::write(dir.path().join("secret"), "").unwrap();
        let plain = dir.path().join("conf/plain/manifest.json");
        std::fs::create_dir_all(plain.parent().unwrap()).unwrap();
        std::fs::write(dir.path().join("conf/data/1.csv.gz"), "").unwrap();
        assert!(local(&plain, None, key).is_err(), "only a dated directory has its data beside it");
        let elsewhere = local(&manifest, None, "../../secret").unwrap_err().to_string();
        assert!(elsewhere.contains("leads outside its directory"), "{elsewhere}");
    }

    #[test]
    fn files_of_a_manifest_in_a_bucket_are_looked_for_in_the_usual_layouts() {
        let key = "dest//bucket/conf/data/1.csv.gz";
        let keys = |manifest| -> Vec<String> {
            let places = remote(manifest, key).into_iter();
            places
                .map(|(named, key)| format!("{}{key}", if named { "named:" } else { "" }))
                .collect()
        };
        assert_eq!(
            keys("copy/2024-01-01T00-00Z/manifest.json"),
            [
                "named:dest//bucket/conf/data/1.csv.gz",
                "dest//bucket/conf/data/1.csv.gz",
                "copy/2024-01-01T00-00Z/dest//bucket/conf/data/1.csv.gz",
                "copy/2024-01-01T00-00Z/data/1.csv.gz",
                "copy/data/1.csv.gz",
                "copy/2024-01-01T00-00Z/1.csv.gz",
            ]
        );
        let bare = keys("manifest.json");
        assert_eq!(bare[3..], ["data/1.csv.gz", "1.csv.gz"]);
        assert!(!keys("copy//manifest.json").contains(&"copy/data/1.csv.gz".to_owned()));
    }
}
