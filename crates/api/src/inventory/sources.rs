//! Sources that clients name: parses them, checks whether the configuration permits them, opens
//! them.
//!
//! Invariant: nothing outside of `inventory.sources` is accessed, not even to check whether it
//! exists.

use std::path::{Component, Path};
use std::sync::Arc;

use anyhow::Context as _;
use forebay_inventory::builder::Options;
use forebay_inventory::object::Classes;
use forebay_inventory::source::{Columns, S3, Settings, Source, Spec, Within, open};
use forebay_objects::{Access, Class, Failure};
use http::StatusCode;

use super::Permitted;
use super::Shared;
use super::blobs::{BLOBS, Blobs};
use crate::problem::Problem;

/// Maximum number of sources of one index, and maximum length of a source's name.
const SOURCES_MAX: usize = 64;
const SOURCE_SIZE_MAX: usize = 4_096;

/// What to read; permitted.
#[derive(Debug, Clone)]
pub(super) enum Requested {
    /// The server's own files.
    Blobs,
    /// Inventories, tables, directories, buckets.
    Specs(Vec<Spec>),
}

/// How to read it.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) columns: Option<Columns>,
    pub(super) percent_encoded: bool,
}

/// Parses the sources a client names, and refuses those not permitted.
pub(super) fn wanted(from: &[String], permitted: &[Permitted]) -> Result<Requested, Problem> {
    let wrong = |text: &str| Problem::bad("source", text);
    if from.is_empty() || from.len() > SOURCES_MAX {
        return Err(wrong("\"from\" must name 1 to 64 sources"));
    }
    if from.iter().any(|source| source.len() > SOURCE_SIZE_MAX || source.contains('\0')) {
        return Err(wrong("a source must have at most 4096 bytes and no null byte"));
    }
    if let [only] = from
        && only == BLOBS
    {
        return Ok(Requested::Blobs);
    }
    if from.iter().any(|source| source == BLOBS) {
        return Err(wrong("forebay:blobs cannot be combined with other sources"));
    }
    let specs = from
        .iter()
        .map(|source| source.parse().map_err(|error| Problem::bad("source", format!("{error}"))))
        .collect::<Result<Vec<Spec>, Problem>>()?;
    match specs.iter().find(|spec| !is_permitted(spec, permitted)) {
        None => Ok(Requested::Specs(specs)),
        Some(spec) => {
            let text = format!("inventory.sources does not permit reading {spec}");
            Err(Problem::new(StatusCode::FORBIDDEN, "source_not_permitted", text))
        }
    }
}

fn is_permitted(spec: &Spec, permitted: &[Permitted]) -> bool {
    let place = (spec.local(), spec.remote());
    permitted.iter().any(|permitted| match (permitted, place) {
        (Permitted::Directory(root), (Some(path), _)) => is_below(path, root),
        (Permitted::Bucket { bucket, prefix }, (_, Some((named, key)))) => {
            let plain = key.split('/').all(|name| name != "." && name != "..");
            plain && named == bucket && key.starts_with(prefix.as_str())
        }
        _ => false,
    })
}

/// Returns whether a path leads to a directory or below it: by its text and, if it exists, by the
/// target of its symbolic links.
fn is_below(path: &Path, root: &Path) -> bool {
    let plain = |component| matches!(component, Component::Normal(_) | Component::RootDir);
    if !path.components().all(plain) || !path.starts_with(root) {
        return false;
    }
    match (path.canonicalize(), root.canonicalize()) {
        (Ok(path), Ok(root)) => path.starts_with(root),
        // It does not exist, which may be reported for a permitted path.
        (Err(_), Ok(_)) => !path.symlink_metadata().is_ok_and(|found| found.is_symlink()),
        _ => false,
    }
}

/// Opens what is to be read. Blocks.
pub(super) fn open_source(
    shared: &Shared,
    wanted: &Requested,
    reading: &Reading,
    classes: &Arc<Classes>,
    options: &Options,
) -> anyhow::Result<Box<dyn Source>> {
    let specs = match wanted {
        Requested::Blobs => {
            return Ok(Box::new(Blobs { intake: shared.files.clone(), now_ms: options.now_ms }));
        }
        Requested::Specs(specs) => specs,
    };
    let mut settings = Settings::new(Arc::clone(classes));
    settings.memory = options.memory_of_reading();
    settings.percent_encoded = reading.percent_encoded;
    if let Some(columns) = &reading.columns {
        settings.columns = columns.clone();
    }
    settings.temporary = shared.registry.temporary().context("create a temporary directory")?;
    settings.within = within(&shared.sources);
    if specs.iter().any(|spec| spec.remote().is_some()) {
        settings.s3 =
            Some(s3((shared.buckets)()?, specs, &shared.sources)?.within(settings.within.clone()));
    }
    Ok(open(specs, &settings)?)
}

/// Permissions for opening files and objects: links and manifests may lead elsewhere.
fn within(permitted: &[Permitted]) -> Within {
    let directories = permitted.iter().filter_map(|permitted| match permitted {
        Permitted::Directory(root) => Some(root.clone()),
        Permitted::Bucket { .. } => None,
    });
    let prefixes = permitted.iter().filter_map(|permitted| match permitted {
        Permitted::Bucket { bucket, prefix } => Some((bucket.clone(), prefix.clone())),
        Permitted::Directory(_) => None,
    });
    Within::new(directories.collect(), prefixes.collect())
}

/// Returns the access to permitted buckets.
fn s3(access: Access, specs: &[Spec], permitted: &[Permitted]) -> anyhow::Result<S3> {
    if specs.iter().any(Spec::is_listing) {
        return Ok(S3::new(access)?);
    }
    // A manifest may name its files in a bucket other than its own.
    let permitted = permitted.to_vec();
    let s3 = S3::with_stores(move |name| {
        let known = |permitted: &Permitted| matches!(permitted, Permitted::Bucket { bucket, .. } if bucket == name);
        if !permitted.iter().any(known) {
            let text = format!("inventory.sources does not permit reading from the bucket {name}");
            return Err(Failure::new(Class::Refused, text));
        }
        access.store(name).map_err(Failure::from)
    })?;
    Ok(s3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_wanted(source: &str, permitted: &[Permitted]) -> bool {
        wanted(&[source.to_owned()], permitted).is_ok()
    }

    #[test]
    fn nothing_but_the_servers_own_files_is_permitted_unless_it_is_said() {
        assert!(is_wanted(BLOBS, &[]));
        for source in ["/etc", "fs:/etc", "fs:.", "csv:/etc/passwd", "s3://b/k", "s3-list://b/"] {
            assert!(!is_wanted(source, &[]), "{source}");
        }
    }

    #[test]
    fn a_directory_permits_what_is_in_it_wherever_links_lead() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        std::fs::create_dir_all(inside.join("a")).unwrap();
        std::fs::create_dir_all(outside.join("secret")).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link")).unwrap();
        std::os::unix::fs::symlink(inside.join("a"), inside.join("near")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("gone"), inside.join("dangling")).unwrap();
        let permitted = [Permitted::Directory(inside.clone())];
        let text = |path: &str| format!("fs:{}", inside.join(path).display());
        for good in ["", "a", "near", "not-there"] {
            assert!(is_wanted(&text(good), &permitted), "{good}");
        }
        for bad in ["link", "link/secret", "../out", "a/../../out", "dangling"] {
            assert!(!is_wanted(&text(bad), &permitted), "{bad}");
        }
        assert!(!is_wanted(&format!("fs:{}x", inside.display()), &permitted));
        assert!(!is_wanted(&format!("csv:{}", outside.join("x").display()), &permitted));
    }

    #[test]
    fn a_prefix_of_a_bucket_permits_what_begins_with_it() {
        let bucket = |prefix: &str| Permitted::Bucket { bucket: "b".into(), prefix: prefix.into() };
        let permitted = [bucket("reports/")];
        for good in ["s3://b/reports/", "s3://b/reports/x/manifest.json", "s3-list://b/reports/y"] {
            assert!(is_wanted(good, &permitted), "{good}");
        }
        for bad in
            ["s3://b/reports", "s3://b/x.csv", "s3://c/reports/x.csv", "s3://b/reports/../x.csv"]
        {
            assert!(!is_wanted(bad, &permitted), "{bad}");
        }
        assert!(is_wanted("s3-list://b/", &[bucket("")]));
    }

    #[test]
    fn what_names_nothing_is_refused() {
        let too_many = vec!["/a".to_owned(); 65];
        for from in [&[][..], &["x".repeat(5_000)], &["a\0".to_owned()], &too_many] {
            assert!(wanted(from, &[]).is_err());
        }
    }
}
