//! Classification of the errors of MongoDB, the same for whatever is done with a server.
//!
//! Invariant: the class of a failure follows from its kind, its code and its labels, never from its
//! text.

use forebay_sink::ServerError;
use mongodb::error::{Error, ErrorKind, RETRYABLE_ERROR, RETRYABLE_WRITE_ERROR, WriteFailure};

/// Codes of transient errors
/// (<https://github.com/mongodb/mongo/blob/master/src/mongo/base/error_codes.yml>).
pub const TRANSIENT_CODES: [i32; 27] = [
    // A network between servers: HostUnreachable, HostNotFound, NetworkTimeout,
    // NetworkInterfaceExceededTimeLimit, ConnectionPoolExpired, SocketException.
    6, 7, 89, 202, 317, 9001,
    // A member that is not, or no longer, or not yet the primary, or shuts down: ShutdownInProgress,
    // FailedToSatisfyReadPreference, ReadConcernMajorityNotAvailableYet, PrimarySteppedDown,
    // LegacyNotPrimary, NotWritablePrimary, InterruptedAtShutdown,
    // InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary.
    91, 133, 134, 189, 10_058, 10_107, 11_600, 11_602, 13_435, 13_436,
    // Time: MaxTimeMSExpired, WriteConcernTimeout, ExceededTimeLimit.
    50, 64, 262,
    // Others: a cursor that was closed while idle (CursorNotFound), WriteConflict,
    // InternalTransactionNotSupported.
    43, 112, 358,
    // Capacity: TemporarilyUnavailable, ResourceExhausted,
    // PooledConnectionAcquisitionExceededTimeLimit, AdmissionQueueOverflow, RateLimitExceeded.
    365, 402, 407, 433, 449,
];
/// The code of a duplicate key.
pub const DUPLICATE_KEY: i32 = 11_000;
/// The code of an unknown command or option.
const NOT_IMPLEMENTED: i32 = 238;
/// The codes of a missing collection and a missing index.
const NOT_FOUND: [i32; 2] = [26, 27];

/// A server's error in its own words, without the driver's additions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// The message; see [`message`].
    pub message: String,
    /// The code, if the server gave one; see [`code`].
    pub code: Option<i32>,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Answer {}

impl From<&Error> for Answer {
    fn from(error: &Error) -> Answer {
        Answer { message: message(error), code: code(error) }
    }
}

/// Classifies an error. Its source is an [`Answer`].
///
/// * `act`: what was attempted.
/// * `server`: at what, without any secret.
#[must_use]
pub fn failure(act: impl Into<String>, server: impl Into<String>, error: &Error) -> ServerError {
    let (act, server, source) = (act.into(), server.into(), Answer::from(error).into());
    let is_passing = code(error).is_some_and(passes)
        || [RETRYABLE_WRITE_ERROR, RETRYABLE_ERROR].iter().any(|label| error.contains_label(label));
    if is_of_network(error) {
        ServerError::Unreachable { act, server, source }
    } else if is_passing {
        ServerError::Busy { act, server, source }
    } else {
        ServerError::Refused { act, server, source }
    }
}

/// Whether the connection failed, not the server.
#[must_use]
pub fn is_of_network(error: &Error) -> bool {
    matches!(
        *error.kind,
        ErrorKind::Io(_)
            | ErrorKind::ConnectionPoolCleared { .. }
            | ErrorKind::ServerSelection { .. }
            | ErrorKind::DnsResolve { .. }
            | ErrorKind::Shutdown
    )
}

/// Whether a server that answers with this code may succeed later.
#[must_use]
pub fn passes(code: i32) -> bool {
    TRANSIENT_CODES.contains(&code)
}

/// The code of a server's error, if it gave one. Of several, one that is not of a duplicate key.
#[must_use]
pub fn code(error: &Error) -> Option<i32> {
    match error.kind.as_ref() {
        ErrorKind::Command(error) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteError(error)) => Some(error.code),
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => Some(error.code),
        ErrorKind::InsertMany(error) => {
            let concern = error.write_concern_error.as_ref().map(|error| error.code);
            let codes = || error.write_errors.iter().flatten().map(|error| error.code);
            let other = codes().find(|code| *code != DUPLICATE_KEY);
            concern.or(other).or_else(|| codes().next())
        }
        _ => None,
    }
}

/// The message of an error, with the name of its code.
#[must_use]
pub fn message(error: &Error) -> String {
    let named = |message: &str, name: &str| match name {
        "" => message.to_owned(),
        name => format!("{message} ({name})"),
    };
    match error.kind.as_ref() {
        ErrorKind::Command(error) => named(&error.message, &error.code_name),
        ErrorKind::Write(WriteFailure::WriteError(error)) => {
            named(&error.message, error.code_name.as_deref().unwrap_or_default())
        }
        ErrorKind::Write(WriteFailure::WriteConcernError(error)) => {
            named(&error.message, &error.code_name)
        }
        ErrorKind::InsertMany(failed) => {
            let mut errors = failed.write_errors.iter().flatten();
            let other = errors.clone().find(|error| error.code != DUPLICATE_KEY);
            match (&failed.write_concern_error, other.or_else(|| errors.next())) {
                (Some(error), _) => named(&error.message, &error.code_name),
                (None, Some(error)) => {
                    named(&error.message, error.code_name.as_deref().unwrap_or_default())
                }
                (None, None) => "no reason given".to_owned(),
            }
        }
        kind => kind.to_string(),
    }
}

/// Whether the server does not support what was requested.
#[must_use]
pub fn is_not_implemented(error: &Error) -> bool {
    code(error) == Some(NOT_IMPLEMENTED)
}

/// Whether the server reported that a collection or an index does not exist.
#[must_use]
pub fn is_not_found(error: &Error) -> bool {
    code(error).is_some_and(|code| NOT_FOUND.contains(&code))
}

/// Whether all that was refused has a key that is there already.
#[must_use]
pub fn is_duplicate(error: &Error) -> bool {
    code(error) == Some(DUPLICATE_KEY)
}

#[cfg(test)]
mod tests {
    use std::io;

    use serde_json::{Value, json};

    use super::*;

    fn command(answer: Value) -> Error {
        ErrorKind::Command(serde_json::from_value(answer).unwrap()).into()
    }

    fn insert(answer: Value) -> Error {
        ErrorKind::InsertMany(serde_json::from_value(answer).unwrap()).into()
    }

    fn write(answer: Value) -> Error {
        let error = WriteFailure::WriteError(serde_json::from_value(answer).unwrap());
        ErrorKind::Write(error).into()
    }

    /// Unreachable, busy or refused; the code; and the message.
    fn classified(error: &Error) -> (char, Option<i32>, String) {
        let (class, source) = match failure("write", "a server", error) {
            ServerError::Unreachable { source, .. } => ('u', source),
            ServerError::Busy { source, .. } => ('b', source),
            ServerError::Refused { source, .. } => ('r', source),
            other => panic!("{other}"),
        };
        let answer = source.downcast::<Answer>().unwrap();
        (class, answer.code, answer.message)
    }

    #[test]
    fn a_command_is_classified_by_its_code() {
        let named =
            |code: i32| command(json!({ "code": code, "codeName": "Name", "errmsg": "it failed" }));
        for code in TRANSIENT_CODES {
            let expected = ('b', Some(code), "it failed (Name)".to_owned());
            assert_eq!(classified(&named(code)), expected);
        }
        for code in [0, 2, 13, 18, 26, 121, 238, DUPLICATE_KEY] {
            assert_eq!(classified(&named(code)).0, 'r', "{code}");
        }
        let bare = command(json!({ "code": 2, "errmsg": "it failed" }));
        assert_eq!(classified(&bare), ('r', Some(2), "it failed".to_owned()));
    }

    #[test]
    fn of_many_rows_what_is_no_duplicate_decides() {
        let row = |code: i32| json!({ "index": 0, "code": code, "errmsg": code.to_string() });
        let rows = |rows: Vec<Value>| insert(json!({ "writeErrors": rows }));
        let duplicates = rows(vec![row(DUPLICATE_KEY), row(DUPLICATE_KEY)]);
        assert_eq!(classified(&duplicates), ('r', Some(DUPLICATE_KEY), "11000".to_owned()));
        assert!(is_duplicate(&duplicates));
        let mixed = rows(vec![row(DUPLICATE_KEY), row(112), row(DUPLICATE_KEY)]);
        assert_eq!(classified(&mixed), ('b', Some(112), "112".to_owned()));
        assert!(!is_duplicate(&mixed));
        let concern = insert(json!({
            "writeErrors": [row(121)],
            "writeConcernError": { "code": 64, "codeName": "", "errmsg": "not confirmed" },
        }));
        assert_eq!(classified(&concern), ('b', Some(64), "not confirmed".to_owned()));
        assert_eq!(classified(&insert(json!({}))), ('r', None, "no reason given".to_owned()));
    }

    #[test]
    fn a_single_write_is_classified_as_many_are() {
        let error = write(json!({ "code": DUPLICATE_KEY, "errmsg": "twice" }));
        assert_eq!(classified(&error), ('r', Some(DUPLICATE_KEY), "twice".to_owned()));
        assert!(is_duplicate(&error));
        let error = write(json!({ "code": 112, "codeName": "WriteConflict", "errmsg": "both" }));
        assert_eq!(classified(&error), ('b', Some(112), "both (WriteConflict)".to_owned()));
    }

    #[test]
    fn what_is_missing_or_unknown_is_recognised() {
        let of = |code: i32| command(json!({ "code": code, "errmsg": "" }));
        assert!(is_not_found(&of(26)) && is_not_found(&of(27)) && !is_not_found(&of(238)));
        assert!(is_not_implemented(&of(238)) && !is_not_implemented(&of(26)));
    }

    #[test]
    fn a_connection_that_failed_is_unreachable() {
        let lost: Error = io::Error::from(io::ErrorKind::ConnectionReset).into();
        let (class, code, message) = classified(&lost);
        assert_eq!((class, code), ('u', None));
        assert!(message.contains("I/O error") && !message.contains("labels"), "{message}");
        assert_eq!(classified(&ErrorKind::Shutdown.into()).0, 'u');
        assert_eq!(classified(&Error::custom("x".to_owned())).0, 'r');
    }
}
