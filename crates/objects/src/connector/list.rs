//! Listing the files of a stream: its name is a file, a directory or a pattern.
//!
//! Files are sorted by name, so that a stream of the same files is always divided into the same
//! units.

use forebay_sdk::connector::Cursor;
use forebay_sdk::error::ConnectorError;
use glob::{MatchOptions, Pattern};

use super::location::{Listed, Location};

/// How patterns match: `*` does not cross directories, `**` does.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};

/// The files of a stream.
pub(super) struct Files {
    pub(super) files: Vec<Listed>,
    /// Number of files in a directory that have other suffixes.
    pub(super) left_out: usize,
}

impl Files {
    /// A note about files that are not read.
    ///
    /// * `endings`: the suffixes of those that are.
    pub(super) fn note(&self, endings: &[&str]) -> Option<String> {
        let endings: Vec<String> = endings.iter().map(|ending| format!(".{ending}")).collect();
        (self.left_out > 0).then(|| {
            format!(
                "{} files without the suffix {} are left out",
                self.left_out,
                endings.join(" or ")
            )
        })
    }
}

/// The files of a stream, with one of these suffixes if the name is a directory.
pub(super) fn files(
    place: &Location,
    stream: &str,
    endings: &[&str],
) -> Result<Files, ConnectorError> {
    let parts: Vec<&str> = stream.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if stream.starts_with('/') || parts.contains(&"..") {
        return Err(ConnectorError::unsupported(
            format!("the name {stream:?} leads outside {}", place.display("").display()),
            "set `path` to a directory above the files, and name them relative to it",
        ));
    }
    let is_pattern = |part: &&&str| part.contains(['*', '?', '[']);
    let plain = parts.iter().take_while(|part| !is_pattern(part)).count();
    let (base, rest) = parts.split_at(plain);
    let base = base.join("/");
    let mut files = place.list(&base)?;
    let mut left_out = 0;
    if rest.is_empty() {
        let all = files.len();
        files.retain(|file| file.name == base || has_ending(&file.name, endings));
        left_out = all - files.len();
    } else {
        let whole = parts.join("/");
        let pattern = Pattern::new(&whole).map_err(|error| ConnectorError::Refused {
            act: format!("use {stream:?} as a pattern of files"),
            source: error.into(),
        })?;
        files.retain(|file| pattern.matches_with(&file.name, MATCHING));
    }
    Ok(Files { files, left_out })
}

/// Whether a name has one of these suffixes, whatever its compression.
pub(super) fn has_ending(name: &str, endings: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    let name = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".zst")).unwrap_or(&name);
    endings.iter().any(|ending| {
        name.strip_suffix(ending).is_some_and(|stem| stem.ends_with('.') && stem.len() > 1)
    })
}

/// The cursor of the newest file: its modification time, then its name, and the number of files up to
/// it, which are all.
pub(super) fn cursor(files: &[Listed]) -> Option<Cursor> {
    let newest = files.iter().max_by_key(|file| (file.modified_ns, &file.name))?;
    let cursor = Cursor::new(newest.modified_ns.to_string(), Some(newest.name.clone()));
    Some(Cursor { rows_at: Some(files.len() as u64), ..cursor })
}

/// Number of files that were added at or before a cursor since it was read: moved there with an earlier
/// modification time, or written at the same moment.
pub(super) fn late(files: &[Listed], since: &Cursor) -> Result<u64, ConnectorError> {
    let Some(read) = since.rows_at else { return Ok(0) };
    let mut now = 0_u64;
    for file in files {
        now += u64::from(!is_after(file, since)?);
    }
    Ok(now.saturating_sub(read))
}

/// Whether a file comes after a cursor.
pub(super) fn is_after(file: &Listed, cursor: &Cursor) -> Result<bool, ConnectorError> {
    let then: i128 = cursor.value.parse().map_err(|error| ConnectorError::Refused {
        act: format!("continue after the cursor {:?}", cursor.value),
        source: Box::new(error) as _,
    })?;
    let name = cursor.tie_breaker.as_deref().unwrap_or_default();
    Ok((file.modified_ns, file.name.as_str()) > (then, name))
}
