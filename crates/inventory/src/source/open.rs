//! Opening a [`Source`] from a user's specification.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use forebay_base::ByteSize;
use forebay_objects::{Address, AddressError, BucketAddress};
use object_store::ObjectStore as _;

use super::location::{FileLocation, io_error};
use super::manifest::NAME as MANIFEST_NAME;
use super::tables::Tables;
use super::{Columns, S3, Source, SourceError, Within};
use crate::object::Classes;

/// Suffixes of Parquet files.
const PARQUET: [&str; 3] = [".parquet", ".parq", ".pq"];
/// Suffixes of CSV files.
const CSV: [&str; 5] = [".csv", ".csv.gz", ".csv.zst", ".csv.zstd", ".csv.gzip"];
/// Maximum number of files of one directory or prefix.
const FILES_MAX: usize = 1_000_000;

/// A source as specified on the command line:
///
/// | text | what |
/// |---|---|
/// | `DIR/manifest.json`, `s3://BUCKET/.../manifest.json` | an S3 Inventory |
/// | `FILE.parquet`, `FILE.csv`, `FILE.csv.gz`, `FILE.csv.zst`, also `s3://...` | a table |
/// | `DIR`, `s3://BUCKET/PREFIX/` | the inventory whose manifest it has, or all Parquet or CSV files in it |
/// | `manifest:`, `parquet:`, `csv:` and one of these | the same, whatever it is called |
/// | `s3-list://BUCKET/PREFIX` | the objects themselves, by asking the bucket |
/// | `fs:DIR` | the files below a directory |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    given: String,
    what: What,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// A table or an inventory; the kind is specified or follows from the name.
    Files(Option<Kind>, Location),
    List {
        bucket: String,
        prefix: String,
    },
    Directory(PathBuf),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Manifest,
    Parquet,
    Csv,
}

/// Location of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Location {
    Local(PathBuf),
    S3 { bucket: String, key: String },
}

/// Options of reading sources.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which columns of a table are what.
    pub columns: Columns,
    /// The classes of the build.
    pub classes: Arc<Classes>,
    /// Whether MD5s are verified if there are any. Sizes and numbers of rows always are.
    pub verify: bool,
    /// Whether the keys of CSV files with a header are percent-encoded. Those of an S3 Inventory
    /// always are.
    pub percent_encoded: bool,
    /// Directory for copies of an object store's files, which are removed after they were read.
    pub temporary: PathBuf,
    /// The local directory for the bucket that a manifest refers to, if the location of the
    /// manifest does not determine it.
    pub root: Option<PathBuf>,
    /// Maximum input memory of one reader of a Parquet file.
    pub memory: ByteSize,
    /// Where local files may be.
    pub within: Within,
    /// Connection to buckets, if any.
    pub s3: Option<S3>,
}

impl Settings {
    /// Everything is verified, columns have their usual names, temporary files are in the system's
    /// directory, 64 MiB per reader, and no buckets.
    #[must_use]
    pub fn new(classes: Arc<Classes>) -> Self {
        Self {
            columns: Columns::usual(),
            classes,
            verify: true,
            percent_encoded: false,
            temporary: std::env::temp_dir(),
            root: None,
            memory: ByteSize(64 << 20),
            within: Within::default(),
            s3: None,
        }
    }

    pub(crate) fn s3(&self, given: &str) -> Result<&S3, SourceError> {
        self.s3.as_ref().ok_or_else(|| SourceError::Spec {
            given: given.to_owned(),
            reason: "it is in a bucket, but no connection to buckets is configured".to_owned(),
        })
    }
}

/// Opens `specs` as one source. Footers and manifests are read here; rows are not.
///
/// Blocks, also on the network: must not be called, nor the source dropped, from asynchronous code.
///
/// # Errors
/// Something is missing, cannot be read or parsed, or cannot be combined: several tables of one
/// kind are one source; everything else stands alone.
pub fn open(specs: &[Spec], settings: &Settings) -> Result<Box<dyn Source>, SourceError> {
    let given = specs.iter().map(Spec::to_string).collect::<Vec<_>>().join(" ");
    let wrong =
        |reason: &str| SourceError::Spec { given: given.clone(), reason: reason.to_owned() };
    if let [spec] = specs {
        match &spec.what {
            What::List { bucket, prefix } => {
                return Ok(Box::new(super::list::Listing::open(&given, bucket, prefix, settings)?));
            }
            What::Directory(dir) => {
                return Ok(Box::new(super::fs::Tree::open(&given, dir, &settings.within)?));
            }
            What::Files(..) => {}
        }
    }
    let mut places = Vec::new();
    let mut kind = None;
    for spec in specs {
        let What::Files(said, location) = &spec.what else {
            return Err(wrong("a listing or a directory cannot be combined with other sources"));
        };
        let (found, locations) = expand(&spec.given, *said, location, settings)?;
        if found == Kind::Manifest {
            return match (specs, locations.first()) {
                ([_], Some(manifest)) => {
                    Ok(Box::new(Tables::inventory(&given, manifest, settings)?))
                }
                _ => Err(wrong("an inventory cannot be combined with other sources")),
            };
        }
        if kind.is_some_and(|kind| kind != found) {
            return Err(wrong("Parquet and CSV files cannot be combined"));
        }
        kind = Some(found);
        for location in locations {
            places.push(location.place(settings)?);
        }
    }
    match kind {
        Some(Kind::Csv) => Ok(Box::new(Tables::csv(&given, places, settings)?)),
        Some(_) => Ok(Box::new(Tables::parquet(&given, places, settings)?)),
        None => Err(wrong("no source is specified")),
    }
}

/// The files of a location, and their kind.
fn expand(
    given: &str,
    said: Option<Kind>,
    location: &Location,
    settings: &Settings,
) -> Result<(Kind, Vec<Location>), SourceError> {
    let wrong =
        |reason: &str| SourceError::Spec { given: given.to_owned(), reason: reason.to_owned() };
    let names = match location {
        Location::Local(path) if path.is_dir() => {
            let listed = settings.within.check_directory(path);
            listed.map_err(|source| io_error("list", path, source))?;
            local_files(path)?
        }
        Location::S3 { bucket, key } if key.is_empty() || key.ends_with('/') => {
            bucket_files(bucket, key, settings)?
        }
        _ => {
            let name = location.name();
            // Other stores put a name before it; they are refused by what is in it.
            let is_manifest = || name.ends_with(MANIFEST_NAME).then_some(Kind::Manifest);
            let kind = said.or_else(|| Kind::of(&name)).or_else(is_manifest);
            if let (Location::Local(path), None) = (location, kind) {
                path.metadata().map_err(|source| io_error("inspect", path, source))?;
            }
            let kind = kind.ok_or_else(|| {
                wrong(
                    "its kind does not follow from its name; prefix it with `parquet:`, `csv:` \
                     or `manifest:`",
                )
            })?;
            return Ok((kind, vec![location.clone()]));
        }
    };
    let of = |kind| names.iter().filter(move |file| Kind::of(&file.name()) == Some(kind)).cloned();
    let kinds = said.map_or(vec![Kind::Manifest, Kind::Parquet, Kind::Csv], |kind| vec![kind]);
    for kind in kinds {
        let files: Vec<Location> = of(kind).collect();
        if kind == Kind::Manifest && files.len() > 1 {
            return Err(wrong("it has several manifests; specify one of them"));
        }
        if kind == Kind::Parquet
            && !files.is_empty()
            && said.is_none()
            && of(Kind::Csv).next().is_some()
        {
            return Err(wrong("it has Parquet and CSV files; choose with `parquet:` or `csv:`"));
        }
        if !files.is_empty() {
            return Ok((kind, files));
        }
    }
    Err(wrong("it contains no manifest, no Parquet file and no CSV file"))
}

/// The files of a directory, by name; without its subdirectories.
fn local_files(dir: &Path) -> Result<Vec<Location>, SourceError> {
    let failed = |source| io_error("list", dir, source);
    let mut files = Vec::new();
    for entry in dir.read_dir().map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            files.push(path);
        }
        if files.len() > FILES_MAX {
            return Err(failed(std::io::Error::other("it contains too many files")));
        }
    }
    files.sort();
    Ok(files.into_iter().map(Location::Local).collect())
}

/// The direct objects of a prefix, by key.
fn bucket_files(
    bucket: &str,
    prefix: &str,
    settings: &Settings,
) -> Result<Vec<Location>, SourceError> {
    let s3 = settings.s3(&format!("s3://{bucket}/{prefix}"))?;
    let remote = s3.remote(bucket)?;
    remote.check(prefix)?;
    let files = |keys: Vec<String>| -> Vec<Location> {
        keys.into_iter().map(|key| Location::S3 { bucket: bucket.to_owned(), key }).collect()
    };
    if s3.access().is_some_and(|access| !access.is_directory_bucket(bucket)) {
        // The listing of the client refuses keys with empty names, such as `reports//manifest.json`.
        return Ok(files(super::list::keys(s3, bucket, prefix, FILES_MAX)?));
    }
    let failed = |error: object_store::Error| SourceError::Store {
        act: "list",
        location: remote.location(prefix),
        source: error.into(),
    };
    let below = remote.exact(prefix.strip_suffix('/').unwrap_or(prefix))?;
    let listed = remote.runtime.block_on(remote.store.list_with_delimiter(Some(&below)));
    let objects = listed.map_err(failed)?.objects;
    let mut keys: Vec<String> = objects.iter().map(|object| object.location.to_string()).collect();
    keys.sort_unstable();
    Ok(files(keys))
}

impl Kind {
    /// The kind of a file, from its name.
    fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let last = name.rsplit('/').next().unwrap_or(&name);
        if last == MANIFEST_NAME {
            Some(Self::Manifest)
        } else if PARQUET.iter().any(|end| last.ends_with(end)) {
            Some(Self::Parquet)
        } else if CSV.iter().any(|end| last.ends_with(end)) {
            Some(Self::Csv)
        } else {
            None
        }
    }
}

impl Spec {
    /// Its path, if it is local.
    #[must_use]
    pub fn local(&self) -> Option<&Path> {
        match &self.what {
            What::Directory(path) | What::Files(_, Location::Local(path)) => Some(path),
            What::List { .. } | What::Files(_, Location::S3 { .. }) => None,
        }
    }

    /// Its bucket, and its key or key prefix, if it is in one.
    #[must_use]
    pub fn remote(&self) -> Option<(&str, &str)> {
        match &self.what {
            What::List { bucket, prefix: key } | What::Files(_, Location::S3 { bucket, key }) => {
                Some((bucket, key))
            }
            What::Directory(_) | What::Files(_, Location::Local(_)) => None,
        }
    }

    /// Whether it is a listing of a bucket, which [`S3::with_stores`] cannot do.
    #[must_use]
    pub fn is_listing(&self) -> bool {
        matches!(self.what, What::List { .. })
    }
}

impl Location {
    fn name(&self) -> String {
        match self {
            Self::Local(path) => path.to_string_lossy().into_owned(),
            Self::S3 { key, .. } => key.clone(),
        }
    }

    /// Another file in the same directory.
    pub(crate) fn sibling(&self, name: &str) -> Self {
        match self {
            Self::Local(path) => Self::Local(path.with_file_name(name)),
            Self::S3 { bucket, key } => {
                let dir = key.rsplit_once('/').map_or(String::new(), |(dir, _)| format!("{dir}/"));
                Self::S3 { bucket: bucket.clone(), key: dir + name }
            }
        }
    }

    pub(crate) fn place(&self, settings: &Settings) -> Result<FileLocation, SourceError> {
        match self {
            Self::Local(path) => Ok(FileLocation::Local(path.clone(), settings.within.clone())),
            Self::S3 { bucket, key } => {
                settings.s3(&format!("s3://{bucket}/{key}"))?.remote(bucket)?.place(key)
            }
        }
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.given)
    }
}

impl FromStr for Spec {
    type Err = SourceError;

    fn from_str(given: &str) -> Result<Self, SourceError> {
        let wrong =
            |reason: &str| SourceError::Spec { given: given.to_owned(), reason: reason.to_owned() };
        let invalid = |error: AddressError| wrong(&error.to_string());
        let what = if let Some(dir) = given.strip_prefix("fs:") {
            What::Directory(dir.into())
        } else if let Some(listed) = given.strip_prefix("s3-list://") {
            let BucketAddress { bucket, key } = BucketAddress::of(listed).map_err(invalid)?;
            What::List { bucket, prefix: key }
        } else {
            let kinds =
                [("manifest:", Kind::Manifest), ("parquet:", Kind::Parquet), ("csv:", Kind::Csv)];
            let said =
                kinds.iter().find_map(|(word, kind)| Some((given.strip_prefix(word)?, *kind)));
            let (rest, kind) = said.map_or((given, None), |(rest, kind)| (rest, Some(kind)));
            let location = match rest.parse().map_err(invalid)? {
                Address::Bucket(BucketAddress { bucket, key }) => Location::S3 { bucket, key },
                Address::Local(path) => Location::Local(path),
            };
            What::Files(kind, location)
        };
        if matches!(&what, What::Directory(dir) if dir.as_os_str().is_empty()) {
            return Err(wrong("it is empty"));
        }
        Ok(Self { given: given.to_owned(), what })
    }
}
