//! What can be wrong with a replication connection and its messages.

use std::fmt;

use fallible_iterator::FallibleIterator as _;
use postgres_protocol::message::backend::ErrorFields;
use tokio_postgres::error::SqlState;

/// Why a message of a replication connection cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplicationError {
    /// Its bytes are not those of a message.
    #[error("the server sent {what} that is invalid: {found}")]
    Malformed {
        /// The message or a part of it.
        what: &'static str,
        /// The fault.
        found: String,
    },
    /// It is valid, but not at this point.
    #[error("the server sent {what} {found}")]
    Unexpected {
        /// The message.
        what: &'static str,
        /// Where: `outside of a transaction`.
        found: String,
    },
}

/// A [`ReplicationError::Malformed`].
pub(super) fn malformed(what: &'static str, found: impl Into<String>) -> ReplicationError {
    ReplicationError::Malformed { what, found: found.into() }
}

/// Why a session of a replication connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The server refused.
    #[error("{0}")]
    Refused(ServerMessage),
    /// The server asks for a password, and none was set.
    #[error("the server asks for a password, and none is set")]
    NoPassword,
    /// What was to be sent, or what the server asks for, is not supported.
    #[error("{0} is not supported")]
    Unsupported(&'static str),
    /// The messages of the server are not those of the protocol, or a log-in failed its checks.
    #[error("the server does not follow the protocol")]
    Protocol(#[source] std::io::Error),
    /// A message of the replication is invalid.
    #[error(transparent)]
    Message(#[from] ReplicationError),
}

impl SessionError {
    pub(super) fn protocol(error: std::io::Error) -> Self {
        Self::Protocol(error)
    }
}

/// An error or a notice of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerMessage {
    severity: String,
    /// Its code.
    pub code: SqlState,
    /// Its text.
    pub message: String,
    detail: Option<String>,
    hint: Option<String>,
}

impl ServerMessage {
    /// Whether the server closes the connection after it.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        matches!(self.severity.as_str(), "FATAL" | "PANIC")
    }

    pub(super) fn of(fields: &mut ErrorFields<'_>) -> Result<Self, SessionError> {
        let mut message = Self {
            severity: String::new(),
            code: SqlState::INTERNAL_ERROR,
            message: String::new(),
            detail: None,
            hint: None,
        };
        while let Some(field) = fields.next().map_err(SessionError::protocol)? {
            let text = String::from_utf8_lossy(field.value_bytes());
            match field.type_() {
                b'V' => message.severity = text.into_owned(),
                b'C' => message.code = SqlState::from_code(&text),
                b'M' => message.message = text.into_owned(),
                b'D' => message.detail = Some(text.into_owned()),
                b'H' => message.hint = Some(text.into_owned()),
                _ => {}
            }
        }
        Ok(message)
    }
}

/// As `tokio_postgres` prints the errors of a server.
impl fmt::Display for ServerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.severity, self.message)?;
        if let Some(detail) = &self.detail {
            write!(f, "\nDETAIL: {detail}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\nHINT: {hint}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ServerMessage {}
