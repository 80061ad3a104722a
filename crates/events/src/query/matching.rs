//! Whether an event matches a query, and whether a block may contain a match.

use memchr::memmem::Finder;

use super::Query;
use super::phrase::Phrase;
use crate::event::{Event, Tags};
use crate::segment::{Field, Term};

/// A query prepared for repeated matching.
#[derive(Debug)]
pub(crate) struct Matcher {
    query: Query,
    needles: Vec<Finder<'static>>,
    phrases: Vec<Phrase>,
    terms: Vec<Term>,
}

impl Matcher {
    pub(crate) fn new(query: Query) -> Self {
        let mut terms = Vec::new();
        let texts = [
            (Field::Stream, &query.stream),
            (Field::Kind, &query.kind),
            (Field::Host, &query.host),
        ];
        for (field, text) in texts {
            terms.extend(text.iter().map(|text| Term::of(field, text.as_bytes())));
        }
        terms.extend(query.ips.iter().filter_map(Term::of_subnet));
        for needle in &query.contains {
            terms.extend(Term::of_needle(needle));
        }
        for phrase in &query.words {
            terms.extend(Term::of_phrase(phrase));
        }
        let phrases = query.words.iter().map(|phrase| Phrase::new(phrase)).collect();
        let needles = query
            .contains
            .iter()
            .map(|needle| Finder::new(needle.as_slice()).into_owned())
            .collect();
        Self { query, needles, phrases, terms }
    }

    /// The query.
    pub(crate) fn query(&self) -> &Query {
        &self.query
    }

    /// Terms that a block's filter must have for the block to be worth reading.
    pub(crate) fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Whether times from `min` to `max` overlap the requested ones.
    pub(crate) fn overlaps(&self, min_ns: i64, max_ns: i64) -> bool {
        self.query.overlaps(min_ns, max_ns)
    }

    /// Whether an event's tags match.
    pub(crate) fn tags(&self, tags: &Tags<'_>) -> bool {
        self.query.has_tags(tags)
    }

    /// Whether the rest of an event, besides its tags, matches.
    pub(crate) fn rest(&self, event: &Event<'_>) -> bool {
        let raw = event.raw;
        self.needles.iter().all(|needle| needle.find(raw).is_some())
            && self.phrases.iter().all(|phrase| phrase.is_in(raw))
            && self.query.regex.as_ref().is_none_or(|regex| regex.is_match(raw))
            && self.query.has_addresses(event)
    }
}
