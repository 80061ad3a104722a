//! Parses the query string of a request about an index.

use std::str::FromStr;

use forebay_base::bytes::ByteSize;
use forebay_inventory::cost::{Pricer, Prices};
use forebay_inventory::diff::Rank;
use forebay_inventory::index::{ClassSlots, Filter, Index, Node, Order, SortBy};
use http::Uri;

use super::registry::Name;
use crate::answer::pairs;
use crate::problem::Problem;

/// Maximum number of entries of a response that is not a stream.
const LIMIT_MAX: u64 = 1_000;
/// Default number of entries of a response.
const LIMIT: usize = 100;
/// Maximum number of the largest entries, which are determined one by one.
const TOP_MAX: u64 = 10_000;
/// Default and maximum number of lines of a stream.
const LINES: u64 = 100_000;
const LINES_MAX: u64 = 10_000_000;

/// A parsed query.
#[derive(Debug)]
pub(super) struct Params {
    pub(super) prefix: Vec<u8>,
    pub(super) sort: SortBy,
    pub(super) offset: u64,
    /// Number of entries on a page.
    pub(super) limit: usize,
    /// Number of lines of a stream.
    pub(super) lines: u64,
    /// Number of the largest entries.
    pub(super) count: usize,
    pub(super) depth: Option<u64>,
    pub(super) min_objects: u64,
    pub(super) min_bytes: u64,
    pub(super) min_billed: u64,
    pub(super) min_noncurrent: u64,
    pub(super) min_delete_markers: u64,
    pub(super) min_cost: Option<f64>,
    /// The storage class that counts; all of them without one.
    pub(super) class: Option<String>,
    /// Size in bytes.
    pub(super) under: u64,
    pub(super) rank: Rank,
    /// The figure whose changes are ranked.
    pub(super) by: SortBy,
    pub(super) old: Option<Name>,
}

impl Params {
    /// Parses a query string that may have these parameters.
    pub(super) fn read(uri: &Uri, known: &[&str]) -> Result<Self, Problem> {
        let mut asked = Self {
            prefix: Vec::new(),
            sort: SortBy::default(),
            offset: 0,
            limit: LIMIT,
            lines: LINES,
            count: LIMIT,
            depth: None,
            min_objects: 0,
            min_bytes: 0,
            min_billed: 0,
            min_noncurrent: 0,
            min_delete_markers: 0,
            min_cost: None,
            class: None,
            under: 128 << 10,
            rank: Rank::Change,
            by: SortBy::default(),
            old: None,
        };
        for (name, value) in pairs(uri) {
            if !known.contains(&name.as_str()) {
                let name: String = name.chars().take(60).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                let text = format!("unknown query parameter {name:?}; known are {known}");
                return Err(Problem::bad("query", text));
            }
            if name == "prefix" {
                asked.prefix = value;
                continue;
            }
            let text = String::from_utf8_lossy(&value);
            asked.set(&name, text.trim(), known)?;
        }
        Ok(asked)
    }

    fn set(&mut self, name: &str, text: &str, known: &[&str]) -> Result<(), Problem> {
        let within = |most: u64| -> Result<u64, Problem> {
            let expected = format!("1 to {most}");
            let number: u64 = parsed(name, text, &expected)?;
            if (1..=most).contains(&number) { Ok(number) } else { Err(wrong(name, &expected)) }
        };
        let whole = || parsed(name, text, "a whole number");
        match name {
            "sort" => self.sort = word(name, text, &SortBy::ALL)?,
            "by" => self.by = word(name, text, &SortBy::ALL)?,
            "class" => self.class = Some(text.to_owned()),
            "rank" => self.rank = word(name, text, &RANKS)?,
            "offset" => self.offset = whole()?,
            "limit" if known.contains(&"min_bytes") => self.lines = within(LINES_MAX)?,
            "limit" => self.limit = to_size(within(LIMIT_MAX)?),
            "k" | "top" => self.count = to_size(within(TOP_MAX)?),
            "depth" => self.depth = Some(whole()?),
            "min_objects" => self.min_objects = whole()?,
            "min_delete_markers" => self.min_delete_markers = whole()?,
            "min_bytes" => self.min_bytes = parsed::<ByteSize>(name, text, SIZE)?.0,
            "min_billed" => self.min_billed = parsed::<ByteSize>(name, text, SIZE)?.0,
            "min_noncurrent" => self.min_noncurrent = parsed::<ByteSize>(name, text, SIZE)?.0,
            "min_cost" => {
                let cost: f64 = parsed(name, text, COST)?;
                if !cost.is_finite() || cost < 0.0 {
                    return Err(wrong(name, COST));
                }
                self.min_cost = Some(cost);
            }
            "under" => self.under = parsed::<ByteSize>(name, text, SIZE)?.0,
            _ => self.old = Some(Name::parse(text)?),
        }
        Ok(())
    }

    /// Returns the prices of an index, if the order or the filter needs them.
    pub(super) fn pricer<'p>(
        &self,
        index: &Index,
        prices: &'p Prices,
    ) -> Result<Option<Pricer<'p>>, Problem> {
        let is_needed = self.sort == SortBy::Cost || self.min_cost.is_some();
        let pricer = is_needed.then(|| Pricer::new(index, prices)).transpose()?;
        Ok(pricer)
    }

    /// Returns the order of the prefixes.
    pub(super) fn order<'p>(
        &self,
        index: &Index,
        pricer: Option<&'p Pricer<'p>>,
    ) -> Result<Order<'p>, Problem> {
        let order = Order::from(self.sort).priced(pricer);
        Ok(self.slots(index)?.map_or(order, |class| order.in_class(class)))
    }

    /// Returns what prefixes must have.
    pub(super) fn filter<'p>(
        &self,
        index: &Index,
        pricer: Option<&'p Pricer<'p>>,
    ) -> Result<Filter<'p>, Problem> {
        Ok(Filter {
            depth: self.depth,
            min_billed: self.min_billed,
            min_bytes: self.min_bytes,
            min_objects: self.min_objects,
            min_noncurrent: self.min_noncurrent,
            min_delete_markers: self.min_delete_markers,
            min_cost: self.min_cost.zip(pricer),
            class: self.slots(index)?,
        })
    }

    fn slots(&self, index: &Index) -> Result<Option<ClassSlots>, Problem> {
        let Some(name) = &self.class else { return Ok(None) };
        let slots = index.class(name);
        if slots.is_none() {
            let known = index.class_names().join(", ");
            let text = format!("no object has the storage class {name:?}; there are {known}");
            return Err(Problem::bad("query", text));
        }
        Ok(slots)
    }

    /// Returns the node of the prefix, or the problem that it does not exist.
    pub(super) fn node<'a>(&self, index: &'a Index) -> Result<Node<'a>, Problem> {
        if let Some(node) = index.get(&self.prefix)? {
            return Ok(node);
        }
        let shown = |prefix: &[u8]| String::from_utf8_lossy(prefix).into_owned();
        let text = format!("there is no prefix {:?}", shown(&self.prefix));
        let longer = [self.prefix.as_slice(), &[index.delimiter()]].concat();
        if index.get(&longer)?.is_some() {
            let longer = shown(&longer);
            let text = format!("{text}; did you mean {longer:?}?");
            return Err(Problem::not_found(text).beside(serde_json::json!({ "there": longer })));
        }
        Err(Problem::not_found(text))
    }
}

const SIZE: &str = "bytes, or a size such as 128KiB";

const COST: &str = "an amount of the currency of the prices, such as 12.50";

const RANKS: [(&str, Rank); 3] =
    [("change", Rank::Change), ("growth", Rank::Growth), ("shrinkage", Rank::Shrinkage)];

fn word<T: Copy>(name: &str, text: &str, words: &[(&str, T)]) -> Result<T, Problem> {
    let known = words.iter().find(|(word, _)| *word == text);
    known.map(|(_, value)| *value).ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        wrong(name, &words.join(", "))
    })
}

fn to_size(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn wrong(name: &str, expected: &str) -> Problem {
    Problem::bad("query", format!("query parameter {name:?} must be {expected}"))
}

fn parsed<T: FromStr>(name: &str, text: &str, expected: &str) -> Result<T, Problem> {
    text.parse().map_err(|_| wrong(name, expected))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 17] = [
        "prefix",
        "sort",
        "offset",
        "limit",
        "k",
        "depth",
        "min_objects",
        "min_bytes",
        "under",
        "rank",
        "old",
        "by",
        "class",
        "min_billed",
        "min_noncurrent",
        "min_delete_markers",
        "min_cost",
    ];

    fn read(query: &str, known: &[&str]) -> Result<Params, Problem> {
        Params::read(&format!("/v1/inventories/x/y?{query}").parse().unwrap(), known)
    }

    #[test]
    fn every_query_parameter_is_parsed() {
        let asked = read(
            "prefix=a+b%2F%ff%00/&sort=name&offset=7&limit=2000&k=3&depth=2&min_objects=5\
             &min_bytes=1KiB&under=4096&rank=growth&old=yesterday&by=cost&class=GLACIER\
             &min_billed=2KiB&min_noncurrent=3&min_delete_markers=4&min_cost=0.5",
            &ALL,
        )
        .unwrap();
        assert_eq!(asked.prefix, b"a b/\xff\0/");
        assert_eq!((asked.sort, asked.offset, asked.lines), (SortBy::Name, 7, 2_000));
        assert_eq!((asked.count, asked.depth, asked.min_objects), (3, Some(2), 5));
        assert_eq!((asked.min_bytes, asked.under, asked.rank), (1_024, 4_096, Rank::Growth));
        assert_eq!((asked.min_billed, asked.min_noncurrent), (2_048, 3));
        assert_eq!((asked.min_delete_markers, asked.min_cost), (4, Some(0.5)));
        assert_eq!((asked.by, asked.class.as_deref()), (SortBy::Cost, Some("GLACIER")));
        assert_eq!(asked.old.unwrap().as_str(), "yesterday");
        assert_eq!(read("", &ALL).unwrap().sort, SortBy::Billed);
    }

    #[test]
    fn what_is_wrong_is_refused() {
        for query in [
            "form=1",
            "sort=size",
            "by=growth",
            "min_cost=-1",
            "min_cost=NaN",
            "min_cost=inf",
            "min_billed=x",
            "rank=up",
            "k=0",
            "k=10001",
            "limit=0",
            "limit=10000001",
            "offset=-1",
            "depth=x",
            "under=much",
            "old=../x",
        ] {
            assert!(read(query, &ALL).is_err(), "{query}");
        }
        assert!(read("limit=1001", &["limit"]).is_err());
        assert!(read("prefix=", &[]).is_err());
    }
}
