//! Names: which namespaces are allowed, and how a field's path becomes a column's name.
//!
//! Invariants:
//! * A namespace is checked before it becomes a table or a path ([`check_namespace`]).
//! * A column's name is never taken from data; it is *made* from it ([`normalise_identifier`])
//!   out of `a-z0-9_`, and never starts with `_`, which is left to the sinks' own columns.
//! * Whatever reaches SQL is quoted all the same (`quote_identifier` of `forebay-pgcopy`).

/// The longest namespace, in bytes.
pub const NAMESPACE_LEN_MAX: usize = 128;
/// The longest column name, in bytes: what PostgreSQL keeps of a name.
pub const IDENTIFIER_LEN_MAX: usize = 63;
/// The longest field path that can get a column, in bytes.
pub const PATH_LEN_MAX: usize = 1024;
/// How many bytes of a name are shown in an error.
const SHOWN_LEN_MAX: usize = 64;
/// `_` and eight hexadecimal digits.
const TAG_LEN: usize = 9;

/// Checks that `namespace` is 1 to [`NAMESPACE_LEN_MAX`] bytes of `a-z`, `0-9`, `.`, `_` and `-`.
///
/// # Errors
/// The fault.
pub fn check_namespace(namespace: &str) -> Result<(), &'static str> {
    if namespace.is_empty() {
        return Err("the name of a namespace is empty");
    }
    if namespace.len() > NAMESPACE_LEN_MAX {
        return Err("the name of a namespace has more than 128 bytes");
    }
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'_' | b'-');
    if !namespace.bytes().all(allowed) {
        return Err("the name of a namespace may contain only a-z, 0-9, '.', '_' and '-'");
    }
    Ok(())
}

/// Turns a field's path into a column name: lower case, `a-z0-9_`, at most
/// [`IDENTIFIER_LEN_MAX`] bytes, starting with a letter. The same path gives the same name always.
///
/// Every run of other characters becomes one `_`. A name that starts with a digit gets the prefix
/// `f_`; a path with nothing usable becomes `field_` and a tag made from the whole path; a long
/// one is cut and ends in such a tag. Different paths may give the same name, which
/// [`distinct_identifier`] settles.
#[must_use]
pub fn normalise_identifier(path: &str) -> String {
    // A few bytes more than can be kept are enough to know that the name is too long.
    let mut name = String::with_capacity(IDENTIFIER_LEN_MAX + 1);
    for c in path.chars() {
        match c {
            'a'..='z' | '0'..='9' => name.push(c),
            'A'..='Z' => name.push(c.to_ascii_lowercase()),
            _ if !name.is_empty() && !name.ends_with('_') => name.push('_'),
            _ => {}
        }
        if name.len() > IDENTIFIER_LEN_MAX {
            break;
        }
    }
    if name.len() <= IDENTIFIER_LEN_MAX {
        name.truncate(name.trim_end_matches('_').len());
    }
    if name.is_empty() {
        return format!("field{}", tag(path));
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert_str(0, "f_");
    }
    if name.len() > IDENTIFIER_LEN_MAX {
        name.truncate(IDENTIFIER_LEN_MAX - TAG_LEN);
        name.truncate(name.trim_end_matches('_').len());
        name.push_str(&tag(path));
    }
    name
}

/// `normalise_identifier(path)`, with the first of `_2`, `_3`, ... appended that makes it a name
/// `taken` does not know.
#[must_use]
pub fn distinct_identifier(path: &str, taken: impl Fn(&str) -> bool) -> String {
    let name = normalise_identifier(path);
    if !taken(&name) {
        return name;
    }
    let mut number: u32 = 2;
    loop {
        let suffix = format!("_{number}");
        let stem = &name[..name.len().min(IDENTIFIER_LEN_MAX - suffix.len())];
        let candidate = format!("{stem}{suffix}");
        if !taken(&candidate) {
            return candidate;
        }
        number += 1;
    }
}

/// As much of `name` as fits into a message.
#[must_use]
pub fn shown(name: &str) -> String {
    if name.len() <= SHOWN_LEN_MAX {
        return name.to_owned();
    }
    let end = (0..=SHOWN_LEN_MAX).rev().find(|&at| name.is_char_boundary(at)).unwrap_or(0);
    format!("{}...", &name[..end])
}

/// `_` and 32 bits of the path's FNV-1a hash
/// (<http://www.isthe.com/chongo/tech/comp/fnv/>): short, stable across versions and machines.
fn tag(path: &str) -> String {
    let hash = path
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("_{hash:08x}")
}
