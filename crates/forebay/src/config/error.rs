//! Errors of a configuration.

use std::path::PathBuf;

/// A configuration that cannot be used. Every variant names what to fix.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration file {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is too large to be a configuration.
    #[error("{} has {size} bytes; a configuration file has at most {max}", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The limit.
        max: u64,
    },
    /// The file is not TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line of the error, from 1.
        line: usize,
        /// What the parser found.
        message: String,
    },
    /// The file has unknown keys.
    #[error("{}", unknown.join("\n"))]
    UnknownKeys {
        /// One complete sentence for each key.
        unknown: Vec<String>,
    },
    /// `--set` has an argument that is not `KEY=VALUE`, or an unknown key.
    #[error("--set {given:?}: {problem}")]
    Set {
        /// What was given.
        given: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A value does not parse.
    #[error("{origin}: {key} = {value:?}: {problem}; expected {expected}")]
    Value {
        /// Where the value came from.
        origin: String,
        /// The setting.
        key: String,
        /// The text that was given.
        value: String,
        /// What is wrong with it.
        problem: String,
        /// The form of a valid value.
        expected: &'static str,
    },
    /// A setting is not allowed, or contradicts another one.
    #[error("{given}: {problem}")]
    Conflict {
        /// The settings: where each comes from, its key and its value.
        given: String,
        /// What is wrong with them.
        problem: String,
    },
}

/// A setting that is not allowed by itself or together with others, before its source is known.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// The settings concerned.
    pub(super) keys: Vec<String>,
    /// What is wrong with them.
    pub(super) problem: String,
}

impl Fault {
    /// A fault of one setting.
    pub(super) fn of(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { keys: vec![key.into()], problem: problem.into() }
    }

    /// A fault of settings that do not agree.
    pub(super) fn between(keys: &[&str], problem: impl Into<String>) -> Self {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        Self { keys, problem: problem.into() }
    }
}
