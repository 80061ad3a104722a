//! `forebay.toml`: flattened to dotted keys with their lines.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;
use super::nearest::nearest;
use super::settings::{SETTINGS, Setting, find};
use super::value::Toml;

/// Maximum size. A configuration is a page or two, so a larger file is the wrong file.
const FILE_SIZE_MAX: u64 = 1 << 20;

/// One `key = value` of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: &'static str,
    pub(super) text: String,
    pub(super) line: usize,
}

/// Reads `path` and returns its settings.
pub(super) fn read(path: &Path) -> Result<Vec<Entry>, ConfigError> {
    let failed = |source| ConfigError::Read { path: path.to_owned(), source };
    let size = std::fs::metadata(path).map_err(failed)?.len();
    if size > FILE_SIZE_MAX {
        return Err(ConfigError::TooLarge { path: path.to_owned(), size, max: FILE_SIZE_MAX });
    }
    parse(path, &std::fs::read_to_string(path).map_err(failed)?)
}

/// Parses `text`, the contents of `path`. Every unknown key is reported, not only the first.
pub(super) fn parse(path: &Path, text: &str) -> Result<Vec<Entry>, ConfigError> {
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        message: match error.message() {
            // The parser does not name the key.
            "duplicate key" => {
                let key = error.span().and_then(|span| text.get(span)).unwrap_or_default();
                format!("{key} is set twice; a key or section may be there only once")
            }
            message => message.to_owned(),
        },
    })?;
    let mut found = Parsed { path, text, entries: Vec::new(), unknown: Vec::new() };
    found.table("", table.get_ref());
    found.unknown.sort();
    if found.unknown.is_empty() {
        found.entries.sort_by_key(|entry| entry.line);
        Ok(found.entries)
    } else {
        let unknown = found.unknown.into_iter().map(|(_, sentence)| sentence).collect();
        Err(ConfigError::UnknownKeys { unknown })
    }
}

fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

struct Parsed<'a> {
    path: &'a Path,
    text: &'a str,
    entries: Vec<Entry>,
    unknown: Vec<(usize, String)>,
}

impl Parsed<'_> {
    /// Walks one table. Depth is bounded: sections go one level deep, so anything nested further
    /// has an unknown key at a higher level and is not entered.
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (name, value) in table {
            let line = line_of(self.text, name.span().start);
            let key = if prefix.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{prefix}.{}", name.get_ref())
            };
            self.entry(key, line, value);
        }
    }

    fn entry(&mut self, key: String, line: usize, value: &Spanned<DeValue<'_>>) {
        let is_section = SETTINGS
            .iter()
            .any(|setting| setting.key.strip_prefix(&*key).is_some_and(|r| r.starts_with('.')));
        match (value.get_ref(), find(&key)) {
            (DeValue::Table(table), None) if is_section => self.table(&key, table),
            (value, Some(setting)) => match scalar(value).or_else(|| list(value, setting)) {
                Some(text) => self.entries.push(Entry { key: setting.key, text, line }),
                None => self.refuse(
                    line,
                    format!("{key} must be {}, not a table, list or date", setting.expected),
                ),
            },
            (DeValue::Table(_), None) => {
                let hint = nearest(&key, sections()).map_or_else(
                    || hint_without_nearest().to_owned(),
                    |section| format!("did you mean [{section}]?"),
                );
                self.refuse(line, format!("unknown section [{key}]; {hint}"));
            }
            (_, None) => {
                let hint = nearest(&key, SETTINGS.iter().map(|setting| setting.key)).map_or_else(
                    || hint_without_nearest().to_owned(),
                    |k| format!("did you mean {k}?"),
                );
                self.refuse(line, format!("unknown key {key:?}; {hint}"));
            }
        }
    }

    fn refuse(&mut self, line: usize, problem: String) {
        self.unknown.push((line, format!("{}:{line}: {problem}", self.path.display())));
    }
}

fn hint_without_nearest() -> &'static str {
    "`forebay config show` lists every key"
}

/// Names of the sections that have settings.
fn sections() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().filter_map(|setting| Some(setting.key.rsplit_once('.')?.0))
}

/// Returns the texts of a list, separated by commas, for a setting that may be one.
fn list(value: &DeValue<'_>, setting: &Setting) -> Option<String> {
    let DeValue::Array(items) = value else { return None };
    let texts = items.iter().map(|item| match item.get_ref() {
        DeValue::String(text) if !text.contains(',') => Some(text.to_string()),
        _ => None,
    });
    let texts: Option<Vec<String>> = texts.collect();
    texts.filter(|_| setting.toml == Toml::List).map(|texts| texts.join(","))
}

/// Returns the text of a scalar, in whichever form TOML wrote it.
fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            i128::from_str_radix(number.as_str(), number.radix()).ok().map(|n| n.to_string())
        }
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(flag) => Some(flag.to_string()),
        DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => None,
    }
}
