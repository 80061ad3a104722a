//! The order of results, and where a page of them ends.
//!
//! ```text
//! r.<score>.<id>          by relevance; the score's bits and the id in hexadecimal
//! n.<id>, o.<id>          newest or oldest first
//! a.<namespace>/<name>    by name
//! s.<size>.<id>, l.<..>   smallest or largest first
//! ```
//!
//! Invariants: a cursor names the order it belongs to, so a page continues in the order in which the
//! one before was made; a cursor is a client's text, and whatever it says only chooses where to begin.

use std::cmp::Ordering;
use std::fmt;

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchOrder {
    /// The most relevant first.
    Relevance,
    /// The names that were given last first.
    Newest,
    /// The names that were given first first.
    Oldest,
    /// By namespace and name.
    Name,
    /// The smallest files first.
    Smallest,
    /// The largest files first.
    Largest,
}

impl SearchOrder {
    /// Every order.
    pub const ALL: [Self; 6] =
        [Self::Relevance, Self::Newest, Self::Oldest, Self::Name, Self::Smallest, Self::Largest];

    /// The order as one word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Relevance => "relevance",
            Self::Newest => "newest",
            Self::Oldest => "oldest",
            Self::Name => "name",
            Self::Smallest => "smallest",
            Self::Largest => "largest",
        }
    }

    /// The order with this name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.as_str() == word)
    }
}

/// The place of a result in an order; a page begins after one.
#[derive(Debug, Clone, PartialEq)]
pub enum SearchCursor {
    /// By relevance.
    Relevance {
        /// Score.
        score: f64,
        /// Id of the file.
        id: u64,
    },
    /// Newest first: the id of the file.
    Newest(u64),
    /// Oldest first: the id of the file.
    Oldest(u64),
    /// By name.
    Name {
        /// Namespace.
        namespace: String,
        /// Name inside it.
        name: String,
    },
    /// By size.
    Size {
        /// Whether the largest are first.
        descending: bool,
        /// Size in bytes.
        size: u64,
        /// Id of the file.
        id: u64,
    },
}

impl SearchCursor {
    /// The order it belongs to.
    #[must_use]
    pub fn order(&self) -> SearchOrder {
        match self {
            Self::Relevance { .. } => SearchOrder::Relevance,
            Self::Newest(_) => SearchOrder::Newest,
            Self::Oldest(_) => SearchOrder::Oldest,
            Self::Name { .. } => SearchOrder::Name,
            Self::Size { descending: false, .. } => SearchOrder::Smallest,
            Self::Size { descending: true, .. } => SearchOrder::Largest,
        }
    }

    /// Reads what [`SearchCursor`] is displayed as.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once('.')?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let size = |descending: bool| {
            let (size, id) = rest.split_once('.')?;
            Some(Self::Size { descending, size: size.parse().ok()?, id: hex(id)? })
        };
        match kind {
            "r" => {
                let (score, id) = rest.split_once('.')?;
                let score = f64::from_bits(hex(score)?);
                score.is_finite().then_some(Self::Relevance { score, id: hex(id)? })
            }
            "n" => Some(Self::Newest(hex(rest)?)),
            "o" => Some(Self::Oldest(hex(rest)?)),
            "a" => {
                let (namespace, name) = rest.split_once('/')?;
                Some(Self::Name { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            "s" => size(false),
            "l" => size(true),
            _ => None,
        }
    }

    /// Compares two places of the same order.
    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Relevance { score: a, id: x }, Self::Relevance { score: b, id: y }) => {
                b.total_cmp(a).then(y.cmp(x))
            }
            (Self::Newest(a), Self::Newest(b)) => b.cmp(a),
            (Self::Oldest(a), Self::Oldest(b)) => a.cmp(b),
            (Self::Name { namespace: a, name: x }, Self::Name { namespace: b, name: y }) => {
                (a, x).cmp(&(b, y))
            }
            (Self::Size { descending, size: a, id: x }, Self::Size { size: b, id: y, .. }) => {
                let ascending = (a, x).cmp(&(b, y));
                if *descending { ascending.reverse() } else { ascending }
            }
            // No list has places of two orders.
            _ => Ordering::Equal,
        }
    }
}

impl fmt::Display for SearchCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Relevance { score, id } => write!(f, "r.{:x}.{id:x}", score.to_bits()),
            Self::Newest(id) => write!(f, "n.{id:x}"),
            Self::Oldest(id) => write!(f, "o.{id:x}"),
            Self::Name { namespace, name } => write!(f, "a.{namespace}/{name}"),
            Self::Size { descending, size, id } => {
                write!(f, "{}.{size}.{id:x}", if *descending { 'l' } else { 's' })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_displayed() {
        let name = SearchCursor::Name { namespace: "n".into(), name: "a.b/c d".into() };
        for cursor in [
            SearchCursor::Relevance { score: 1.25e-6, id: 77 },
            SearchCursor::Newest(u64::MAX),
            SearchCursor::Oldest(0),
            name,
            SearchCursor::Size { descending: true, size: 9, id: 10 },
            SearchCursor::Size { descending: false, size: 9, id: 10 },
        ] {
            assert_eq!(SearchCursor::parse(&cursor.to_string()), Some(cursor));
        }
        for text in ["", "n", "n.", "n.g", "r.1", "r.7ff8000000000000.1", "a.x", "s.1", "x.1"] {
            assert_eq!(SearchCursor::parse(text), None, "{text}");
        }
    }
}
