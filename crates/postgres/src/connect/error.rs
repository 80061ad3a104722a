//! The classes of errors: whether the connection was lost, whether a retry may help, whether they concern rows.
//!
//! Invariant: every code has at most one class.

use forebay_base::ServerError;
use tokio_postgres::error::SqlState;

/// Classifies an error of a server.
///
/// * `act`: what was attempted.
/// * `server`: [`Server::name`](super::Server::name), or a part of it.
#[must_use]
pub fn failure(
    act: impl Into<String>,
    server: impl Into<String>,
    error: tokio_postgres::Error,
) -> ServerError {
    let code = error.as_db_error().map(|error| error.code().clone());
    let is_io = error.is_closed() || is_io(&error);
    classified(act.into(), server.into(), code.as_ref(), is_io, error.into())
}

/// An error with this code, or without one.
///
/// * `is_io`: whether an error without a code is of the connection.
pub(crate) fn classified(
    act: String,
    server: String,
    code: Option<&SqlState>,
    is_io: bool,
    source: Box<dyn std::error::Error + Send + Sync>,
) -> ServerError {
    let (is_lost, is_passing) = match code {
        Some(code) => (ends_connection(code), passes(code)),
        None => (is_io, false),
    };
    if is_lost {
        ServerError::Unreachable { act, server, source }
    } else if is_passing {
        ServerError::Busy { act, server, source }
    } else {
        ServerError::Refused { act, server, source }
    }
}

/// Whether the connection failed, not the server.
fn is_io(error: &tokio_postgres::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        if source.is::<std::io::Error>() {
            return true;
        }
        cause = source.source();
    }
    false
}

/// Whether the server is shutting down, or still starting.
fn ends_connection(code: &SqlState) -> bool {
    // Class 08: connection.
    let is_connection = code.code().starts_with("08");
    let gone = [SqlState::ADMIN_SHUTDOWN, SqlState::CRASH_SHUTDOWN, SqlState::CANNOT_CONNECT_NOW];
    is_connection || gone.contains(code)
}

/// Whether the server may succeed later.
fn passes(code: &SqlState) -> bool {
    // Class 53: resources.
    let is_resource = code.code().starts_with("53");
    let passing = [
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::LOCK_NOT_AVAILABLE,
        SqlState::QUERY_CANCELED,
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ];
    is_resource || passing.contains(code)
}

/// Whether the server refused to convert a text to the client's encoding, or from it.
#[must_use]
pub fn is_of_encoding(error: &tokio_postgres::Error) -> bool {
    let of = [SqlState::CHARACTER_NOT_IN_REPERTOIRE, SqlState::UNTRANSLATABLE_CHARACTER];
    error.code().is_some_and(|code| of.contains(code))
}

/// Whether the server refused the rows: their values, or constraints they violate.
#[must_use]
pub fn is_of_data(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(concerns_data)
}

fn concerns_data(code: &SqlState) -> bool {
    // Class 22: data exception, 23: integrity constraint violation.
    code.code().starts_with("22") || code.code().starts_with("23")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a code ends the connection, passes, and concerns the data.
    fn classes(code: &str) -> [bool; 3] {
        let code = SqlState::from_code(code);
        [ends_connection(&code), passes(&code), concerns_data(&code)]
    }

    #[test]
    fn a_code_has_at_most_one_class() {
        for code in ["08000", "08006", "57P01", "57P02", "57P03"] {
            assert_eq!(classes(code), [true, false, false], "{code}");
        }
        for code in ["40001", "40P01", "53100", "53300", "55P03", "57014", "25006"] {
            assert_eq!(classes(code), [false, true, false], "{code}");
        }
        for code in ["22001", "22P02", "23505", "23514"] {
            assert_eq!(classes(code), [false, false, true], "{code}");
        }
        for code in ["28P01", "3D000", "42501", "42P01", "0A000", "XX000"] {
            assert_eq!(classes(code), [false; 3], "{code}");
        }
    }
}
