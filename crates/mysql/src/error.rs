//! The classes of errors: whether the connection was lost, whether a retry may help.
//!
//! Invariant: every code has at most one class.

use forebay_sdk::error::{Cause, ConnectorError};
use mysql_async::{DriverError, Error, IoError};

/// Classifies an error of a server or of the connection to it.
///
/// * `act`: what was attempted.
/// * `server`: its name in messages.
pub(crate) fn failure(act: impl Into<String>, server: &str, error: Error) -> ConnectorError {
    let act = act.into();
    let code = match &error {
        Error::Server(error) => Some(error.code),
        _ => None,
    };
    let is_io = matches!(
        error,
        Error::Io(_) | Error::Driver(DriverError::ConnectionClosed | DriverError::PacketOutOfOrder)
    );
    let source = cause(error);
    match code {
        Some(code) if ends_connection(code) => {
            ConnectorError::Unreachable { what: server.to_owned(), source }
        }
        Some(code) if passes(code) => ConnectorError::Busy { act, source },
        None if is_io => ConnectorError::Unreachable { what: server.to_owned(), source },
        _ => ConnectorError::Refused { act, source },
    }
}

/// The innermost error: the outer ones repeat its text.
fn cause(error: Error) -> Cause {
    match error {
        Error::Server(error) => error.into(),
        Error::Driver(error) => error.into(),
        Error::Io(IoError::Io(error)) => error.into(),
        Error::Io(IoError::Tls(error)) => error.into(),
        Error::Other(error) => error,
        Error::Url(error) => error.into(),
    }
}

/// The code of an error of the server.
pub(crate) fn code(error: &Error) -> Option<u16> {
    match error {
        Error::Server(error) => Some(error.code),
        _ => None,
    }
}

/// Whether a row was larger than the connection accepts.
pub(crate) fn is_too_large(error: &Error) -> bool {
    match error {
        Error::Driver(DriverError::PacketTooLarge) => true,
        Error::Io(IoError::Io(error)) => {
            error.get_ref().is_some_and(|source| source.to_string().contains("max_allowed_packet"))
        }
        _ => false,
    }
}

/// Whether the server is shutting down, or ended this connection.
fn ends_connection(code: u16) -> bool {
    // Shutdown, aborted, network errors, connection killed (MariaDB), disconnected for being idle (MySQL).
    matches!(code, 1053 | 1152 | 1158..=1161 | 1184 | 1927 | 2006 | 2013 | 4031)
}

/// Whether the server may succeed later.
fn passes(code: u16) -> bool {
    // Too many connections (1040, 1203, 1226), memory (1037, 1041), lock wait (1205), deadlock (1213), killed or
    // timed out (1317, 1907, 1969, 3024), a table whose definition has changed (1412, 1615), read-only (1792).
    matches!(
        code,
        1037 | 1040
            | 1041
            | 1203
            | 1205
            | 1213
            | 1226
            | 1317
            | 1412
            | 1615
            | 1792
            | 1907
            | 1969
            | 3024
    )
}

/// The code of a user who may not see the transactions of others.
pub(crate) const SPECIFIC_ACCESS_DENIED: u16 = 1227;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_has_at_most_one_class() {
        for code in 0..=u16::MAX {
            assert!(!(ends_connection(code) && passes(code)), "{code}");
        }
        assert!(ends_connection(1053) && passes(1317) && !passes(1045) && !ends_connection(1146));
    }

    #[test]
    fn the_text_of_a_server_is_not_repeated() {
        let message = "no such table".to_owned();
        let said = mysql_async::ServerError { code: 1146, message, state: "42S02".into() };
        let error = failure("read t", "MySQL", Error::Server(said));
        let text = forebay_base::error_chain::chain(&error).to_string();
        assert_eq!(text.matches("no such table").count(), 1, "{text}");
    }
}
