//! Records of namespaces, and what they say about versions.

use crate::attributes::{AttributeError, AttributeKind, Attributes};
use crate::names::Namespace;

/// What becomes of a file in a namespace when it is replaced or deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Versioning {
    /// It is dropped.
    Off,
    /// It is kept as a version.
    On,
    /// It is kept if its id is below this position of the log, where the versions were suspended.
    Suspended {
        /// The position.
        at: u64,
    },
}

/// What a namespace may hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Maximum number of files.
    pub files: Option<u64>,
    /// Maximum number of bytes of files and versions.
    pub bytes: Option<u64>,
}

impl Quota {
    /// Whether there is no limit.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.files.is_none() && self.bytes.is_none()
    }
}

/// What a namespace holds, as quotas count it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Number of files.
    pub files: u64,
    /// Bytes of files and versions.
    pub bytes: u64,
}

/// A namespace with a record of its own: it exists without files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceRecord {
    /// The namespace.
    pub namespace: Namespace,
    /// When the record was made, in milliseconds since 1970.
    pub created_ms: i64,
    /// What is stored with it.
    pub attributes: Attributes,
}

impl NamespaceRecord {
    /// Name of the internal attribute of a namespace that keeps versions.
    const VERSIONS: &str = "versions";
    /// What its value begins with while no further versions are kept.
    const SUSPENDED: &str = "suspended ";

    /// Names of the internal attributes with the quota.
    const QUOTA_FILES: &str = "quota files";
    const QUOTA_BYTES: &str = "quota bytes";

    /// What it may hold.
    #[must_use]
    pub fn quota(&self) -> Quota {
        Self::quota_of(&self.attributes)
    }

    /// What a namespace with these attributes may hold.
    #[must_use]
    pub fn quota_of(attributes: &Attributes) -> Quota {
        let of = |name| attributes.get(AttributeKind::Internal, name)?.parse().ok();
        Quota { files: of(Self::QUOTA_FILES), bytes: of(Self::QUOTA_BYTES) }
    }

    /// Attributes of a namespace that may hold this much.
    ///
    /// # Errors
    /// [`AttributeError`]: there is no room for one more.
    pub fn with_quota(
        mut attributes: Attributes,
        quota: Quota,
    ) -> Result<Attributes, AttributeError> {
        let kind = AttributeKind::Internal;
        for (name, most) in [(Self::QUOTA_FILES, quota.files), (Self::QUOTA_BYTES, quota.bytes)] {
            match most {
                Some(most) => attributes.set(kind, name, &most.to_string())?,
                None => attributes.remove(kind, name),
            }
        }
        Ok(attributes)
    }

    /// What becomes of files that are replaced or deleted.
    #[must_use]
    pub fn versioning(&self) -> Versioning {
        match self.attributes.get(AttributeKind::Internal, Self::VERSIONS) {
            Some("on") => Versioning::On,
            Some(text) => match text.strip_prefix(Self::SUSPENDED).map(str::parse) {
                Some(Ok(at)) => Versioning::Suspended { at },
                // Not ours: nothing is dropped.
                _ => Versioning::On,
            },
            None => Versioning::Off,
        }
    }

    /// Whether the file with this id is kept as a version when it is replaced or deleted.
    #[must_use]
    pub fn keeps_version(&self, id: u64) -> bool {
        match self.versioning() {
            Versioning::On => true,
            Versioning::Suspended { at } => id < at,
            Versioning::Off => false,
        }
    }

    /// Attributes with which a namespace treats files that are replaced or deleted like this.
    ///
    /// # Errors
    /// [`AttributeError`]: there is no room for one more.
    pub fn with_versioning(
        mut attributes: Attributes,
        versioning: Versioning,
    ) -> Result<Attributes, AttributeError> {
        let kind = AttributeKind::Internal;
        match versioning {
            Versioning::On => attributes.set(kind, Self::VERSIONS, "on")?,
            Versioning::Suspended { at } => {
                attributes.set(kind, Self::VERSIONS, &format!("{}{at}", Self::SUSPENDED))?;
            }
            Versioning::Off => attributes.remove(kind, Self::VERSIONS),
        }
        Ok(attributes)
    }
}
