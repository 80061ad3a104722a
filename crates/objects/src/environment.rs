//! What the surroundings of the program contribute: variables `AWS_...` and the home directory.
//!
//! The program hands them over, so that a library never depends on where it runs.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::PathBuf;

use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};

use crate::error::ConfigError;

/// Variables and the home directory of the user. The default has none.
#[derive(Clone, Default)]
pub struct Environment {
    /// Variables `AWS_...` that are not empty.
    variables: Vec<(String, OsString)>,
    home: Option<PathBuf>,
}

impl Environment {
    /// Takes the variables that matter from all of them, and the home directory.
    pub fn new(
        variables: impl IntoIterator<Item = (OsString, OsString)>,
        home: Option<PathBuf>,
    ) -> Self {
        let known = variables.into_iter().filter_map(|(name, value)| {
            let name = name.into_string().ok().filter(|name| name.starts_with("AWS_"))?;
            (!value.is_empty()).then_some((name, value))
        });
        let home = home.filter(|home| !home.as_os_str().is_empty());
        Self { variables: known.collect(), home }
    }

    fn get(&self, name: &str) -> Option<&OsStr> {
        self.variables.iter().find(|(its, _)| its == name).map(|(_, value)| value.as_os_str())
    }

    /// The profile that a variable names.
    pub(crate) fn profile(&self) -> Option<&str> {
        let named = self.get("AWS_PROFILE").or_else(|| self.get("AWS_DEFAULT_PROFILE"));
        named.and_then(OsStr::to_str)
    }

    /// The path of a file of profiles: that in a variable, or `name` in `~/.aws`.
    pub(crate) fn profile_file(
        &self,
        variable: &'static str,
        name: &str,
    ) -> Result<PathBuf, ConfigError> {
        match (self.get(variable).map(PathBuf::from), &self.home) {
            (Some(given), Some(home)) => {
                Ok(given.strip_prefix("~").map(|rest| home.join(rest)).unwrap_or(given.clone()))
            }
            (Some(given), None) => Ok(given),
            (None, Some(home)) => Ok(home.join(".aws").join(name)),
            (None, None) => Err(ConfigError::NoHome { variable }),
        }
    }

    /// Adds every setting that a variable has to `builder`; without keys if others are used,
    /// because a token for other keys is refused.
    pub(crate) fn apply(&self, builder: AmazonS3Builder, with_keys: bool) -> AmazonS3Builder {
        use AmazonS3ConfigKey::{AccessKeyId, SecretAccessKey, Token};
        self.variables.iter().fold(builder, |builder, (name, value)| {
            let Some(value) = value.to_str() else { return builder };
            match name.to_ascii_lowercase().parse() {
                Ok(AccessKeyId | SecretAccessKey | Token) if !with_keys => builder,
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            }
        })
    }

    /// Whether it has keys.
    pub(crate) fn has_keys(&self) -> bool {
        self.get("AWS_ACCESS_KEY_ID").is_some()
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.variables.iter().map(|(name, _)| &**name).collect();
        f.debug_struct("Environment").field("variables", &names).field("home", &self.home).finish()
    }
}
