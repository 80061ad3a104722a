//! Components in a directory, by name, and their settings in pipeline files.
//!
//! ```text
//! connectors/NAME/component.wasm    the component
//!                 connector.json    what it is ([`Manifest`]), with the hash of the component
//!                 component.seen    that the component had this hash, and when
//! connectors/cache/                 compiled components
//! ```
//!
//! Invariants: a component runs only if it has the hash that was recorded when it was installed; a name is never a path.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use forebay_sdk::ConnectorError;
use forebay_sdk::registry::Found;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::grants::Grants;
use crate::host::Host;
use crate::inspect::{self, Role, Roles};
use crate::instance::Loaded;
use crate::seen::{self, Seen};
use crate::settings;

/// File of the component.
const COMPONENT: &str = "component.wasm";
/// File of the manifest.
const MANIFEST: &str = "connector.json";
/// Directory of compiled components.
const CACHE: &str = "cache";
/// Maximum size of a component, in bytes.
pub const COMPONENT_SIZE_MAX: u64 = 256 << 20;
/// Maximum size of a manifest, in bytes.
const MANIFEST_SIZE_MAX: u64 = 4 << 20;
/// Characters of a name.
const NAME_MAX: usize = 64;

/// What an installed component is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    /// Its name: `use: wasm:NAME`.
    pub name: String,
    /// The hash of the component (SHA-256), in hexadecimal.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its roles.
    #[serde(flatten)]
    pub roles: Roles,
}

/// Why a component is not installed, or cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The name is invalid.
    #[error("{name:?} is not a name: use 1 to {NAME_MAX} lower-case letters, digits and '-'")]
    Name {
        /// The name.
        name: String,
    },
    /// There is no component of this name.
    #[error("no connector {name:?} is installed; list them with `forebay connector list`")]
    Missing {
        /// The name.
        name: String,
    },
    /// A file cannot be used.
    #[error("cannot {act} {path}")]
    File {
        /// What was attempted.
        act: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The component is not the expected one.
    #[error("{path} has the SHA-256 {found}, expected {wanted}")]
    Hash {
        /// The file.
        path: PathBuf,
        /// Its hash.
        found: String,
        /// The expected hash.
        wanted: String,
    },
    /// It is not a connector.
    #[error("{path} is not a connector")]
    Component {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: ConnectorError,
    },
}

/// The components of a directory. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Connectors {
    dir: PathBuf,
    host: Arc<OnceLock<Arc<Host>>>,
}

impl Connectors {
    /// The components in this directory, which is created when one is installed.
    #[must_use]
    pub fn new(dir: PathBuf) -> Self {
        Self { dir, host: Arc::default() }
    }

    /// The engine, started when it is first needed.
    ///
    /// # Errors
    /// This machine cannot run one.
    pub fn host(&self) -> Result<&Arc<Host>, ConnectorError> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let host = Host::new(self.dir.join(CACHE))?;
        Ok(self.host.get_or_init(|| host))
    }

    /// Manifests of the installed components, by name. One that cannot be read is reported in the log.
    #[must_use]
    pub fn list(&self) -> Vec<Manifest> {
        let Ok(entries) = std::fs::read_dir(&self.dir) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut found: Vec<Manifest> = names
            .filter(|name| name != CACHE && is_name(name))
            .filter_map(|name| match self.manifest(&name) {
                Ok(manifest) => Some(manifest),
                Err(error) => {
                    tracing::warn!(name, %error, "an installed connector is not used");
                    None
                }
            })
            .collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// The manifest of a component.
    ///
    /// # Errors
    /// It is not installed, or its manifest cannot be read.
    pub fn manifest(&self, name: &str) -> Result<Manifest, InstallError> {
        let dir = self.of(name)?;
        let path = dir.join(MANIFEST);
        let unread = |source| InstallError::File { act: "read", path: path.clone(), source };
        let bytes = match read(&path, MANIFEST_SIZE_MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(InstallError::Missing { name: name.to_owned() });
            }
            bytes => bytes.map_err(unread)?,
        };
        let manifest: Manifest =
            serde_json::from_slice(&bytes).map_err(|error| unread(error.into()))?;
        if manifest.name != name {
            return Err(unread(io::Error::other("it is that of another connector")));
        }
        Ok(manifest)
    }

    /// Loads an installed component.
    ///
    /// # Errors
    /// It is not the one that was installed, or the engine refuses it.
    pub fn load(&self, name: &str, grants: Grants) -> Result<Loaded, InstallError> {
        let manifest = self.manifest(name)?;
        let path = self.of(name)?.join(COMPONENT);
        let refused = |source| InstallError::Component { path: path.clone(), source };
        let host = self.host().map_err(refused)?;
        let known = match self.is_seen(&path, &manifest) {
            true => manifest.hash().and_then(|hash| host.kept(&hash)),
            false => None,
        };
        if let Some(component) = known {
            return Ok(Loaded::of(host, name, component, grants));
        }
        // Described before it is read: a change while it is read makes it another.
        let before = seen::open(&path).ok().flatten();
        let (bytes, hash) = checked(&path, Some(&manifest.sha256))?;
        if let Some((_, found)) = before {
            remember(&path, Seen::new(manifest.sha256.clone(), &found));
        }
        let kept = host.kept(&hash);
        let component = kept.map_or_else(|| host.compile(&bytes, &hash), Ok).map_err(refused)?;
        Ok(Loaded::of(host, name, component, grants))
    }

    /// Loads an installed component, and returns its roles.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn inspect_installed(&self, name: &str) -> Result<(Loaded, Roles), InstallError> {
        let manifest = self.manifest(name)?;
        Ok((self.load(name, Grants::default())?, manifest.roles))
    }

    /// Whether a component has not changed since it had the hash of its manifest.
    fn is_seen(&self, path: &Path, manifest: &Manifest) -> bool {
        let seen = Seen::read(&path.with_extension("seen")).ok().flatten();
        let found = seen::open(path).ok().flatten();
        seen.zip(found)
            .is_some_and(|(seen, (_, found))| seen.hash == manifest.sha256 && seen.is(&found))
    }

    /// What a component in a file is. It is not installed.
    ///
    /// # Errors
    /// It is not a connector, or has another hash.
    pub fn inspect(
        &self,
        file: &Path,
        sha256: Option<&str>,
    ) -> Result<(Loaded, Roles), InstallError> {
        let (bytes, _) = checked(file, sha256)?;
        self.inspect_bytes(file, &bytes)
    }

    fn inspect_bytes(&self, file: &Path, bytes: &[u8]) -> Result<(Loaded, Roles), InstallError> {
        let refused = |source| InstallError::Component { path: file.to_owned(), source };
        let host = self.host().map_err(refused)?;
        let name =
            file.file_stem().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let loaded = Loaded::new(host, &name, bytes, Grants::default()).map_err(refused)?;
        let roles = settings::block_on(inspect::roles(&loaded)).map_err(refused)?;
        if roles.is_empty() {
            return Err(refused(ConnectorError::unsupported(
                "it exports none of the interfaces of a connector",
                "export `source`, `destination` or `transform` of forebay:connector@0.1.0",
            )));
        }
        Ok((loaded, roles))
    }

    /// Installs a component, in the place of one with the same name.
    ///
    /// * `sha256`: the expected hash, in hexadecimal.
    ///
    /// # Errors
    /// It is not a connector, has another hash, or the directory cannot be written.
    pub fn install(
        &self,
        name: &str,
        file: &Path,
        sha256: Option<&str>,
    ) -> Result<Manifest, InstallError> {
        let dir = self.of(name)?;
        let (bytes, hash) = checked(file, sha256)?;
        let (_, roles) = self.inspect_bytes(file, &bytes)?;
        let manifest = Manifest {
            name: name.to_owned(),
            sha256: hex::encode(hash),
            size: bytes.len() as u64,
            roles,
        };
        let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
        let unwritten = |source| InstallError::File { act: "write", path: dir.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(unwritten)?;
        // Between the two the hash does not fit, and the component is refused.
        seen::put(&dir.join(COMPONENT), &bytes).map_err(unwritten)?;
        seen::put(&dir.join(MANIFEST), &text).map_err(unwritten)?;
        Ok(manifest)
    }

    /// Removes a component.
    ///
    /// # Errors
    /// It is not installed, or the directory cannot be written.
    pub fn remove(&self, name: &str) -> Result<(), InstallError> {
        let dir = self.of(name)?;
        if !dir.exists() {
            return Err(InstallError::Missing { name: name.to_owned() });
        }
        std::fs::remove_dir_all(&dir).map_err(|source| InstallError::File {
            act: "remove",
            path: dir,
            source,
        })
    }

    /// The installed components as connectors of pipeline files: `use: wasm:NAME`.
    #[must_use]
    pub fn found(&self) -> Found {
        let mut found = Found::default();
        for manifest in self.list() {
            settings::add(self, &Arc::new(manifest), &mut found);
        }
        found
    }

    fn of(&self, name: &str) -> Result<PathBuf, InstallError> {
        if !is_name(name) || name == CACHE {
            return Err(InstallError::Name { name: name.to_owned() });
        }
        Ok(self.dir.join(name))
    }
}

/// Whether a text can be the name of a component.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with('-')
}

fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max {
        return Err(io::Error::other(format!("it has more than {max} bytes")));
    }
    Ok(bytes)
}

/// The bytes of a component, and their SHA-256, which must be the expected one.
fn checked(path: &Path, wanted: Option<&str>) -> Result<(Vec<u8>, [u8; 32]), InstallError> {
    let bytes = read(path, COMPONENT_SIZE_MAX).map_err(|source| InstallError::File {
        act: "read",
        path: path.to_owned(),
        source,
    })?;
    let hash: [u8; 32] = Sha256::digest(&bytes).into();
    let found = hex::encode(hash);
    match wanted {
        Some(wanted) if !wanted.eq_ignore_ascii_case(&found) => {
            Err(InstallError::Hash { path: path.to_owned(), found, wanted: wanted.to_owned() })
        }
        _ => Ok((bytes, hash)),
    }
}

/// Records that a component has a hash. The next one to load it need not read it.
fn remember(path: &Path, seen: Seen) {
    if seen.proves()
        && let Err(error) = seen.write(&path.with_extension("seen"))
    {
        tracing::debug!(path = %path.display(), %error, "a component is compared each time");
    }
}

impl Manifest {
    /// The hash of the component.
    fn hash(&self) -> Option<[u8; 32]> {
        let mut hash = [0; 32];
        hex::decode_to_slice(&self.sha256, &mut hash).ok().map(|()| hash)
    }
}

impl Role {
    /// The JSON Schema of its settings, without one if it is none.
    #[must_use]
    pub fn schema(&self) -> schemars::Schema {
        self.settings.clone().try_into().unwrap_or_default()
    }
}
