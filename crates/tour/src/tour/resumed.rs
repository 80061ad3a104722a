//! A file that arrives in two requests with a kill between them, and is then found by its words.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use forebay_console::interrupt::Interrupt;
use serde_json::Value;

use super::HANGS_AFTER;
use super::client::{Connection, Request};

/// A word that only this file has.
const WORD: &str = "zwischenhalt";
const LINES: usize = 20_000;

/// An upload of which the first half is stored.
pub(super) struct Begun {
    url: String,
    bytes: Vec<u8>,
    /// Bytes that were acknowledged.
    sent: usize,
}

/// What became of the upload.
pub(super) struct Resumed {
    pub(super) size: usize,
    /// Bytes that did not have to be sent again.
    pub(super) kept: usize,
    pub(super) problem: Option<String>,
}

/// Begins an upload (tus 1.0) and sends its first half.
pub(super) fn begin(connection: &mut Connection) -> anyhow::Result<Begun> {
    let bytes = format!("a line of the resumed upload, with the word {WORD}\n").repeat(LINES);
    let bytes = bytes.into_bytes();
    // Base64 of "tour-jobs" and of "resumed.txt".
    let metadata = "namespace dG91ci1qb2Jz,filename cmVzdW1lZC50eHQ=";
    let headers = tus(&[
        ("upload-length", bytes.len().to_string()),
        ("upload-metadata", metadata.to_owned()),
    ]);
    let request = Request { method: "POST", path: "/v1/uploads", headers: &headers, body: &[] };
    let answer = connection.ask(request).context("cannot begin an upload")?;
    ensure!(answer.status == 201, "an upload was not begun: {}", answer.describe());
    let url = answer.header("location").context("the upload has no URL")?.to_owned();
    let half = bytes.len() / 2;
    let sent = patch(connection, &url, &bytes, 0, half)?;
    ensure!(sent == half, "{sent} of {half} bytes of an upload were acknowledged");
    Ok(Begun { url, bytes, sent })
}

/// Continues the upload where the server says, compares the file, and looks for its word.
pub(super) fn finish(
    connection: &mut Connection,
    begun: &Begun,
    interrupt: &Interrupt,
) -> anyhow::Result<Resumed> {
    let Begun { url, bytes, sent } = begun;
    let headers = tus(&[]);
    let request = Request { method: "HEAD", path: url, headers: &headers, body: &[] };
    let answer = connection.ask(request).context("cannot look at an upload")?;
    let kept = answer.header("upload-offset").and_then(|offset| offset.parse().ok());
    let size = bytes.len();
    let lost = |text: String| Resumed { size, kept: 0, problem: Some(text) };
    let Some(kept) = kept.filter(|kept| kept >= sent && *kept <= size) else {
        return Ok(lost(format!(
            "{sent} bytes of an upload were acknowledged, {kept:?} are there"
        )));
    };
    let end = patch(connection, url, bytes, kept, size)?;
    if end != size {
        return Ok(lost(format!("{end} of {size} bytes of an upload were acknowledged")));
    }
    let path = "/v1/files/tour-jobs/resumed.txt";
    let answer = connection.ask(Request::get(path)).context("cannot read a file")?;
    if answer.status != 200 || answer.body != *bytes {
        return Ok(lost(format!("the resumed upload differs: {}", answer.status)));
    }
    Ok(Resumed { size, kept, problem: find(connection, interrupt)? })
}

/// Waits until the search index has the file.
fn find(connection: &mut Connection, interrupt: &Interrupt) -> anyhow::Result<Option<String>> {
    let deadline = Instant::now() + HANGS_AFTER;
    let path = format!("/v1/files/search?q={WORD}");
    loop {
        interrupt.check()?;
        let answer = connection.ask(Request::get(&path)).context("cannot search")?;
        ensure!(answer.status == 200, "a search failed: {}", answer.describe());
        let found: Value = serde_json::from_slice(&answer.body).context("no JSON")?;
        let names = found["files"].as_array().map(Vec::as_slice).unwrap_or_default();
        if names.len() == 1 && names.iter().all(|file| file["name"] == "resumed.txt") {
            return Ok(None);
        }
        if Instant::now() >= deadline {
            return Ok(Some(format!("a search for {WORD} found {} files", names.len())));
        }
    }
}

/// Sends bytes from one offset to another, and returns the offset that is acknowledged.
fn patch(
    connection: &mut Connection,
    url: &str,
    bytes: &[u8],
    from: usize,
    to: usize,
) -> anyhow::Result<usize> {
    let headers = tus(&[
        ("upload-offset", from.to_string()),
        ("content-type", "application/offset+octet-stream".to_owned()),
    ]);
    let body = bytes.get(from..to).unwrap_or_default();
    let request = Request { method: "PATCH", path: url, headers: &headers, body };
    let answer = connection.ask(request).context("cannot continue an upload")?;
    ensure!(answer.status == 204, "an upload was not continued: {}", answer.describe());
    let offset = answer.header("upload-offset").and_then(|offset| offset.parse().ok());
    offset.context("the answer has no offset")
}

fn tus(further: &[(&'static str, String)]) -> Vec<(&'static str, String)> {
    [&[("tus-resumable", "1.0.0".to_owned())], further].concat()
}
