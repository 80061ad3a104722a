//! Names of streams and columns, as names of collections and fields.
//!
//! Invariant: streams of different names have collections of different names, none of which belongs
//! to the server or the ledger.

use forebay_pgcopy::Column;
use xxhash_rust::xxh3::xxh3_128;

use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;

/// Prefix of the names of the ledger's collections.
pub(super) const OURS: &str = "_forebay_";
/// Maximum length of a collection's name, so that with its database it stays below the server's
/// limit.
const NAME_SIZE_MAX: usize = 180;

/// The collection of a stream. Characters that are not allowed in its name, or at that position,
/// are written as `%XX`, and so is `%` itself.
///
/// # Errors
/// An empty name, or one that is too long.
pub(super) fn collection(into: &str) -> Result<String> {
    let mut name = String::with_capacity(into.len());
    let is_reserved = into.starts_with("system.") || into.starts_with(OURS);
    for (at, character) in into.char_indices() {
        let is_end = at == 0 || at + character.len_utf8() == into.len();
        let is_written = matches!(character, '%' | '$' | '\0')
            || (character == '.' && is_end)
            || (at == 0 && is_reserved);
        match is_written {
            true => name.push_str(&format!("%{:02X}", u32::from(character))),
            false => name.push(character),
        }
    }
    if name.is_empty() || name.len() > NAME_SIZE_MAX {
        return Err(ConnectorError::unsupported(
            format!("a collection cannot be named {into:?}"),
            format!("give it a name of 1 to {NAME_SIZE_MAX} bytes, with `into`"),
        ));
    }
    Ok(name)
}

/// Checks that columns can be fields, and that their names are unique.
pub(super) fn check_columns(columns: &[Column]) -> Result<()> {
    let refuse = |what: String| {
        Err(ConnectorError::unsupported(what, "rename it in a transform, or remove it"))
    };
    for Column { name, .. } in columns {
        if name.is_empty() || name.starts_with('$') || name.contains(['.', '\0']) {
            return refuse(format!("a field of MongoDB cannot be named {name:?}"));
        }
    }
    let mut names: Vec<&str> = columns.iter().map(|column| &*column.name).collect();
    names.sort_unstable();
    match names.array_windows().find(|[one, next]| one == next) {
        Some([twice, _]) => refuse(format!("two columns are named {twice:?}")),
        None => Ok(()),
    }
}

/// A hash in hexadecimal that represents names where these are not allowed.
pub(super) fn digits_of(names: &[&str]) -> String {
    let mut bytes = Vec::new();
    for name in names {
        bytes.extend_from_slice(&(name.len() as u64).to_le_bytes());
        bytes.extend_from_slice(name.as_bytes());
    }
    format!("{:032x}", xxh3_128(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_a_server_refuses_are_written_otherwise_and_never_alike() {
        for (into, name) in [
            ("orders", "orders"),
            ("a.b", "a.b"),
            ("../up", "%2E./up"),
            ("a.", "a%2E"),
            ("a%2Fb", "a%252Fb"),
            ("system.users", "%73ystem.users"),
            ("_forebay_ledger", "%5Fforebay_ledger"),
            ("_x", "_x"),
            ("größe ✓ $", "größe ✓ %24"),
        ] {
            assert_eq!(collection(into).unwrap(), name);
        }
        assert!(collection("").is_err());
        assert!(collection(&"x".repeat(400)).is_err());
    }

    #[test]
    fn digits_tell_where_one_name_ends() {
        assert_ne!(digits_of(&["ab", "c"]), digits_of(&["a", "bc"]));
    }
}
