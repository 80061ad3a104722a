//! What the connector of a section may access and use: `permissions` and `limits`.
//!
//! For built-in connectors this is a fence, not a sandbox: what a pipeline file names is compared
//! with its permissions while the file is read, before any connection is made. It detects a file
//! that was changed to another server or directory, and a variable that was not meant for it.
//!
//! Invariant: a missing setting restricts nothing. A list, if given, permits its entries and
//! nothing else.

use std::num::NonZeroU32;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use forebay_base::ByteSize;
use forebay_sdk::settings::{Reach, permits_host};
use schemars::JsonSchema;
use serde::Deserialize;

/// What a connector may access.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Permissions {
    /// Servers.
    pub network: Network,
    /// Environment variables that its `config` may name.
    pub env: Env,
    /// Directories and files.
    pub fs: Fs,
}

/// Servers that a connector may access.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Names or addresses, or `*.example.org` for all names below a domain. Append `:PORT` to
    /// permit only that port.
    pub allowed_hosts: Option<Vec<String>>,
}

/// Environment variables that a connector's settings may name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Env {
    /// Names of the variables.
    pub allowed_vars: Option<Vec<String>>,
}

/// Directories and files that a connector may access.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fs {
    /// Paths. Each permits everything below it.
    pub allowed_preopens: Option<Vec<PathBuf>>,
}

/// Limits on the resources of a connector.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Maximum size in bytes of the batches between source and destination, if that is less than
    /// `resources.max_memory`.
    #[schemars(with = "Option<String>")]
    pub max_memory: Option<ByteSize>,
    /// Maximum number of seconds for a unit: for a source until it is read, for a destination until
    /// its rows are written, including the wait for the other side. A unit that takes longer is
    /// aborted and tried again, as after any transient failure.
    pub timeout_seconds: Option<NonZeroU32>,
}

impl Limits {
    /// Maximum duration of a unit.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout_seconds.map(|seconds| Duration::from_secs(seconds.get().into()))
    }
}

/// The field below `permissions` that forbids something, and what it forbids.
type Forbidden = (&'static str, String);

impl Permissions {
    /// Compares what settings refer to, and the names in them, with what is permitted.
    ///
    /// # Errors
    /// The field, and what it does not permit.
    pub(super) fn check(&self, reach: &Reach, names: &[String]) -> Result<(), Forbidden> {
        for name in names {
            match (name.strip_prefix("file:"), &self.env.allowed_vars) {
                (Some(path), _) => self.check_path(Path::new(path))?,
                (None, Some(allowed)) if !allowed.contains(name) => {
                    return Err(("env.allowed_vars", format!("does not permit ${{{name}}}")));
                }
                (None, _) => {}
            }
        }
        for (host, port) in &reach.hosts {
            let allowed = self.network.allowed_hosts.as_deref();
            if allowed
                .is_some_and(|allowed| !allowed.iter().any(|of| permits_host(of, host, *port)))
            {
                let port = port.map_or_else(String::new, |port| format!(":{port}"));
                let found = format!("does not permit {host}{port}");
                return Err(("network.allowed_hosts", found));
            }
        }
        reach.paths.iter().try_for_each(|path| self.check_path(path))
    }

    fn check_path(&self, path: &Path) -> Result<(), Forbidden> {
        let Some(allowed) = &self.fs.allowed_preopens else { return Ok(()) };
        let forbidden = |why: String| ("fs.allowed_preopens", why);
        let found = real(path).map_err(|why| forbidden(format!("{}: {why}", path.display())))?;
        for of in allowed {
            let of = real(of).map_err(|why| forbidden(format!("{}: {why}", of.display())))?;
            if found.starts_with(of) {
                return Ok(());
            }
        }
        Err(forbidden(format!("does not permit {}", path.display())))
    }
}

/// The absolute path, without links as far as it exists.
fn real(path: &Path) -> Result<PathBuf, String> {
    let whole = std::path::absolute(path).map_err(|error| error.to_string())?;
    if whole.components().any(|part| part == Component::ParentDir) {
        return Err("it contains `..`; write the path without it".to_owned());
    }
    let mut there = whole.as_path();
    loop {
        match there.canonicalize() {
            Ok(found) => {
                let rest = whole.strip_prefix(there).unwrap_or(Path::new(""));
                return Ok(if rest == Path::new("") { found } else { found.join(rest) });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                there = there.parent().ok_or("the path has no root")?;
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permits(yaml: &str) -> Permissions {
        serde_saphyr::from_str(yaml).unwrap()
    }

    #[test]
    fn what_is_not_said_is_not_restricted() {
        let reach = Reach { hosts: vec![("x".into(), Some(1))], paths: vec!["/etc".into()] };
        assert_eq!(Permissions::default().check(&reach, &["SECRET".into()]), Ok(()));
        let none = permits("{network: {allowed_hosts: []}}");
        assert!(none.check(&reach, &[]).is_err());
        assert_eq!(none.check(&Reach::path("/etc"), &["SECRET".into()]), Ok(()));
    }

    #[test]
    fn variables_and_files_of_secrets_are_permitted_by_name_and_place() {
        let dir = tempfile::tempdir().unwrap();
        let permissions = Permissions {
            env: Env { allowed_vars: Some(vec!["PGPASSWORD".into()]) },
            fs: Fs { allowed_preopens: Some(vec![dir.path().into()]) },
            ..Permissions::default()
        };
        let check = |name: String| permissions.check(&Reach::default(), &[name]);
        assert_eq!(check("PGPASSWORD".into()), Ok(()));
        let refused = check("AWS_SECRET_ACCESS_KEY".into()).unwrap_err();
        assert_eq!(refused.0, "env.allowed_vars");
        assert_eq!(check(format!("file:{}/key", dir.path().display())), Ok(()));
        assert_eq!(check("file:/etc/passwd".into()).unwrap_err().0, "fs.allowed_preopens");
    }

    #[test]
    fn a_path_is_not_permitted_by_way_of_a_link_or_of_dots() {
        let dir = tempfile::tempdir().unwrap();
        let inside = dir.path().join("inside");
        std::fs::create_dir(&inside).unwrap();
        std::os::unix::fs::symlink("/etc", inside.join("link")).unwrap();
        let permissions = Permissions {
            fs: Fs { allowed_preopens: Some(vec![inside.clone()]) },
            ..Permissions::default()
        };
        let check = |path: &str| {
            permissions.check(&Reach::path(inside.join(path).to_str().unwrap()), &[]).is_ok()
        };
        assert!(check("") && check("new") && check("new/newer.sqlite"));
        assert!(!check("link") && !check("link/passwd") && !check("new/../../x"));
        assert!(!check("../inside-not/x"));
    }
}
