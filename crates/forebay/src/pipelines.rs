//! Code that the command line and the server share to run pipelines: how a file is read, where
//! runs are recorded, and the progress of a run.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use forebay_pipeline::config::{self, LoadError, PipelineFile};
use forebay_pipeline::state::Progress;
use forebay_sdk::registry::Registry;
use forebay_sdk::run::Context;

/// Maximum size of a file whose content is substituted into a pipeline file.
const SECRET_SIZE_MAX: u64 = 1 << 20;

/// Resolves `${...}`: a variable of the environment, or the content of a file.
fn resolve(name: &str) -> Result<String, String> {
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

/// The connectors that a pipeline file can name.
pub(crate) fn registry() -> Registry {
    // For settings that name a profile of ~/.aws, which are resolved as the file is read.
    crate::buckets::environment().install();
    forebay_connectors::registry()
}

/// Returns the file of recorded runs in a data directory.
pub(crate) fn state_file(data: &Path) -> PathBuf {
    data.join("pipelines.sqlite")
}

/// Progress of a run.
pub(crate) fn progress(context: &Context) -> Progress {
    let moved = &context.moved;
    Progress {
        rows_read: moved.rows_read.load(Ordering::Relaxed),
        rows_committed: moved.rows_committed.load(Ordering::Relaxed),
        bytes_read: moved.bytes_read.load(Ordering::Relaxed),
    }
}

/// Returns the time in milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    use forebay_base::clock::Clock as _;
    forebay_base::clock::SystemClock::new().now_ms()
}

/// Maximum number of characters in the name of a run.
const NAME_MAX: usize = 128;

/// Parses the name of a run, as `--once` accepts it.
///
/// # Errors
/// The form of a valid name.
pub(crate) fn run_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:-".contains(c);
    match text.len() {
        1..=NAME_MAX if text.chars().all(is_plain) => Ok(text.to_owned()),
        _ => Err(format!("must be 1 to {NAME_MAX} of a-z A-Z 0-9 . _ : -")),
    }
}
