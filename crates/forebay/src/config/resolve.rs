//! Precedence: determines one text and one origin for every setting.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::{ConfigError, Fault};
use super::file;
use super::nearest::nearest;
use super::settings::{Config, SETTINGS, Setting, find};
use super::value::Value;

/// The file that is read if none is named.
const FILE_DEFAULT: &str = "forebay.toml";
/// Environment variable that names a configuration file, as `--config` does.
const FILE_ENV: &str = "FOREBAY_CONFIG";

/// Where a setting's value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// No source sets it.
    Default,
    /// A line of the configuration file.
    File {
        /// The file.
        path: PathBuf,
        /// The line of the key, from 1.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A command line flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Env(name) => write!(f, "environment {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
        }
    }
}

/// Settings given as flags, in the order a command collected them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags {
    config: Option<PathBuf>,
    given: Vec<(String, &'static str, String)>,
}

impl Flags {
    /// No settings yet; `config` is the file named on the command line.
    pub(crate) fn with_file(config: Option<PathBuf>) -> Self {
        Self { config, given: Vec::new() }
    }

    /// Records `flag` as the source of `key`, if it was given.
    pub(crate) fn note(&mut self, key: &'static str, flag: &str, text: Option<String>) {
        if let Some(text) = text {
            self.given.push((flag.to_owned(), key, text));
        }
    }

    /// Records one `--set KEY=VALUE`.
    pub(crate) fn set(&mut self, given: &str) -> Result<(), ConfigError> {
        let wrong = |problem: String| ConfigError::Set { given: given.to_owned(), problem };
        let (key, text) =
            given.split_once('=').ok_or_else(|| wrong("write it as KEY=VALUE".to_owned()))?;
        let setting = find(key.trim()).ok_or_else(|| {
            let meant = nearest(key.trim(), SETTINGS.iter().map(|setting| setting.key));
            wrong(match meant {
                Some(meant) => format!("unknown key; did you mean {meant}?"),
                None => "unknown key; `forebay config show` lists every key".to_owned(),
            })
        })?;
        self.given.push(("--set".to_owned(), setting.key, text.trim().to_owned()));
        Ok(())
    }
}

/// Every setting's text and origin, all checked.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    /// In the order of [`SETTINGS`].
    values: Vec<(String, Origin)>,
    /// The file that was read, if any.
    pub(crate) file: Option<PathBuf>,
    /// `FOREBAY_*` variables that name no setting, with the nearest known variable.
    pub(crate) stray_env: Vec<(String, Option<String>)>,
}

impl Resolved {
    /// Reads all sources and keeps the value of the highest precedence.
    ///
    /// * `flags`: the settings from the command line.
    /// * `env`: the environment, as pairs.
    ///
    /// # Errors
    /// [`ConfigError`]: the file cannot be read or has unknown keys, or a value is not valid.
    pub(crate) fn load(flags: &Flags, env: &[(String, String)]) -> Result<Self, ConfigError> {
        let file = config_file(flags, env, Path::new("."));
        let entries = match &file {
            Some(path) => file::read(path)?,
            None => Vec::new(),
        };
        let values = SETTINGS
            .iter()
            .map(|setting| {
                let flag = flags.given.iter().rev().find(|(_, key, _)| *key == setting.key);
                let name = setting.env();
                let variable = env.iter().find(|(known, _)| *known == name);
                let line = entries.iter().find(|entry| entry.key == setting.key);
                if let Some((flag, _, text)) = flag {
                    (text.clone(), Origin::Flag(flag.clone()))
                } else if let Some((_, text)) = variable {
                    (text.clone(), Origin::Env(name))
                } else if let (Some(entry), Some(path)) = (line, &file) {
                    (entry.text.clone(), Origin::File { path: path.clone(), line: entry.line })
                } else {
                    (setting.default.to_owned(), Origin::Default)
                }
            })
            .collect();
        let resolved = Self { values, file, stray_env: stray(env) };
        resolved.check()?;
        Ok(resolved)
    }

    /// Returns the typed configuration.
    pub(crate) fn config(&self) -> anyhow::Result<Config> {
        let config = Config::build(self)?;
        super::tls::check(&config)
            .and_then(|()| super::database::check(&config.database))
            .and_then(|()| super::events::check(&config.events))
            .and_then(|()| super::inventory::check(&config.inventory))
            .and_then(|()| super::pipelines::check(&config.pipelines))
            .map_err(|fault| self.conflict(fault))?;
        Ok(config)
    }

    /// Adds to a fault where its settings come from and what they are.
    fn conflict(&self, fault: Fault) -> ConfigError {
        let given = |(setting, text, origin): (&Setting, &str, &Origin)| {
            let named = fault.keys.iter().any(|key| key == setting.key);
            let shown = (setting.shown)(text);
            (named && *origin != Origin::Default)
                .then(|| format!("{origin}: {} = {shown:?}", setting.key))
        };
        let given: Vec<String> = self.iter().filter_map(given).collect();
        let given = if given.is_empty() { fault.keys.join(", ") } else { given.join("; ") };
        ConfigError::Conflict { given, problem: fault.problem }
    }

    /// Returns a sentence for each variable that begins with `FOREBAY_` and names no setting.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = String> {
        self.stray_env.iter().map(|(name, meant)| match meant {
            Some(meant) => format!(
                "warning: the environment variable {name:?} names no setting; did you mean {meant}?"
            ),
            None => format!("warning: the environment variable {name:?} names no setting"),
        })
    }

    /// Returns the setting, text and origin of every setting.
    pub(crate) fn iter(
        &self,
    ) -> impl Iterator<Item = (&'static super::settings::Setting, &str, &Origin)> {
        SETTINGS
            .iter()
            .zip(&self.values)
            .map(|(setting, (text, origin))| (setting, &**text, origin))
    }

    /// Returns the value of `key` as a `T`.
    pub(super) fn typed<T: Value>(&self, key: &str) -> anyhow::Result<T> {
        let (setting, text, origin) = self
            .iter()
            .find(|(setting, ..)| setting.key == key)
            .ok_or_else(|| anyhow::anyhow!("there is no setting {key}"))?;
        let parsed = T::parse(text).map_err(|problem| wrong(setting, text, origin, problem));
        Ok(parsed?)
    }

    fn check(&self) -> Result<(), ConfigError> {
        for (setting, text, origin) in self.iter() {
            (setting.check)(text).map_err(|problem| wrong(setting, text, origin, problem))?;
        }
        Ok(())
    }
}

fn wrong(setting: &Setting, text: &str, origin: &Origin, problem: String) -> ConfigError {
    ConfigError::Value {
        origin: origin.to_string(),
        key: setting.key.to_owned(),
        value: (setting.shown)(text),
        problem,
        expected: setting.expected,
    }
}

/// Returns the file to read: the named one, else `forebay.toml` in `directory` if it exists. A link
/// to nothing exists too: reading it then fails.
pub(super) fn config_file(
    flags: &Flags,
    env: &[(String, String)],
    directory: &Path,
) -> Option<PathBuf> {
    let named = || env.iter().find(|(name, _)| name == FILE_ENV).map(|(_, path)| path.into());
    flags.config.clone().or_else(named).or_else(|| {
        let absent = |error: std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        let usual = directory.join(FILE_DEFAULT);
        let is_absent = usual.symlink_metadata().is_err_and(absent);
        (!is_absent).then(|| usual.strip_prefix(".").map(Path::to_owned).unwrap_or(usual))
    })
}

/// Returns variables that begin with `FOREBAY_` and name no setting; most likely a typing error.
fn stray(env: &[(String, String)]) -> Vec<(String, Option<String>)> {
    const OTHERS: [&str; 2] = [FILE_ENV, "FOREBAY_REQUIRE_SERVICES"];
    let known: Vec<String> = SETTINGS.iter().map(super::settings::Setting::env).collect();
    env.iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("FOREBAY_"))
        .filter(|name| !OTHERS.contains(&name.as_str()) && !known.contains(name))
        .map(|name| {
            let lower: Vec<String> = known.iter().map(|known| known.to_lowercase()).collect();
            let meant = nearest(name, lower.iter().map(String::as_str));
            (name.clone(), meant.map(str::to_uppercase))
        })
        .collect()
}
