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
use futures_util::TryStreamExt as _;
use object_store::aws::AmazonS3Builder;
use object_store::path::{Path as Key, PathPart};
use object_store::{ObjectStore, ObjectStoreExt as _};
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

/// A prefix in a bucket.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) name: String,
    pub(super) prefix: Key,
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
        let Some(place) = path.0.strip_prefix("s3://") else {
            if path.0.is_empty() {
                return Err(ConnectorError::unsupported(
                    "the path is empty",
                    "name a directory or s3://BUCKET/PREFIX",
                ));
            }
            return Ok(Self::Disk(PathBuf::from(&path.0), within.clone()));
        };
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let refused = |source: object_store::Error| ConnectorError::Refused {
            act: format!("use {path}"),
            source: source.into(),
        };
        let prefix = Key::parse(prefix.trim_matches('/')).map_err(|error| refused(error.into()))?;
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_allow_http(s3.allow_http)
            .with_virtual_hosted_style_request(!s3.path_style && s3.endpoint.is_none());
        if let Some(endpoint) = &s3.endpoint {
            builder = builder.with_endpoint(&endpoint.0);
        }
        builder = builder.with_region(s3.region.as_ref().map_or("us-east-1", |region| &region.0));
        match (&s3.access_key_id, &s3.secret_access_key) {
            (Some(id), Some(key)) => {
                builder = builder.with_access_key_id(&id.0).with_secret_access_key(key.expose());
            }
            (None, None) => builder = builder.with_skip_signature(true),
            _ => {
                return Err(ConnectorError::unsupported(
                    "one half of the key to a bucket is missing",
                    "give both access_key_id and secret_access_key, or neither",
                ));
            }
        }
        if let Some(token) = &s3.session_token {
            builder = builder.with_token(token.expose());
        }
        let store = Arc::new(builder.build().map_err(refused)?);
        Ok(Self::Bucket(Bucket { store, name: bucket.to_owned(), prefix }))
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
            Self::Bucket(bucket) => bucket.list(name)?,
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
                let mut objects = bucket.store.list(Some(&bucket.prefix));
                let reached = Handle::current().block_on(objects.try_next());
                reached.map(drop).map_err(|error| bucket.error("list", &bucket.prefix, error))
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
        Ok(Opened::new(from, listed.size, listed.tag.clone(), path))
    }
}

/// Why a file can no longer be read.
pub(super) fn changed(path: &Path) -> ConnectorError {
    let place = path.display().to_string();
    ConnectorError::data(place, "it was changed after the run began; run again to read it as it is")
}

fn modified_ns(metadata: &std::fs::Metadata) -> i128 {
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
        "name parts of them as streams of their own",
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

/// Classifies a failed request for an object: what the server refused is not tried again.
pub(super) fn store_error(
    act: &'static str,
    url: String,
    error: object_store::Error,
) -> ConnectorError {
    // Each error of the store repeats its causes; the last one says what happened.
    let mut innermost: &dyn std::error::Error = &error;
    while let Some(below) = innermost.source() {
        innermost = below;
    }
    let cause = innermost.to_string();
    // A status of the server is available only as text.
    let is_refused = cause.contains("status code: 4");
    match error {
        object_store::Error::Generic { .. } if !is_refused => {
            ConnectorError::Unreachable { what: url, source: cause.into() }
        }
        _ => ConnectorError::file(act, url, cause),
    }
}

impl Bucket {
    /// The key of a name. Parts that are valid keys already are used unchanged.
    pub(super) fn key(&self, name: &str) -> Key {
        let parts = name.split('/').filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |key, part| match PathPart::parse(part) {
            Ok(part) => key.join(part),
            Err(_) => key.join(part),
        })
    }

    /// The name of a key in messages.
    pub(super) fn url(&self, key: &Key) -> String {
        format!("s3://{}/{key}", self.name)
    }

    /// The cause of a failed request.
    pub(super) fn error(
        &self,
        act: &'static str,
        key: &Key,
        error: object_store::Error,
    ) -> ConnectorError {
        store_error(act, self.url(key), error)
    }

    fn list(&self, name: &str) -> Result<Vec<Listed>, ConnectorError> {
        let key = self.key(name);
        let failed = |error| self.error("list", &key, error);
        Handle::current().block_on(async {
            let mut files = Vec::new();
            let mut objects = self.store.list(Some(&key));
            while let Some(meta) = objects.try_next().await.map_err(failed)? {
                let below = meta.location.prefix_match(&key);
                let is_data =
                    below.is_some_and(|mut parts| parts.all(|it| !is_hidden(it.as_ref())));
                if is_data && meta.location != key {
                    files.extend(self.listed(meta));
                }
                if files.len() > FILES_MAX {
                    return Err(too_many(self.url(&key).as_ref()));
                }
            }
            // With nothing below it, the name may be that of an object.
            if files.is_empty() && !name.is_empty() {
                match self.store.head(&key).await {
                    Ok(meta) => files.extend(self.listed(meta)),
                    Err(object_store::Error::NotFound { .. }) => {}
                    Err(error) => return Err(failed(error)),
                }
            }
            Ok(files)
        })
    }

    /// An object in the form of a file of this location.
    pub(super) fn listed(&self, meta: object_store::ObjectMeta) -> Option<Listed> {
        let parts: Vec<_> = meta.location.prefix_match(&self.prefix)?.collect();
        let name = parts.iter().map(AsRef::as_ref).collect::<Vec<_>>().join("/");
        let modified_ns = meta.last_modified.timestamp_nanos_opt().unwrap_or(0).into();
        Some(Listed { name, size: meta.size, modified_ns, tag: meta.e_tag })
    }
}
