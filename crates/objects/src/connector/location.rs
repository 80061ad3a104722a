//! Locations of files: a directory on disk, or a prefix in a bucket.
//!
//! Everything here may block on disk or network, and is called by threads that may block. Names are
//! relative to the location, with `/` between their parts; none leads outside of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::Text;
use forebay_sdk::settings::Within;

use crate::{Access, Address, Bucket, Class, ConfigError, Failure};
use futures_util::TryStreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::path::Path as Key;
use tokio::runtime::Handle;

use super::opened::{From, Opened};
use super::settings::S3Settings;

/// Maximum number of files of a stream.
const FILES_MAX: usize = 100_000;

/// A directory, or a prefix in a bucket.
#[derive(Debug, Clone)]
pub(super) enum Location {
    /// A directory, and where files found in it may be.
    Disk(PathBuf, Within),
    Bucket(Bucket),
}

/// The location of a connector's files, as in its settings.
#[derive(Debug, Clone)]
pub(super) enum At {
    Named(Text, Box<S3Settings>, Within),
    /// Opened by a test.
    #[cfg(test)]
    Open(Location),
}

impl At {
    pub(super) fn place(&self) -> Result<Location, ConnectorError> {
        match self {
            Self::Named(path, s3, within) => Location::new(path, s3, within),
            #[cfg(test)]
            Self::Open(place) => Ok(place.clone()),
        }
    }
}

/// A file that was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its name relative to the location.
    pub(super) name: String,
    /// Size in bytes.
    pub(super) size: u64,
    /// Modification time, in ns since 1970.
    pub(super) modified_ns: i128,
    /// The tag of this version, if the bucket provides one.
    pub(super) tag: Option<String>,
}

impl Location {
    /// The location of a path or URL.
    pub(super) fn new(
        path: &Text,
        s3: &S3Settings,
        within: &Within,
    ) -> Result<Self, ConnectorError> {
        let refused = |source: ConfigError| ConnectorError::Refused {
            act: format!("use {path}"),
            source: source.into(),
        };
        let address = path.0.parse().map_err(|error| refused(ConfigError::Address(error)))?;
        match address {
            Address::Local(directory) => Ok(Self::Disk(directory, within.clone())),
            Address::Bucket(address) => {
                let access = Access::new(&s3.connection()?).map_err(refused)?;
                access.bucket(&address).map(Self::Bucket).map_err(refused)
            }
        }
    }

    /// The name of a file in messages; the location itself for an empty name.
    pub(super) fn display(&self, name: &str) -> PathBuf {
        match self {
            Self::Disk(directory, _) if name.is_empty() => directory.clone(),
            Self::Disk(directory, _) => directory.join(name),
            Self::Bucket(bucket) => bucket.url(&bucket.key(name)).into(),
        }
    }

    /// The files at or below `name`, sorted by name. Names that begin with `.` or `_` are left out:
    /// by convention they are not data.
    pub(super) fn list(&self, name: &str) -> Result<Vec<Listed>, ConnectorError> {
        let mut files = match self {
            Self::Disk(directory, within) => list_disk(directory, name, within)?,
            Self::Bucket(bucket) => list_bucket(bucket, name)?,
        };
        files.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(files)
    }

    /// Checks that the location can be read.
    pub(super) fn check_readable(&self) -> Result<(), ConnectorError> {
        match self {
            Self::Disk(directory, _) => {
                let read = directory.read_dir().map(drop);
                read.map_err(|error| ConnectorError::file("list", directory, error))
            }
            Self::Bucket(bucket) => {
                let mut objects = bucket.store().list(Some(bucket.prefix()));
                let reached = Handle::current().block_on(objects.try_next());
                let failed = |error| failed(bucket, "list", bucket.prefix(), error);
                reached.map(drop).map_err(failed)
            }
        }
    }

    /// Checks that files can be written, and returns where that is.
    pub(super) fn check_writable(&self) -> Result<String, ConnectorError> {
        let path = self.display("");
        if let Self::Disk(directory, _) = self {
            // The nearest existing directory must permit creating another.
            let there = directory.ancestors().find(|path| path.exists());
            let there = there.filter(|path| !path.as_os_str().is_empty());
            let there = there.unwrap_or(Path::new("."));
            let metadata =
                there.metadata().map_err(|error| ConnectorError::file("look at", there, error))?;
            if !metadata.is_dir() {
                return Err(ConnectorError::file(
                    "write to",
                    there,
                    io::Error::from(io::ErrorKind::NotADirectory),
                ));
            }
            rustix::fs::access(there, rustix::fs::Access::WRITE_OK)
                .map_err(|error| ConnectorError::file("write to", there, io::Error::from(error)))?;
        }
        if let Self::Bucket(_) = self {
            self.check_readable()?;
        }
        Ok(format!("{} can be reached", path.display()))
    }

    /// A file on disk in the form of a listing.
    pub(super) fn listed_file(name: &str, metadata: &std::fs::Metadata) -> Listed {
        let modified_ns = modified_ns(metadata);
        Listed { name: name.to_owned(), size: metadata.len(), modified_ns, tag: None }
    }

    /// Opens a listed file. One that has changed since is refused.
    pub(super) fn open(&self, listed: &Listed) -> Result<Opened, ConnectorError> {
        let path = self.display(&listed.name);
        let failed = |error: io::Error| ConnectorError::file("open", path.clone(), error);
        let from = match self {
            Self::Disk(_, within) => {
                let file = within.open(&path).map_err(failed)?;
                let metadata = file.metadata().map_err(failed)?;
                if metadata.len() != listed.size || modified_ns(&metadata) != listed.modified_ns {
                    return Err(changed(&path));
                }
                From::Disk(Arc::new(file))
            }
            Self::Bucket(bucket) => From::Bucket(bucket.clone(), bucket.key(&listed.name)),
        };
        let opened = Opened::new(from, listed.size, listed.tag.clone(), path);
        Ok(opened.of_time(listed.modified_ns))
    }
}

/// Why a file can no longer be read.
pub(super) fn changed(path: &Path) -> ConnectorError {
    let place = path.display().to_string();
    ConnectorError::data(place, "it was changed after the run began; run again to read it as it is")
}

pub(super) fn modified_ns(metadata: &std::fs::Metadata) -> i128 {
    let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    since.and_then(|since| i128::try_from(since.as_nanos()).ok()).unwrap_or(0)
}

/// Whether a name belongs to something that is not data.
fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '_'])
}

fn too_many(place: &Path) -> ConnectorError {
    ConnectorError::unsupported(
        format!("{} has more than {FILES_MAX} files", place.display()),
        "name parts of them as separate streams",
    )
}

fn list_disk(directory: &Path, name: &str, within: &Within) -> Result<Vec<Listed>, ConnectorError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |error: io::Error| ConnectorError::file("list", path, error)
    };
    let top = if name.is_empty() { directory.to_owned() } else { directory.join(name) };
    let mut files = Vec::new();
    let mut waiting = vec![(top, name.to_owned())];
    while let Some((path, name)) = waiting.pop() {
        let metadata = match path.metadata() {
            Ok(metadata) => metadata,
            // It was removed since its directory was read, or never existed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(failed(&path)(error)),
        };
        if metadata.is_file() {
            let (size, modified_ns) = (metadata.len(), modified_ns(&metadata));
            files.push(Listed { name, size, modified_ns, tag: None });
            if files.len() > FILES_MAX {
                return Err(too_many(directory));
            }
        } else if metadata.is_dir() {
            within.check(&path).map_err(failed(&path))?;
            for entry in path.read_dir().map_err(failed(&path))? {
                let entry = entry.map_err(failed(&path))?;
                let kind = entry.file_type().map_err(failed(&path))?;
                let Ok(own) = entry.file_name().into_string() else { continue };
                // A directory behind a link may lead back here.
                let is_link_to_directory = kind.is_symlink() && entry.path().is_dir();
                if is_hidden(&own) || is_link_to_directory {
                    continue;
                }
                let name = if name.is_empty() { own } else { format!("{name}/{own}") };
                waiting.push((entry.path(), name));
            }
        }
    }
    Ok(files)
}

/// The error of a failed request for an object.
pub(super) fn store_error(act: &'static str, url: String, failure: Failure) -> ConnectorError {
    let class = failure.class();
    let source = failure.into();
    match class {
        Class::Unreachable => ConnectorError::Unreachable { what: url, source },
        Class::Transient => ConnectorError::Busy { act: format!("{act} {url}"), source },
        _ => ConnectorError::file(act, url, source),
    }
}

/// The error of a failed request for a key.
pub(super) fn failed(
    bucket: &Bucket,
    act: &'static str,
    key: &Key,
    error: impl Into<Failure>,
) -> ConnectorError {
    store_error(act, bucket.url(key), error.into())
}

fn list_bucket(bucket: &Bucket, name: &str) -> Result<Vec<Listed>, ConnectorError> {
    let key = bucket.key(name);
    let failed = |error| failed(bucket, "list", &key, error);
    Handle::current().block_on(async {
        let mut files = Vec::new();
        let mut objects = bucket.store().list(Some(&key));
        while let Some(meta) = objects.try_next().await.map_err(failed)? {
            let below = meta.location.prefix_match(&key);
            let is_data = below.is_some_and(|mut parts| parts.all(|it| !is_hidden(it.as_ref())));
            if is_data && meta.location != key {
                files.extend(listed(bucket.prefix(), meta));
            }
            if files.len() > FILES_MAX {
                return Err(too_many(bucket.url(&key).as_ref()));
            }
        }
        // With nothing below it, the name may be that of an object.
        if files.is_empty() && !name.is_empty() {
            match bucket.store().head(&key).await {
                Ok(meta) => files.extend(listed(bucket.prefix(), meta)),
                Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(files)
    })
}

/// An object in the form of a file below a prefix.
pub(super) fn listed(prefix: &Key, meta: object_store::ObjectMeta) -> Option<Listed> {
    let parts: Vec<_> = meta.location.prefix_match(prefix)?.collect();
    let name = parts.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("/");
    let modified_ns = meta.last_modified.timestamp_nanos_opt().unwrap_or(0).into();
    Some(Listed { name, size: meta.size, modified_ns, tag: meta.e_tag })
}
