//! The pipeline files the server may run: `NAME.yaml` in one directory.
//!
//! Invariants: a client names pipelines, never paths; a file is read when it is asked for, so that what is
//! changed counts from the next run on.

use std::path::{Path, PathBuf};

use forebay_base::error_chain::chain;
use forebay_pipeline::config::PipelineFile;
use http::StatusCode;

use super::super::answer::Problem;
use crate::pipelines;

/// Pipelines the directory may have.
const FILES_MAX: usize = 1_000;

/// The name of a pipeline: what its file is called, and what it calls itself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(String);

impl Name {
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if (1..=128).contains(&text.len()) && text.bytes().all(fits) && !text.starts_with('.') {
            return Ok(Self(text.to_owned()));
        }
        let text = "a pipeline's name has 1 to 128 letters, digits, '.', '_' or '-'";
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
}

impl Catalogue {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The names there are, in order. Blocks.
    pub(super) fn names(&self) -> Result<Vec<Name>, Problem> {
        let unread = |error: std::io::Error| {
            tracing::warn!(dir = %self.dir.display(), %error, "the pipeline files cannot be listed");
            Problem::closed(
                "the directory of pipeline files cannot be read; the server's log says why",
            )
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

    /// The pipeline of a name. Blocks.
    pub(super) fn load(&self, name: &Name) -> Result<PipelineFile, Problem> {
        let path = self.dir.join(format!("{}.yaml", name.as_str()));
        if !path.is_file() {
            return Err(Problem::not_found(format!("there is no pipeline {}", name.as_str())));
        }
        let wrong = |text: String| Problem::new(StatusCode::CONFLICT, "pipeline_file", text);
        let file = pipelines::load(&path).map_err(|error| {
            // Where files are is nobody's business but the operator's.
            let dir = format!("{}/", self.dir.display());
            wrong(chain(&error).to_string().replace(&dir, ""))
        })?;
        if file.pipeline.as_str() == name.as_str() {
            return Ok(file);
        }
        let (file, its) = (name.as_str(), file.pipeline.as_str());
        Err(wrong(format!("{file}.yaml says `pipeline: {its}`; file and pipeline have one name")))
    }
}
