//! The pipeline files of the server: `NAME.yaml` in one directory.
//!
//! Invariants: a client names pipelines, never paths; a file is read on request, so a change takes
//! effect with the next run.

use std::path::{Path, PathBuf};

use forebay_base::error_chain::chain;
use forebay_base::image::Image;
use forebay_pipeline::config::PipelineFile;
use http::StatusCode;

use super::Load;
use crate::problem::Problem;

/// Maximum number of pipelines in the directory.
const FILES_MAX: usize = 1_000;

/// Name of a pipeline: its file name and the name in the file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(String);

impl Name {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=128).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('.') {
            return Ok(Self(text.to_owned()));
        }
        let text = "the name of a pipeline must have 1 to 128 letters, digits, '.', '_' or '-'";
        Err(Problem::bad("name", text))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// The directory.
#[derive(Debug, Clone)]
pub(super) struct Catalogue {
    dir: PathBuf,
    load: Load,
}

impl Catalogue {
    pub(super) fn new(dir: PathBuf, load: Load) -> Self {
        Self { dir, load }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the names of all pipelines, in order. Blocks.
    pub(super) fn names(&self) -> Result<Vec<Name>, Problem> {
        let unread = |error: std::io::Error| {
            tracing::warn!(dir = %self.dir.display(), %error, "cannot list the pipeline files");
            Problem::closed("cannot read the directory of pipeline files; see the server's log")
        };
        let entries = match std::fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unread(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let name = entry.map_err(unread)?.file_name();
            let stem = name.to_str().and_then(|name| name.strip_suffix(".yaml"));
            names.extend(stem.and_then(|stem| Name::parse(stem).ok()));
            if names.len() > FILES_MAX {
                let text = format!("the directory of pipeline files has more than {FILES_MAX}");
                return Err(Problem::closed(text));
            }
        }
        names.sort();
        Ok(names)
    }

    /// Adds the pipeline files to an image of the data directory, if they are in it.
    pub(super) fn image(&self, image: &mut Image) -> anyhow::Result<()> {
        if !image.contains(&self.dir) {
            return Ok(());
        }
        let names = self.names().map_err(|problem| anyhow::anyhow!(problem.into_message()))?;
        for name in names {
            image.copy_if_exists(&self.dir.join(format!("{}.yaml", name.as_str())))?;
        }
        Ok(())
    }

    /// Returns the pipeline of a name. Blocks.
    pub(super) fn load(&self, name: &Name) -> Result<PipelineFile, Problem> {
        let path = self.dir.join(format!("{}.yaml", name.as_str()));
        if !path.is_file() {
            return Err(Problem::not_found(format!("there is no pipeline {}", name.as_str())));
        }
        let wrong = |text: String| Problem::new(StatusCode::CONFLICT, "pipeline_file", text);
        let file = (self.load)(&path).map_err(|error| {
            // Only the operator may see where the files are.
            let dir = format!("{}/", self.dir.display());
            wrong(chain(&error).to_string().replace(&dir, ""))
        })?;
        if file.pipeline.as_str() == name.as_str() {
            return Ok(file);
        }
        let (file, its) = (name.as_str(), file.pipeline.as_str());
        Err(wrong(format!("{file}.yaml has `pipeline: {its}`; both names must be the same")))
    }
}
