//! The columns that a load began with, in its fingerprint.
//!
//! ```text
//! 16 digits: the settings (`open`)   16 digits: the columns that are written   JSON: the columns that are read
//! ```
//!
//! A load only continues with the columns that are written. Those that are read are listed by name and
//! type, so that a load that was interrupted before its source gained or lost a column can be completed.
//! Loads of earlier versions have no list.

use forebay_pgcopy::Column;
use forebay_sdk::connector::Load;
use xxhash_rust::xxh3::xxh3_64;

/// Length of the two hashes.
const HASHES: usize = 32;

/// The columns of a source, as a load records them.
pub(super) fn recorded(columns: &[Column]) -> String {
    let columns: Vec<(&str, &str)> =
        columns.iter().map(|column| (&*column.name, &*column.sql_type)).collect();
    serde_json::to_string(&columns).unwrap_or_default()
}

/// The fingerprint of a load.
///
/// * `settings`: the hash of the settings.
/// * `written`: the columns that are written.
/// * `read`: those of the source, [`recorded`].
pub(super) fn fingerprint(settings: &str, written: &[Column], read: &str) -> String {
    let said: String =
        written.iter().map(|column| format!("{:?} {:?};", column.name, column.sql_type)).collect();
    format!("{settings}{:016x}{read}", xxh3_64(said.as_bytes()))
}

/// Whether two loads have the same settings and write the same columns.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    let hashes = |text: &str| text.get(..HASHES).map(ToOwned::to_owned);
    hashes(one) == hashes(other)
}

/// Whether these columns are among those that a load began to read.
pub(super) fn is_part(fingerprint: &str, columns: &[Column]) -> bool {
    let read = fingerprint.get(HASHES..).unwrap_or_default();
    let began: Vec<(String, String)> = serde_json::from_str(read).unwrap_or_default();
    let is_in = |column: &Column| {
        began.iter().any(|(name, of)| *name == column.name && *of == column.sql_type)
    };
    columns.iter().all(is_in)
}

/// The names of the columns to read so that a load continues with those it began with: `None` if the
/// source still has exactly these, or the load does not list them.
pub(super) fn began_with(load: &Load, now: &[Column]) -> Option<Vec<String>> {
    let read = load.fingerprint.get(HASHES..).filter(|read| !read.is_empty())?;
    if *read == recorded(now) {
        return None;
    }
    let began: Vec<(String, String)> = serde_json::from_str(read).ok()?;
    let is_there = |name: &String| now.iter().any(|column| column.name == *name);
    let names: Vec<String> = began.into_iter().map(|(name, _)| name).filter(is_there).collect();
    let is_all = names.iter().eq(now.iter().map(|column| &column.name));
    (!names.is_empty() && !is_all).then_some(names)
}

#[cfg(test)]
mod tests {
    use forebay_pgcopy::Wire;

    use super::*;

    fn columns(names: &[&str]) -> Vec<Column> {
        let column = |name: &&str| Column {
            name: (*name).to_owned(),
            sql_type: "text".into(),
            wire: Wire::Text,
            nullable: true,
        };
        names.iter().map(column).collect()
    }

    fn load(fingerprint: String) -> Load {
        Load {
            id: "1".into(),
            fingerprint,
            units: Vec::new(),
            since: None,
            is_stable: true,
            round: forebay_sdk::connector::Round::default(),
            is_finished: false,
            cursor: None,
        }
    }

    #[test]
    fn a_load_continues_with_the_columns_it_began_with() {
        let began = columns(&["a", "b"]);
        let load = load(fingerprint("0123456789abcdef", &began, &recorded(&began)));
        let names = |now: &[&str]| began_with(&load, &columns(now));
        assert_eq!(names(&["a", "b"]), None);
        assert_eq!(names(&["new", "b", "a"]), Some(vec!["a".to_owned(), "b".to_owned()]));
        assert_eq!(names(&["b", "new"]), Some(vec!["b".to_owned()]));
        assert_eq!(names(&["new"]), None, "nothing is left of them");
        assert!(is_part(&load.fingerprint, &columns(&["b"])));
        assert!(!is_part(&load.fingerprint, &columns(&["b", "new"])));
        let mut changed = columns(&["b"]);
        changed[0].sql_type = "bigint".into();
        assert!(!is_part(&load.fingerprint, &changed), "its values would be others");
    }

    #[test]
    fn a_load_of_an_earlier_version_lists_no_columns() {
        let began = columns(&["a"]);
        let old = load(fingerprint("0123456789abcdef", &began, ""));
        assert_eq!(began_with(&old, &columns(&["a", "b"])), None);
        assert!(is_same(&old.fingerprint, &fingerprint("0123456789abcdef", &began, "[]")));
        assert!(!is_same(&old.fingerprint, &fingerprint("0123456789abcdef", &[], "")));
    }
}
