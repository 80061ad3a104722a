//! Errors of the server by their codes, and what they mean for a run.
//!
//! Codes: `src/Common/ErrorCodes.cpp` of ClickHouse, or `system.errors`.
//!
//! Invariant: a code has at most one class. What is shown of an answer has no control characters, and a limited length.

use forebay_base::printable::printable;
use forebay_sdk::error::{Cause, ConnectorError};

/// Number of characters of an answer in messages.
const SHOWN_MAX: usize = 600;

pub(crate) const UNKNOWN_TABLE: u32 = 60;
pub(crate) const UNKNOWN_DATABASE: u32 = 81;
pub(crate) const THROW_IF: u32 = 395;
/// Texts with which a statement fails because its run has lost its claim, or another load or attempt has begun.
pub(crate) const LOST: &str = "forebay: another run writes here";
pub(crate) const OUTDATED: &str = "forebay: another attempt has begun";

/// Why a request was not sent.
#[derive(Debug, thiserror::Error)]
#[error("no connection was made; check `url`, and whether the server runs")]
pub(crate) struct NotConnected(#[source] pub(crate) Cause);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failed {
    /// There was no answer, or not all of it. The request may have had its effect.
    #[error("no complete answer")]
    Lost {
        /// Whether it failed at once, so that sending it again costs little.
        is_quick: bool,
        /// Why there was no answer.
        source: Cause,
    },
    /// The server answered with an error.
    #[error("{text}")]
    Answered {
        /// The code of the error; `None` if something else than ClickHouse answered.
        code: Option<u32>,
        /// Whether something in front of the server answered that it is not available.
        is_gateway: bool,
        /// The answer, as it is shown.
        text: String,
    },
}

impl Failed {
    /// The error of an answer.
    ///
    /// * `code`: the header `x-clickhouse-exception-code`.
    pub(crate) fn answered(code: Option<&str>, status: u16, body: &[u8]) -> Self {
        let text = shown(body);
        let text = match text.is_empty() {
            true => format!("the server answered {status}"),
            false => text,
        };
        let code = code.and_then(|code| code.trim().parse().ok()).or_else(|| code_in(&text));
        Self::Answered { code, is_gateway: matches!(status, 429 | 502..=504), text }
    }

    /// The code, if the server answered with one.
    pub(crate) fn code(&self) -> Option<u32> {
        match self {
            Self::Answered { code, .. } => *code,
            Self::Lost { .. } => None,
        }
    }

    /// The same as the error of a connector.
    ///
    /// * `act`: what was attempted: `create table orders`.
    /// * `server`: its name in messages.
    pub(crate) fn into_error(self, act: &str, server: &str) -> ConnectorError {
        let act = act.to_owned();
        let (code, is_gateway, text) = match self {
            Self::Lost { source, .. } => {
                return ConnectorError::Unreachable { what: server.to_owned(), source };
            }
            Self::Answered { code, is_gateway, text } => (code, is_gateway, text),
        };
        if let Some((what, way_out)) = code.and_then(advice) {
            return ConnectorError::unsupported(format!("cannot {act}: {what} ({text})"), way_out);
        }
        match code {
            // A statement of an earlier attempt was still on its way.
            Some(THROW_IF) if text.contains(OUTDATED) => ConnectorError::Busy {
                act,
                source: "an earlier attempt to do so was still in progress".into(),
            },
            Some(THROW_IF) => ConnectorError::Refused {
                act,
                source: "another run has started to write there".into(),
            },
            Some(code) if passes(code) => ConnectorError::Busy { act, source: text.into() },
            None if is_gateway => ConnectorError::Busy { act, source: text.into() },
            _ => ConnectorError::Refused { act, source: text.into() },
        }
    }
}

/// Whether the same may succeed later.
fn passes(code: u32) -> bool {
    matches!(
        code,
        159     // TIMEOUT_EXCEEDED
        | 202   // TOO_MANY_SIMULTANEOUS_QUERIES
        | 209   // SOCKET_TIMEOUT
        | 210   // NETWORK_ERROR
        | 218   // TABLE_IS_DROPPED, by a replacement that is in progress
        | 236   // ABORTED: the server stops
        | 241   // MEMORY_LIMIT_EXCEEDED
        | 252   // TOO_MANY_PARTS
        | 290   // LIMIT_EXCEEDED
        | 394   // QUERY_WAS_CANCELLED
        | 439   // CANNOT_SCHEDULE_TASK
        | 473   // DEADLOCK_AVOIDED
        | 745   // SERVER_OVERLOADED
        | 999 // KEEPER_EXCEPTION
    )
}

/// What is wrong and what helps, where the server's text does not say it.
fn advice(code: u32) -> Option<(&'static str, &'static str)> {
    Some(match code {
        UNKNOWN_DATABASE => {
            ("there is no such database", "create it, or set `database` to another one")
        }
        192..=194 | 516 => {
            ("the server does not accept the user or the password", "set `user` and `password`")
        }
        497 => (
            "the user lacks a privilege",
            "grant it: docs/formats/pipeline-clickhouse.md lists what is needed",
        ),
        164 | 452 => (
            "the user's profile does not permit it",
            "use a user whose profile is not read-only and has no constraints on the settings of an INSERT",
        ),
        243 => ("the server has not enough space on its disk", "free or add space"),
        359 => (
            "the table is larger than the server permits to drop",
            "set max_table_size_to_drop in the server's configuration, or drop it there",
        ),
        _ => return None,
    })
}

/// The code in the text of an error: `Code: 60. DB::Exception: ...`.
fn code_in(text: &str) -> Option<u32> {
    let rest = text.strip_prefix("Code: ")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The beginning of an answer.
fn shown(body: &[u8]) -> String {
    let text =
        String::from_utf8_lossy(body.get(..body.len().min(SHOWN_MAX * 4)).unwrap_or_default());
    let text = text.trim();
    let shown: String = text.chars().take(SHOWN_MAX).collect();
    let more = if shown.len() < text.len() { "..." } else { "" };
    format!("{}{more}", printable(&shown))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(code: Option<&str>, status: u16, body: &str) -> ConnectorError {
        Failed::answered(code, status, body.as_bytes()).into_error("write t", "ClickHouse at x")
    }

    #[test]
    fn a_code_says_whether_trying_again_helps() {
        for (code, status, is_retryable) in [
            (Some("252"), 500, true),
            (Some("241"), 500, true),
            (Some("202"), 503, true),
            (Some("999"), 500, true),
            (Some("60"), 404, false),
            (Some("62"), 400, false),
            (Some("516"), 403, false),
            (Some("395"), 500, false),
            (Some("164"), 500, false),
            (None, 502, true),
            (None, 504, true),
            (None, 404, false),
            (None, 301, false),
        ] {
            assert_eq!(error(code, status, "x").is_retryable(), is_retryable, "{code:?} {status}");
        }
        let lost = Failed::Lost { is_quick: true, source: "cut".into() };
        let lost = lost.into_error("write t", "ClickHouse at x");
        assert!(matches!(lost, ConnectorError::Unreachable { .. }));
    }

    #[test]
    fn a_statement_that_came_too_late_says_whether_its_run_may_try_again() {
        let failed =
            |text: &str| error(Some("395"), 500, &format!("Code: 395. {text}: while executing"));
        assert!(failed(OUTDATED).is_retryable());
        assert!(!failed(LOST).is_retryable());
    }

    #[test]
    fn the_code_is_found_in_the_text_if_a_proxy_drops_the_header() {
        let body = "Code: 252. DB::Exception: Too many parts (TOO_MANY_PARTS)";
        assert_eq!(Failed::answered(None, 500, body.as_bytes()).code(), Some(252));
        assert_eq!(Failed::answered(None, 500, b"oops").code(), None);
    }

    #[test]
    fn what_the_user_can_change_is_said() {
        for (code, word) in [("81", "database"), ("516", "`password`"), ("497", "privilege")] {
            let text = error(Some(code), 500, "x").to_string();
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn an_answer_is_shown_without_control_characters_and_not_as_a_whole() {
        let body = format!("a\x1b[31m\nb{}", "ü".repeat(2_000));
        let text = Failed::answered(None, 500, body.as_bytes()).to_string();
        assert!(!text.contains('\x1b') && !text.contains('\n') && text.chars().count() < 700);
    }
}
