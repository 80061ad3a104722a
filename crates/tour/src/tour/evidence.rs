//! Keeps the evidence of a failed tour: the data, the logs, and their last lines.
//!
//! Nothing is removed, and everything is printed on standard error, so that the object of
//! `--json` stays alone on standard output.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::child;
use forebay_console::out;

/// Number of lines of each log that are printed.
const LINES: usize = 20;

/// The evidence of a failed tour.
#[derive(Debug)]
pub(super) struct Evidence {
    logs: Vec<PathBuf>,
    data: PathBuf,
}

impl Evidence {
    /// Keeps the directory of the logs, and prints their last lines and the path of the data.
    pub(super) fn keep(scratch: TempDir, data: &Path) {
        let dir = scratch.keep();
        let logs = ["server.log", "pipeline.log"].map(|name| dir.join(name));
        let kept = Self { logs: logs.into(), data: data.to_owned() };
        out::note(kept.text());
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for log in self.logs.iter().filter(|log| log.exists()) {
            out::push_line!(text, "The log {} is kept. Its last lines:", log.display());
            let last = child::last_lines(log, LINES);
            let last = last.unwrap_or_else(|error| format!("(cannot read it: {error})"));
            out::push_line!(text, "{last}");
        }
        match self.data.exists() {
            true => out::push_line!(text, "The data is kept in {}.", self.data.display()),
            false => out::push_line!(text, "No data directory was created."),
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_every_log_and_the_data_directory_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (log, data) = (dir.path().join("server.log"), dir.path().join("data"));
        let lines: Vec<String> = (0..50).map(|number| format!("line {number}.")).collect();
        std::fs::write(&log, lines.join("\n")).unwrap();
        std::fs::create_dir(&data).unwrap();
        let absent = dir.path().join("pipeline.log");
        let text = Evidence { logs: vec![log.clone(), absent], data: data.clone() }.text();
        assert!(text.contains(&log.display().to_string()), "{text}");
        assert!(text.contains(&data.display().to_string()), "{text}");
        assert!(text.contains("line 30.\n") && text.contains("line 49.\n"), "{text}");
        assert!(!text.contains("line 29."), "{text}");
        assert!(!text.contains("pipeline.log"), "{text}");
    }
}
