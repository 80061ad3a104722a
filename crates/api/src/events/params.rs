//! Parses the query string of `GET /v1/events`.

use std::ops::Range;
use std::str::FromStr;

use forebay_events::Severity;
use forebay_events::query::{Cursor, Order, Query, parse_time};
use http::Uri;

use super::problem::Problem;
use crate::answer::pairs;

/// Default number of events on a page.
const PAGE: u64 = 100;
/// Maximum number of events on a page.
const PAGE_MAX: u64 = 1_000;
/// Maximum size of a regular expression, in bytes, and once compiled.
const REGEX_SIZE_MAX: usize = 4_096;
const REGEX_MEMORY_MAX: usize = 1 << 20;
/// Maximum number of texts in one search.
const NEEDLES_MAX: usize = 16;

const KNOWN: &str = "from, to, stream, type, host, ip, severity, contains, word, regex, order, \
                     limit, cursor, before, proof and follow";

/// A parsed query.
#[derive(Debug, Default)]
pub(super) struct Params {
    pub(super) query: Query,
    limit: Option<u64>,
    /// Each event includes its proof.
    pub(super) proof: bool,
    /// The response continues with new events.
    pub(super) follow: bool,
    /// Events are returned in order of acceptance, at these positions.
    pub(super) positions: Option<Range<u64>>,
}

impl Params {
    /// Returns the number of events on one page.
    pub(super) fn page(&self) -> Result<u64, Problem> {
        match self.limit {
            Some(0) => Err(wrong("limit", "1 to 1000")),
            Some(limit) if limit > PAGE_MAX => Err(wrong("limit", "1 to 1000")),
            limit => Ok(limit.unwrap_or(PAGE)),
        }
    }

    /// Returns the number of events of a stream that ends.
    pub(super) fn stream(&self) -> u64 {
        self.limit.unwrap_or(u64::MAX)
    }

    /// Returns the number of newest events with which an endless stream begins.
    pub(super) fn newest(&self) -> Result<u64, Problem> {
        match self.limit {
            Some(limit) if limit > PAGE_MAX => Err(wrong("limit", "0 to 1000 with follow")),
            limit => Ok(limit.unwrap_or(0)),
        }
    }

    /// Parses a query string.
    pub(super) fn read(uri: &Uri) -> Result<Self, Problem> {
        Self::of(pairs(uri))
    }

    /// Parses names and values.
    pub(super) fn of(pairs: Vec<(String, Vec<u8>)>) -> Result<Self, Problem> {
        let mut asked = Self::default();
        let mut ordered = false;
        let mut by_position = false;
        let (mut after, mut before) = (None, None);
        for (name, value) in pairs {
            let text = String::from_utf8_lossy(&value).into_owned();
            let query = &mut asked.query;
            match &*name {
                "from" => query.from_ns = Some(time("from", &text)?),
                "to" => query.to_ns = Some(time("to", &text)?),
                "stream" => query.stream = Some(text),
                "type" => query.kind = Some(text),
                "host" => query.host = Some(text),
                "ip" => {
                    room(&query.ips, "ip")?;
                    let expected = "an address such as 10.1.2.3 or a prefix such as 10.1.0.0/16";
                    query.ips.push(parsed("ip", &text, expected)?);
                }
                "severity" => query.severity_min = Some(severity(&text)?),
                "contains" => {
                    room(&query.contains, "contains")?;
                    query.contains.push(value);
                }
                "word" if value.is_empty() => return Err(wrong("word", "at least one byte")),
                "word" => {
                    room(&query.words, "word")?;
                    query.words.push(value);
                }
                "regex" => query.regex = Some(regex(&text)?),
                "order" => {
                    ordered = true;
                    by_position = text == "position";
                    query.order = match &*text {
                        "oldest" | "position" => Order::OldestFirst,
                        "newest" => Order::NewestFirst,
                        _ => return Err(wrong("order", "newest, oldest or position")),
                    };
                }
                "limit" => asked.limit = Some(parsed("limit", &text, "a whole number")?),
                "cursor" => after = Some(text),
                "before" => before = Some(parsed("before", &text, "a position")?),
                "proof" => asked.proof = flag("proof", &text)?,
                "follow" => asked.follow = flag("follow", &text)?,
                _ => {
                    let name: String = name.chars().take(60).collect();
                    let text = format!("unknown query parameter {name:?}; known are {KNOWN}");
                    return Err(Problem::bad("query", text));
                }
            }
        }
        if by_position {
            let expected = "the position of the last event of the previous page";
            let last: Option<u64> =
                after.as_deref().map(|text| parsed("cursor", text, expected)).transpose()?;
            let from = last.map_or(0, |last| last.saturating_add(1));
            asked.positions = Some(from..before.unwrap_or(u64::MAX));
        } else if before.is_some() {
            return Err(Problem::bad("query", "before requires order=position"));
        } else {
            asked.query.after = after.as_deref().map(cursor).transpose()?;
        }
        if asked.follow && (ordered || after.is_some()) {
            let text = "follow cannot be combined with order or cursor: it begins with the newest";
            return Err(Problem::bad("query", text));
        }
        Ok(asked)
    }
}

fn severity(text: &str) -> Result<Severity, Problem> {
    let expected = "informational, low, medium, high, critical or fatal";
    Severity::from_name(text).ok_or_else(|| wrong("severity", expected))
}

/// Refuses one more value of a parameter that has [`NEEDLES_MAX`].
fn room<T>(values: &[T], name: &str) -> Result<(), Problem> {
    if values.len() < NEEDLES_MAX {
        return Ok(());
    }
    Err(wrong(name, &format!("given at most {NEEDLES_MAX} times")))
}

/// Returns the cursor after an event.
pub(super) fn cursor_text(timestamp_ns: i64, seq: u64) -> String {
    format!("{timestamp_ns}.{seq}")
}

fn cursor(text: &str) -> Result<Cursor, Problem> {
    let read = || {
        let (time, seq) = text.split_once('.')?;
        Some(Cursor { timestamp_ns: time.parse().ok()?, seq: seq.parse().ok()? })
    };
    read().ok_or_else(|| wrong("cursor", "the value of `next` of the previous page"))
}

fn wrong(name: &str, expected: &str) -> Problem {
    Problem::bad("query", format!("query parameter {name:?} must be {expected}"))
}

fn parsed<T: FromStr>(name: &str, text: &str, expected: &str) -> Result<T, Problem> {
    text.trim().parse().map_err(|_| wrong(name, expected))
}

fn time(name: &str, text: &str) -> Result<i64, Problem> {
    let expected = "a time such as 2026-11-21T10:00:00Z (a plus sign is written %2B), a date, or \
                    seconds since 1970";
    parse_time(text).ok_or_else(|| wrong(name, expected))
}

/// Parses a switch; its name alone switches it on.
pub(super) fn flag(name: &str, text: &str) -> Result<bool, Problem> {
    match text {
        "" | "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(wrong(name, "true or false")),
    }
}

fn regex(text: &str) -> Result<regex::bytes::Regex, Problem> {
    if text.len() > REGEX_SIZE_MAX {
        return Err(wrong("regex", "at most 4096 bytes long"));
    }
    regex::bytes::RegexBuilder::new(text)
        .size_limit(REGEX_MEMORY_MAX)
        .dfa_size_limit(REGEX_MEMORY_MAX)
        .build()
        .map_err(|error| Problem::bad("query", format!("query parameter \"regex\": {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Params, Problem> {
        Params::read(&format!("/v1/events?{query}").parse().unwrap())
    }

    #[test]
    fn every_query_parameter_is_parsed() {
        let asked = read(
            "from=1732184400.5&to=2024-11-22&stream=a+b&type=t&host=h&ip=10.0.0.1&severity=high&ip=2001:db8::/32\
             &contains=%ff%00&contains=x&word=10.0.0.1&regex=a.%2Bb&order=newest&limit=7&cursor=-5.3&proof",
        )
        .unwrap();
        let query = &asked.query;
        assert_eq!(query.from_ns, Some(1_732_184_400_500_000_000));
        assert_eq!(query.to_ns, Some(1_732_233_600_000_000_000));
        assert_eq!(query.stream.as_deref(), Some("a b"));
        assert_eq!(query.severity_min, Some(Severity::High));
        assert_eq!(query.contains, [b"\xff\0".to_vec(), b"x".to_vec()]);
        assert_eq!(query.words, [b"10.0.0.1".to_vec()]);
        assert_eq!(query.ips, ["10.0.0.1", "2001:db8::/32"].map(|ip| ip.parse().unwrap()));
        assert_eq!(query.regex.as_ref().unwrap().as_str(), "a.+b");
        assert_eq!(query.order, Order::NewestFirst);
        assert_eq!(query.after, Some(Cursor { timestamp_ns: -5, seq: 3 }));
        assert_eq!((asked.page().unwrap(), asked.proof, asked.follow), (7, true, false));
    }

    #[test]
    fn positions_continue_after_a_cursor() {
        assert_eq!(read("order=position").unwrap().positions, Some(0..u64::MAX));
        let asked = read("cursor=6&before=9&order=position&stream=s").unwrap();
        assert_eq!((asked.positions, asked.query.after), (Some(7..9), None));
        for query in ["order=position&cursor=1.2", "before=3", "order=position&follow"] {
            assert!(read(query).is_err(), "{query}");
        }
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for query in [
            "form=1",
            "from=now",
            "ip=x",
            "ip=10.0.0.0/33",
            &"&ip=10.0.0.1".repeat(17),
            "severity=bad",
            "regex=(",
            "order=up",
            "word=",
            "limit=x",
            "cursor=1",
            "cursor=a.b",
            "proof=maybe",
            "follow&order=newest",
            "follow&cursor=1.1",
            "regex=(%5Cw%7B200%7D)%7B200%7D",
        ] {
            assert!(read(query).is_err(), "{query}");
        }
        for limit in ["0", "1001"] {
            assert!(read(&format!("limit={limit}")).unwrap().page().is_err());
        }
    }
}
