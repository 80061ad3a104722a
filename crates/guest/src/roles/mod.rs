//! What the macros of this crate call: a role of a component, by the traits of `forebay-sdk`.
//!
//! Invariant: settings are read once an instance; a call that needs a stream or a target that was not opened is an
//! error.

pub mod change_source;
pub mod change_target;
pub mod destination;
pub mod source;
pub mod transform;

use forebay_sdk::ConnectorError;
use forebay_sdk::registry::ConnectorSettings;
use forebay_sdk::run::{Cancel, Context};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::wit::{host, types};

/// The description of a role.
///
/// * `version`, `description`: those of the crate.
#[must_use]
pub fn spec<S: JsonSchema>(version: &str, description: &str) -> types::ComponentSpec {
    types::ComponentSpec {
        version: version.to_owned(),
        description: description.to_owned(),
        settings: schemars::schema_for!(S).to_value().to_string(),
    }
}

/// Reads settings.
fn read<S: DeserializeOwned>(config: &str) -> Result<S, types::InvalidSetting> {
    let from = &mut serde_json::Deserializer::from_str(config);
    serde_path_to_error::deserialize(from).map_err(|error| {
        let field = error.path().to_string();
        let found = error.inner().to_string();
        // The place in a text that was made of the pipeline file.
        let found = found.split(" at line ").next().unwrap_or(&found).to_owned();
        types::InvalidSetting { field: if field == "." { String::new() } else { field }, found }
    })
}

/// Checks settings, and returns what they refer to.
///
/// # Errors
/// The first setting that cannot be used.
pub fn validate<S: ConnectorSettings + DeserializeOwned>(
    config: &str,
) -> Result<types::Reach, types::InvalidSetting> {
    let settings: S = read(config)?;
    settings.check().map_err(|error| types::InvalidSetting {
        field: String::new(),
        found: forebay_sdk::component::cause(&error),
    })?;
    let reach = settings.reach();
    Ok(types::Reach {
        hosts: reach.hosts,
        paths: reach.paths.into_iter().map(|path| path.display().to_string()).collect(),
    })
}

/// Settings that were checked.
fn settings<S: DeserializeOwned>(config: &str) -> Result<S, ConnectorError> {
    read(config).map_err(|invalid| {
        ConnectorError::unsupported(
            format!("config.{}: {}", invalid.field, invalid.found),
            "correct the settings",
        )
    })
}

/// The context of a call.
struct Call {
    context: Context,
    cancel: Cancel,
}

impl Call {
    fn new() -> Self {
        let (context, cancel) = Context::new("component");
        Self { context, cancel }
    }

    /// Passes on whether the run was asked to stop.
    fn look(&self) {
        if host::is_cancelled() {
            self.cancel.cancel();
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        for warning in self.context.warnings() {
            host::warn(&warning);
        }
    }
}

/// An error of a call that stores nothing.
fn failed(error: ConnectorError) -> types::Error {
    types::Error { failure: error.into(), committed: types::Committed::No }
}

/// The error of a call out of order.
fn not_open(what: &str) -> types::Error {
    failed(ConnectorError::data("the calls of the host", format!("no {what} is open")))
}

/// Columns, checked.
fn columns(
    columns: Vec<types::Column>,
) -> Result<Vec<forebay_sdk::component::Column>, ConnectorError> {
    columns.into_iter().map(TryInto::try_into).collect()
}
