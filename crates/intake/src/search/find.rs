//! Answering a search from the index.
//!
//! What matches is the union of two sets: files whose name and text have every word, and files whose
//! name has every word as a piece. Properties that are searched for by equality are words of the index
//! as well, so SQLite intersects them with the others; the rest of the filter looks at rows.
//!
//! ```text
//! at most MATCHES_MAX matches    all of them are filtered, ranked or sorted in memory: exact
//! more, and words                the newest first, at most EXAMINED_MAX of them a call: not ranked
//! more, or no words at all       the rows in the order of an index
//! ```
//!
//! Ranking costs about 0.7 us a match and counting 0.4, so a word that is in most files would take
//! longer than a search may; that is why it is the newest that are shown then.
//!
//! Invariants: the work of a call is limited whatever is asked, except that a filter without words may
//! look at every row; every row that is used was verified; what is found is a suggestion, which the
//! caller compares with the catalogue.

use std::collections::HashMap;

use rusqlite::types::Value;
use rusqlite::{Connection, params, params_from_iter};

use super::cursor::{SearchCursor, SearchOrder};
use super::schema::{COLUMNS, Checked, Indexed, facet};
use super::words::Words;
use super::{SearchFilter, SearchQuery};
use crate::error::IntakeError;
use crate::names::successor;

/// Maximum number of matches that are ranked or sorted.
pub(super) const MATCHES_MAX: usize = 10_000;
/// Maximum number of matches that are looked at in one call without ranking.
const EXAMINED_MAX: usize = 10_000;
/// Maximum number of files, counted once for each word, of all words that begin with a given text.
const PREFIX_FILES_MAX: u64 = 100_000;
/// What matches the name counts this much more than what matches the text.
const WORDS_RANK: &str = "bm25(words, 4.0, 1.0, 2.0, 0.0)";

/// A search, ready to be run.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// Expression over `words`; `None` if neither words nor properties are given.
    words: Option<String>,
    /// Expression over `pieces`.
    pieces: Option<String>,
    /// Expression over `words` that what is found by `pieces` has to match, too.
    pieces_within: Option<String>,
    has_words: bool,
    /// What words begin with, for those that are searched for by their beginning.
    prefixes: Vec<String>,
    filter: SearchFilter,
    order: Option<SearchOrder>,
}

/// A file that the index says matches.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub(super) file: Indexed,
    pub(super) score: Option<f64>,
    pub(super) place: SearchCursor,
}

/// What a call found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) hits: Vec<Hit>,
    pub(super) order: SearchOrder,
    /// Number of matches, where they were counted.
    pub(super) matches: Option<u64>,
    /// Where the next call begins; `None` if there is nothing more.
    pub(super) more: Option<SearchCursor>,
}

impl Plan {
    /// Prepares a search.
    pub(super) fn new(query: &SearchQuery, words: Option<&Words>) -> Self {
        let filter = query.filter.clone();
        let mut terms: Vec<String> = words.map(Words::of_words).into_iter().collect();
        let facets: Vec<String> =
            facets(&filter).iter().map(|word| format!("facets : {word}")).collect();
        // Rows have the other properties; to intersect all names with those is slower.
        let pieces_within = filter.has_attributes().then(|| facets.join(" AND "));
        terms.extend(facets);
        Self {
            words: (!terms.is_empty()).then(|| terms.join(" AND ")),
            pieces: words.and_then(Words::of_pieces),
            pieces_within,
            has_words: words.is_some(),
            prefixes: words.map(Words::prefixes).unwrap_or_default(),
            filter,
            order: query.order,
        }
    }

    /// The order that is asked for.
    fn order(&self, after: Option<&SearchCursor>) -> SearchOrder {
        let usual = if self.has_words { SearchOrder::Relevance } else { SearchOrder::Newest };
        let asked = after.map(SearchCursor::order).or(self.order).unwrap_or(usual);
        match asked {
            SearchOrder::Relevance if !self.has_words => SearchOrder::Newest,
            other => other,
        }
    }

    /// Finds up to `limit` files, after a place in the order.
    ///
    /// # Errors
    /// [`FindError::Index`]: SQLite failed, or the index is damaged. [`FindError::Query`]: the cursor
    /// does not fit.
    pub(super) fn find(
        &self,
        connection: &Connection,
        after: Option<&SearchCursor>,
        limit: usize,
    ) -> Result<Found, FindError> {
        let order = self.order(after);
        for prefix in &self.prefixes {
            check_prefix(connection, prefix)?;
        }
        if let Some(words) = &self.words {
            let ids = self.matches(connection, words)?;
            if ids.len() <= MATCHES_MAX {
                return Ok(self.sorted(connection, ids, order, after, limit)?);
            }
            if self.has_words || self.filter.has_attributes() {
                return match after {
                    None | Some(SearchCursor::Newest(_) | SearchCursor::Oldest(_)) => {
                        let descending = order != SearchOrder::Oldest;
                        Ok(self.walk(connection, words, descending, after, limit)?)
                    }
                    Some(_) => Err(FindError::Query(IntakeError::rejected(
                        "query",
                        format!(
                            "there are more than {MATCHES_MAX} matches by now, which are not \
                             sorted: search again from the first page"
                        ),
                    ))),
                };
            }
        }
        Ok(self.scan(connection, order, after, limit)?)
    }

    /// Ids of the matches, the newest first: all of them, or one more than [`MATCHES_MAX`].
    fn matches(&self, connection: &Connection, words: &str) -> Checked<Vec<i64>> {
        let most = i64::try_from(MATCHES_MAX + 1).unwrap_or(i64::MAX);
        let mut values = vec![Value::from(most), Value::from(words.to_owned())];
        let both =
            self.with_pieces("SELECT rowid FROM words WHERE words MATCH ?2", "", &mut values);
        let sql = format!("{both} ORDER BY 1 DESC LIMIT ?1");
        let mut statement = connection.prepare_cached(&sql)?;
        let ids = statement.query_map(params_from_iter(values), |row| row.get(0))?;
        Ok(ids.collect::<rusqlite::Result<_>>()?)
    }

    /// A query for ids together with those whose names have the pieces, if they are searched for.
    ///
    /// * `within`: a condition on those.
    /// * `values`: of the two parameters that `sql` has; further ones are added.
    fn with_pieces(&self, sql: &str, within: &str, values: &mut Vec<Value>) -> String {
        let Some(pieces) = &self.pieces else { return sql.to_owned() };
        values.push(pieces.clone().into());
        let mut sql = format!("{sql} UNION SELECT rowid FROM pieces WHERE pieces MATCH ?3{within}");
        if let Some(also) = &self.pieces_within {
            values.push(also.clone().into());
            sql.push_str(" AND rowid IN (SELECT rowid FROM words WHERE words MATCH ?4)");
        }
        sql
    }

    /// Filters and sorts a limited number of matches.
    fn sorted(
        &self,
        connection: &Connection,
        ids: Vec<i64>,
        order: SearchOrder,
        after: Option<&SearchCursor>,
        limit: usize,
    ) -> Checked<Found> {
        let scores = match order {
            SearchOrder::Relevance => self.scores(connection, ids.len())?,
            _ => HashMap::new(),
        };
        // A piece of a name matches whatever the other properties are.
        let by_row = self.filter.looks_at_rows() || self.pieces.is_some();
        let by_row = by_row && !self.filter.is_empty();
        let needs_row = by_row
            || matches!(order, SearchOrder::Name | SearchOrder::Smallest | SearchOrder::Largest);
        let mut rows = Rows::new(connection)?;
        let mut found: Vec<(SearchCursor, i64, Option<Indexed>)> = Vec::with_capacity(ids.len());
        for id in ids {
            let row = if needs_row { Some(rows.get(id)?) } else { None };
            if by_row && row.as_ref().is_some_and(|row| !self.filter.passes(row)) {
                continue;
            }
            let score = scores.get(&id).copied().unwrap_or_default();
            found.push((place(order, id.cast_unsigned(), row.as_ref(), score), id, row));
        }
        let matches = found.len() as u64;
        if let Some(after) = after {
            found.retain(|(place, ..)| after.compare(place).is_lt());
        }
        found.sort_by(|(a, ..), (b, ..)| a.compare(b));
        let is_more = found.len() > limit;
        found.truncate(limit);
        let mut hits = Vec::with_capacity(found.len());
        for (place, id, row) in found {
            let file = row.map_or_else(|| rows.get(id), Ok)?;
            let score = scores.get(&id).copied();
            hits.push(Hit { file, score, place });
        }
        let more = hits.last().filter(|_| is_more).map(|hit| hit.place.clone());
        Ok(Found { hits, order, matches: Some(matches), more })
    }

    /// The relevance of every match.
    fn scores(&self, connection: &Connection, count: usize) -> Checked<HashMap<i64, f64>> {
        let mut scores: HashMap<i64, f64> = HashMap::with_capacity(count);
        let mut add = |sql: &str, expression: &Option<String>| -> Checked<()> {
            let Some(expression) = expression else { return Ok(()) };
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query([expression])?;
            while let Some(row) = rows.next()? {
                // FTS5 gives the better match the lesser number.
                let rank: f64 = row.get(1)?;
                *scores.entry(row.get(0)?).or_default() += (-rank).max(0.0);
            }
            Ok(())
        };
        let words = format!("SELECT rowid, {WORDS_RANK} FROM words WHERE words MATCH ?1");
        add(&words, &self.words)?;
        // Without the intersection there may be more pieces than may be ranked.
        let pieces = self.pieces.clone().filter(|_| self.pieces_within.is_none());
        add("SELECT rowid, bm25(pieces) FROM pieces WHERE pieces MATCH ?1", &pieces)?;
        Ok(scores)
    }

    /// Looks at matches in the order in which their names were given.
    fn walk(
        &self,
        connection: &Connection,
        words: &str,
        descending: bool,
        after: Option<&SearchCursor>,
        limit: usize,
    ) -> Checked<Found> {
        let order = if descending { SearchOrder::Newest } else { SearchOrder::Oldest };
        let (than, direction) = if descending { ("<", "DESC") } else { (">", "ASC") };
        let from = match after {
            Some(SearchCursor::Newest(id) | SearchCursor::Oldest(id)) => id.cast_signed(),
            _ if descending => i64::MAX,
            _ => -1,
        };
        let mut values = vec![Value::from(from), Value::from(words.to_owned())];
        let within = format!(" AND rowid {than} ?1");
        let words = format!("SELECT rowid FROM words WHERE words MATCH ?2{within}");
        let both = self.with_pieces(&words, &within, &mut values);
        let sql = format!("{both} ORDER BY 1 {direction}");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut ids = statement.query(params_from_iter(values))?;
        let mut rows = Rows::new(connection)?;
        let (mut hits, mut examined, mut more) = (Vec::new(), 0, None);
        while let Some(row) = ids.next()? {
            let id: i64 = row.get(0)?;
            let file = rows.get(id)?;
            let place = place(order, file.id, None, 0.0);
            examined += 1;
            if self.filter.passes(&file) {
                hits.push(Hit { file, score: None, place: place.clone() });
            }
            if hits.len() >= limit || examined >= EXAMINED_MAX {
                more = Some(place);
                break;
            }
        }
        Ok(Found { hits, order, matches: None, more })
    }

    /// Reads the rows that pass the filter in the order of an index.
    fn scan(
        &self,
        connection: &Connection,
        order: SearchOrder,
        after: Option<&SearchCursor>,
        limit: usize,
    ) -> Checked<Found> {
        let (mut conditions, mut values) = self.filter.conditions();
        conditions.push("1".to_owned());
        match after {
            Some(SearchCursor::Newest(id) | SearchCursor::Oldest(id)) => {
                let than = if order == SearchOrder::Newest { "<" } else { ">" };
                conditions.push(format!("id {than} ?"));
                values.push(id.cast_signed().into());
            }
            Some(SearchCursor::Name { namespace, name }) => {
                conditions.push("(namespace, name) > (?, ?)".to_owned());
                values.extend([namespace.clone().into(), name.clone().into()]);
            }
            Some(SearchCursor::Size { descending, size, id }) => {
                let than = if *descending { "<" } else { ">" };
                conditions.push(format!("(size, id) {than} (?, ?)"));
                values.extend([size.cast_signed().into(), id.cast_signed().into()]);
            }
            Some(SearchCursor::Relevance { .. }) | None => {}
        }
        let by = match order {
            SearchOrder::Newest | SearchOrder::Relevance => "id DESC",
            SearchOrder::Oldest => "id",
            SearchOrder::Name => "namespace, name",
            SearchOrder::Smallest => "size, id",
            SearchOrder::Largest => "size DESC, id DESC",
        };
        let most = i64::try_from(limit.saturating_add(1)).unwrap_or(i64::MAX);
        values.push(most.into());
        let conditions = conditions.join(" AND ");
        let sql = format!("SELECT {COLUMNS} FROM files WHERE {conditions} ORDER BY {by} LIMIT ?");
        let mut statement = connection.prepare_cached(&sql)?;
        let mut rows = statement.query(params_from_iter(values))?;
        let mut hits = Vec::new();
        while let Some(row) = rows.next()? {
            let file = Indexed::read(row)?;
            let place = place(order, file.id, Some(&file), 0.0);
            hits.push(Hit { file, score: None, place });
        }
        let is_more = hits.len() > limit;
        hits.truncate(limit);
        let more = hits.last().filter(|_| is_more).map(|hit| hit.place.clone());
        Ok(Found { hits, order, matches: None, more })
    }
}

/// Why a search found nothing.
#[derive(Debug)]
pub(super) enum FindError {
    /// The index could not be read.
    Index(crate::error::CatalogueFault),
    /// The request is wrong.
    Query(IntakeError),
}

impl From<crate::error::CatalogueFault> for FindError {
    fn from(fault: crate::error::CatalogueFault) -> Self {
        Self::Index(fault)
    }
}

/// Refuses the beginning of too many words: FTS5 reads all of their files before it returns one.
fn check_prefix(connection: &Connection, prefix: &str) -> Result<(), FindError> {
    let failed = |error: rusqlite::Error| FindError::Index(error.into());
    let sql = "SELECT doc FROM temp.terms WHERE term >= ?1 AND term < ?2";
    let end = successor(prefix).unwrap_or_default();
    let mut statement = connection.prepare_cached(sql).map_err(failed)?;
    let mut rows = statement.query([prefix, &end]).map_err(failed)?;
    let mut files = 0;
    while let Some(row) = rows.next().map_err(failed)? {
        files += row.get::<_, u64>(0).map_err(failed)?;
        if files > PREFIX_FILES_MAX {
            return Err(FindError::Query(IntakeError::rejected(
                "query",
                format!("too many words begin with {prefix:?}: type more of the word before the *"),
            )));
        }
    }
    Ok(())
}

/// The words of the properties that are searched for by equality.
fn facets(filter: &SearchFilter) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(filter.namespace.as_ref().map(|of| facet(&["namespace"], of.as_str())));
    words.extend(filter.category.map(|of| facet(&["category"], of.as_str())));
    words.extend(filter.media_type.as_ref().map(|of| match of.strip_suffix("/*") {
        Some(major) => facet(&["major type"], major),
        None => facet(&["type"], of),
    }));
    words.extend(filter.tags.iter().map(|(name, value)| match value {
        Some(value) => facet(&["tag", name], value),
        None => facet(&["tag"], name),
    }));
    words.extend(filter.metadata.iter().map(|(name, value)| facet(&["metadata", name], value)));
    words
}

/// The place of a file in an order.
fn place(order: SearchOrder, id: u64, row: Option<&Indexed>, score: f64) -> SearchCursor {
    let size = row.map_or(0, |row| row.size);
    match order {
        SearchOrder::Relevance => SearchCursor::Relevance { score, id },
        SearchOrder::Newest => SearchCursor::Newest(id),
        SearchOrder::Oldest => SearchCursor::Oldest(id),
        SearchOrder::Name => SearchCursor::Name {
            namespace: row.map_or_else(String::new, |row| row.namespace.clone()),
            name: row.map_or_else(String::new, |row| row.name.clone()),
        },
        SearchOrder::Smallest => SearchCursor::Size { descending: false, size, id },
        SearchOrder::Largest => SearchCursor::Size { descending: true, size, id },
    }
}

/// Rows by id.
struct Rows<'c>(rusqlite::CachedStatement<'c>);

impl<'c> Rows<'c> {
    fn new(connection: &'c Connection) -> Checked<Self> {
        let sql = format!("SELECT {COLUMNS} FROM files WHERE id = ?1");
        Ok(Self(connection.prepare_cached(&sql)?))
    }

    fn get(&mut self, id: i64) -> Checked<Indexed> {
        let mut rows = self.0.query(params![id])?;
        match rows.next()? {
            Some(row) => Indexed::read(row),
            None => {
                let found = format!("the table files has no row {id}, which words or pieces has");
                Err(crate::error::CatalogueFault::Damaged { found })
            }
        }
    }
}
