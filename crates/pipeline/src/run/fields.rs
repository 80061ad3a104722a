//! The fields of a cursor: recorded with the load, and compared by the next run.
//!
//! The last value of one column says nothing about another one: rows would be skipped.

use forebay_sdk::ConnectorError;
use forebay_sdk::connector::Cursor;
use forebay_sdk::settings::StreamSettings;

/// The fields of an incremental stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    field: String,
    tie_breaker: Option<String>,
}

/// The configured fields.
pub(super) fn of(stream: &StreamSettings) -> Option<Fields> {
    let field = stream.cursor_field.clone()?;
    Some(Fields { field, tie_breaker: stream.tie_breaker_field.clone() })
}

/// The cursor with its fields. A source may have chosen the tie-breaker.
pub(super) fn record(cursor: Cursor, fields: Option<Fields>) -> Cursor {
    let Some(Fields { field, tie_breaker }) = fields else { return cursor };
    let chosen = cursor.tie_breaker_field.clone();
    Cursor { field: Some(field), tie_breaker_field: chosen.or(tie_breaker), ..cursor }
}

/// Fails if the last run was read by other fields.
pub(super) fn check(since: &Cursor, stream: &StreamSettings) -> Result<(), ConnectorError> {
    let changed = |setting: &str, before: Option<&str>, now: Option<&str>| {
        let (before, now) = (before?, now?);
        (before != now).then(|| {
            ConnectorError::unsupported(
                format!(
                    "the last run read {} by {before:?}, but `{setting}` is {now:?} now: its last value \
                     does not say which rows are new",
                    stream.name
                ),
                format!(
                    "restore `{setting}: {before}`, or remove the rows at the destination and run \
                     `forebay pipeline reset`, so that everything is copied again"
                ),
            )
        })
    };
    let (field, tie_breaker) = (since.field.as_deref(), since.tie_breaker_field.as_deref());
    let field = changed("cursor_field", field, stream.cursor_field.as_deref());
    let now = stream.tie_breaker_field.as_deref();
    let tie_breaker = changed("tie_breaker_field", tie_breaker, now);
    match field.or(tie_breaker) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(field: &str, tie_breaker: Option<&str>) -> StreamSettings {
        let stream = serde_json::json!({
            "name": "t", "sync_mode": "incremental", "cursor_field": field,
            "tie_breaker_field": tie_breaker,
        });
        serde_json::from_value(stream).unwrap()
    }

    #[test]
    fn a_cursor_of_other_fields_is_refused() {
        let last = Cursor::new("7".into(), Some("1".into()));
        assert!(check(&last, &stream("at", None)).is_ok(), "an earlier version recorded no fields");
        let last = record(last, of(&stream("id", Some("n"))));
        for (field, tie_breaker, is_same) in [
            ("id", Some("n"), true),
            ("id", None, true),
            ("at", Some("n"), false),
            ("id", Some("m"), false),
        ] {
            let checked = check(&last, &stream(field, tie_breaker));
            assert_eq!(checked.is_ok(), is_same, "{field} {tie_breaker:?}: {checked:?}");
        }
        let error = check(&last, &stream("at", None)).unwrap_err().to_string();
        assert!(error.contains("`cursor_field` is \"at\" now"), "{error}");
        assert!(error.contains("forebay pipeline reset"), "{error}");
    }
}
