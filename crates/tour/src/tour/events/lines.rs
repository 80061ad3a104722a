//! The events of a tour: lines of the machine's own logs, and one for each file the tour sent.
//!
//! Each is one line of JSON with its own id, as a log shipper would send it, so that a line
//! whose acknowledgement was lost can be looked up before it is sent again.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use forebay_events::EventId;
use forebay_events::event::IdSequence;
use serde_json::json;

use crate::tour::inputs::Files;

/// Maximum number of lines taken from logs, and of their bytes.
const LOG_LINES_MAX: usize = 100_000;
const LOG_SIZE_MAX: u64 = 32 << 20;
/// Maximum length of a line.
const LINE_SIZE_MAX: usize = 64 << 10;

/// One event to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) id: EventId,
    pub(super) json: String,
}

/// The events, and their sources.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) lines: Vec<Line>,
    pub(super) bytes: u64,
    pub(super) logs: usize,
    pub(super) of_logs: usize,
}

/// Collects them; `now_ms` is the time of their first id.
pub(super) fn gather(files: &Files, now_ms: u64) -> Lines {
    let mut ids = IdSequence::new(now_ms);
    let mut lines = Lines::default();
    for path in logs(Path::new("/var/log")) {
        let before = lines.lines.len();
        take_log(&path, &mut ids, &mut lines);
        lines.logs += usize::from(lines.lines.len() > before);
    }
    lines.of_logs = lines.lines.len();
    for source in &files.chosen {
        let id = ids.next_id();
        let json = json!({
            "id": id.to_string(),
            "type": "file sent",
            "host": "tour",
            "severity": "informational",
            "message": source.name,
            "size": source.size,
        });
        push(&mut lines, id, &json);
    }
    lines
}

fn push(lines: &mut Lines, id: EventId, json: &serde_json::Value) {
    let json = json.to_string();
    lines.bytes += json.len() as u64 + 1;
    lines.lines.push(Line { id, json });
}

/// Returns the readable text logs, by name.
fn logs(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = walkdir::WalkDir::new(dir)
        .max_depth(2)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    found.sort();
    found
}

/// Adds the lines of one log, until there are enough.
fn take_log(path: &Path, ids: &mut IdSequence, lines: &mut Lines) {
    let left = LOG_SIZE_MAX.saturating_sub(lines.bytes);
    let mut bytes = Vec::new();
    // A log that cannot be read, or not to its end, contributes the lines that were read.
    let Ok(file) = std::fs::File::open(path) else { return };
    if file.take(left).read_to_end(&mut bytes).is_err() {
        return;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for line in bytes.split(|&byte| byte == b'\n') {
        if lines.lines.len() >= LOG_LINES_MAX {
            return;
        }
        if line.is_empty() || line.len() > LINE_SIZE_MAX {
            continue;
        }
        let id = ids.next_id();
        let text = String::from_utf8_lossy(line);
        let json = json!({ "id": id.to_string(), "type": name, "host": "tour", "message": text });
        push(lines, id, &json);
    }
}
