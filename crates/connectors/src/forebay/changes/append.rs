//! Appending lines to a stream of events.
//!
//! Invariant: every line names its id, under which the store has one event of a stream. So lines that are sent again,
//! by this run or a later one, are stored once, however long ago it was.

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use reqwest::StatusCode;
use serde::Deserialize;

use super::super::client::Server;

/// Maximum size of an event, in bytes, as in the server.
pub(super) const EVENT_SIZE_MAX: usize = 1 << 20;
/// Lines are sent when they have this many bytes.
pub(super) const BODY_SIZE: usize = 4 << 20;
/// A part of the reason for which the store refuses another event under an id that it has.
const OTHER: &str = "other contents";
/// A part of the reason for which it refuses one that another request is storing.
const ELSEWHERE: &str = "send it again";

/// Lines that belong to one stream.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) bytes: Vec<u8>,
    pub(super) count: u64,
}

impl Lines {
    /// Ends the line that begins at a position of `bytes`.
    ///
    /// * `what`: the event, for the error.
    ///
    /// # Errors
    /// It is larger than an event can be.
    pub(super) fn end(&mut self, begun: usize, what: impl FnOnce() -> String) -> Result<()> {
        let size = self.bytes.len().saturating_sub(begun);
        if size > EVENT_SIZE_MAX {
            return Err(ConnectorError::unsupported(
                format!("{} has {size} bytes, and an event at most {EVENT_SIZE_MAX}", what()),
                "leave columns with large values out with `columns`, or follow the table into a database",
            ));
        }
        self.bytes.push(b'\n');
        self.count += 1;
        Ok(())
    }

    /// Whether they should be sent.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.len() >= BODY_SIZE
    }
}

/// The server's answer to an append.
#[derive(Debug, Deserialize)]
struct Report {
    accepted: u64,
    duplicates: u64,
    rejected: u64,
    #[serde(default)]
    rejects: Vec<Reject>,
}

#[derive(Debug, Deserialize)]
struct Reject {
    line: u64,
    reason: String,
}

/// What became of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Appended {
    /// Each of them is stored, now or before.
    All,
    /// The store has another event under the id of one of them.
    Other,
}

/// Appends lines to a stream, and empties them.
///
/// # Errors
/// The server does not answer, or refuses a line. How many of them are stored is unknown then.
pub(super) async fn append(server: &Server, stream: &str, lines: &mut Lines) -> Result<Appended> {
    let Lines { bytes, count } = std::mem::take(lines);
    if count == 0 {
        return Ok(Appended::All);
    }
    let act = format!("append events to the stream {stream:?}");
    let query = [("stream", stream), ("time_field", "time"), ("type_field", "operation")];
    let path = ["v1", "events", "ndjson"];
    let (status, body) = server.post_lines(&act, &path, &query, bytes).await?;
    let is_report =
        matches!(status, StatusCode::OK | StatusCode::MULTI_STATUS | StatusCode::BAD_REQUEST);
    let report = serde_json::from_slice::<Report>(&body).ok().filter(|_| is_report);
    let Some(report) = report else { return Err(server.refused(&act, status, &body)) };
    outcome(&act, stream, count, &report)
}

fn outcome(act: &str, stream: &str, count: u64, report: &Report) -> Result<Appended> {
    let Report { accepted, duplicates, rejected, rejects } = report;
    let busy = |found: String| ConnectorError::Busy { act: act.to_owned(), source: found.into() };
    match rejects.first() {
        None if *rejected == 0 && accepted + duplicates == count => Ok(Appended::All),
        // The connection was lost before all of it was there.
        None => Err(busy(format!("{accepted} of {count} events arrived"))),
        Some(reject) if reject.reason.contains(OTHER) => Ok(Appended::Other),
        Some(reject) if reject.reason.contains(ELSEWHERE) => Err(busy(reject.reason.clone())),
        Some(Reject { line, reason }) => Err(ConnectorError::data(
            format!("event {line} of {count} for the stream {stream:?}"),
            format!("the server refuses it: {reason}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(report: serde_json::Value) -> Result<Appended> {
        outcome("append", "s", 3, &serde_json::from_value(report).unwrap())
    }

    #[test]
    fn lines_are_stored_only_if_the_server_counts_all_of_them() {
        let all = serde_json::json!({"accepted": 1, "duplicates": 2, "rejected": 0});
        assert_eq!(of(all).unwrap(), Appended::All);
        let cut = serde_json::json!({"accepted": 1, "duplicates": 1, "rejected": 0});
        assert!(of(cut).unwrap_err().is_retryable());
        let refused = |reason: &str| {
            let rejects = serde_json::json!([{"line": 2, "reason": reason}]);
            of(
                serde_json::json!({"accepted": 2, "duplicates": 0, "rejected": 1, "rejects": rejects}),
            )
        };
        let other = "an event with this id and other contents is stored already";
        assert_eq!(refused(other).unwrap(), Appended::Other);
        let elsewhere = "another request is storing an event with this id; send it again";
        assert!(refused(elsewhere).unwrap_err().is_retryable());
        let error = refused("it has no fields").unwrap_err();
        assert!(!error.is_retryable() && error.to_string().contains("event 2 of 3"), "{error}");
    }

    #[test]
    fn an_event_that_is_too_large_is_refused_before_it_is_sent() {
        let mut lines = Lines { bytes: vec![b'x'; EVENT_SIZE_MAX + 1], count: 0 };
        let error = lines.end(0, || "change 3 at 0/1".to_owned()).unwrap_err().to_string();
        assert!(error.contains("change 3 at 0/1 has 1048577 bytes"), "{error}");
        lines.end(1, || unreachable!("it is not too large")).unwrap();
        assert_eq!(lines.count, 1);
    }
}
