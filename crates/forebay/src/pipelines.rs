//! Code that the command line and the server share to run pipelines: how a file is read, and where
//! runs are recorded.

use std::path::{Path, PathBuf};

pub(crate) use forebay_api::pipelines::{now_ms, progress, run_name};
use forebay_pipeline::config::{self, LoadError, PipelineFile};
use forebay_sdk::registry::Registry;

/// Maximum size of a file whose content is substituted into a pipeline file.
const SECRET_SIZE_MAX: u64 = 1 << 20;

/// Resolves `${...}`: a variable of the environment, or the content of a file.
///
/// # Errors
/// The variable is not set, or the file cannot be read.
pub(crate) fn resolve(name: &str) -> Result<String, String> {
    if let Some(path) = name.strip_prefix("file:") {
        let size = std::fs::metadata(path).map_err(|error| format!("{path}: {error}"))?.len();
        if size > SECRET_SIZE_MAX {
            return Err(format!("{path} has {size} bytes, too many for a secret"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        return Ok(text.trim_end_matches(['\r', '\n']).to_owned());
    }
    std::env::var(name).map_err(|error| match error {
        std::env::VarError::NotPresent => format!("the variable {name} is not set"),
        std::env::VarError::NotUnicode(_) => format!("the variable {name} is not UTF-8"),
    })
}

/// Reads a pipeline file, and resolves its references.
///
/// # Errors
/// [`LoadError`], with the position.
pub(crate) fn load(path: &Path) -> Result<PipelineFile, LoadError> {
    config::load(path, &registry(), &resolve)
}

/// The connectors that a pipeline file can name: those of the program, and the components that are installed.
pub(crate) fn registry() -> Registry {
    let registry = forebay_connectors::registry_in(&crate::buckets::environment());
    #[cfg(feature = "wasm")]
    if let Some(installed) = INSTALLED.get() {
        return registry.with(installed.found());
    }
    registry
}

/// The components of the data directory, once it is known.
#[cfg(feature = "wasm")]
static INSTALLED: std::sync::OnceLock<forebay_wasm::installed::Connectors> =
    std::sync::OnceLock::new();

/// The components that are installed in a data directory.
#[cfg(feature = "wasm")]
pub(crate) fn installed_in(data: &Path) -> forebay_wasm::installed::Connectors {
    forebay_wasm::installed::Connectors::new(data.join(crate::data_dir::CONNECTORS))
}

/// Lets pipeline files name the components of a data directory. The first one counts.
#[cfg_attr(not(feature = "wasm"), expect(unused_variables, reason = "there are none"))]
pub(crate) fn use_components_of(data: &Path) {
    #[cfg(feature = "wasm")]
    INSTALLED.get_or_init(|| installed_in(data));
}

/// Returns the file of recorded runs in a data directory.
pub(crate) fn state_file(data: &Path) -> PathBuf {
    data.join("pipelines.sqlite")
}
