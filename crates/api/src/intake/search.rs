//! Searching files.

use std::collections::HashSet;

use axum::extract::{Request, State};
use axum::response::Response;
use forebay_intake::answer::{FileAnswer, to_json};
use forebay_intake::classify::Category;
use forebay_intake::names::Namespace;
use forebay_intake::search::{
    FoundFile, SearchCursor, SearchOrder, SearchPage, SearchQuery, SearchStatus,
};
use forebay_intake::{Intake, IntakeError};
use http::Uri;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa::openapi::path::Parameter;

use super::files::time;
use super::openapi::{BUSY, CURSOR, LIMIT, STORAGE};
use super::{bad_option, flag, json, page_limit, problem, query, unknown_option};
use crate::describe::{self, Kind, Operation};

/// Files on a page by default.
const PAGE: usize = 20;

/// A page of files that a search found.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileSearchPage)]
pub(super) struct SearchAnswer<'a> {
    /// The files.
    files: Vec<FoundAnswer<'a>>,
    /// The order they are in. `newest` instead of the requested one if there are too many matches
    /// to sort.
    sort: &'static str,
    /// Whether they are in order of relevance.
    ranked: bool,
    /// Approximate number of matches; null if there are too many to count, or no words.
    #[schema(required)]
    matches: Option<u64>,
    /// `cursor` of the next page; null after the last.
    #[schema(required)]
    next_cursor: Option<String>,
    /// State of the index.
    index: IndexAnswer,
}

/// A file that a search found.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FoundFile)]
struct FoundAnswer<'a> {
    #[serde(flatten)]
    file: FileAnswer<'a>,
    /// Relevance, comparable only within this answer; absent if the answer is not ranked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    score: Option<f64>,
    /// Text around the first word that was found, on one line and not escaped for HTML; absent if it
    /// was not requested, or only the name matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    snippet: Option<&'a str>,
}

/// State of the search index.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileSearchIndex)]
struct IndexAnswer {
    /// Number of files in it.
    files: u64,
    /// Bytes of the log that it does not reflect yet; 0 if it is up to date.
    lag_bytes: u64,
    /// How long it has not been up to date, at most.
    lag_seconds: f64,
    /// Why it does not follow the log at the moment; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    waiting: Option<String>,
}

impl<'a> SearchAnswer<'a> {
    fn of(page: &'a SearchPage) -> Self {
        let SearchStatus { files, behind_bytes, behind, waiting, .. } = page.index.clone();
        let lag_seconds = if behind_bytes == 0 { 0.0 } else { behind.as_secs_f64() };
        Self {
            files: page.files.iter().map(FoundAnswer::of).collect(),
            sort: page.order.as_str(),
            ranked: page.order == SearchOrder::Relevance,
            matches: page.matches,
            next_cursor: page.next.as_ref().map(SearchCursor::to_string),
            index: IndexAnswer { files, lag_bytes: behind_bytes, lag_seconds, waiting },
        }
    }
}

impl<'a> FoundAnswer<'a> {
    fn of(found: &'a FoundFile) -> Self {
        Self {
            file: FileAnswer::of(&found.file),
            score: found.score,
            snippet: found.excerpt.as_deref(),
        }
    }
}

pub(super) async fn search(State(intake): State<Intake>, request: Request) -> Response {
    let found = match asked(request.uri()) {
        Ok(query) => intake.search(query).await,
        Err(error) => Err(error),
    };
    match found {
        Ok(page) => json(200, to_json(&SearchAnswer::of(&page))),
        Err(error) => problem::answer(&error, request.headers()),
    }
}

fn asked(uri: &Uri) -> Result<SearchQuery, IntakeError> {
    let mut asked = SearchQuery { limit: PAGE, ..SearchQuery::default() };
    let filter = &mut asked.filter;
    let bytes = |name: &str, value: &str| {
        value.parse::<u64>().map_err(|_| bad_option(name, "a number of bytes"))
    };
    let mut given = HashSet::new();
    for (name, value) in query(uri) {
        if let Some((_, now)) =
            EARLIER.iter().find(|(earlier, now)| *earlier == name || *now == name)
            && !given.insert(*now)
        {
            return Err(bad_option(&name, &format!("left out if {now} has its value")));
        }
        match name.as_str() {
            "q" => asked.words = Some(value),
            "namespace" => filter.namespace = Some(Namespace::parse(&value)?),
            "prefix" => filter.prefix = Some(value),
            "mime" | "type" => filter.media_type = Some(value.to_ascii_lowercase()),
            "category" => {
                let words: Vec<_> = Category::ALL.iter().map(|c| c.as_str()).collect();
                let category = Category::parse(&value);
                filter.category =
                    Some(category.ok_or_else(|| bad_option(&name, &words.join(", ")))?);
            }
            "size_min" | "min_size" => filter.size_min = Some(bytes(&name, &value)?),
            "size_max" | "max_size" => filter.size_max = Some(bytes(&name, &value)?),
            "created_from" | "after" => filter.created_from_ms = Some(time(&name, &value)?),
            "created_to" | "before" => filter.created_to_ms = Some(time(&name, &value)?),
            "tag" => filter.tags.push(match value.split_once('=') {
                Some((tag, wanted)) => (tag.to_owned(), Some(wanted.to_owned())),
                None => (value, None),
            }),
            "sort" => {
                let words = SearchOrder::ALL.map(SearchOrder::as_str).join(", ");
                let order = SearchOrder::parse(&value);
                asked.order = Some(order.ok_or_else(|| bad_option(&name, &words))?);
            }
            "snippet" => asked.excerpts = flag(&name, &value)?,
            "limit" => asked.limit = page_limit(&value)?,
            "cursor" => {
                let cursor = SearchCursor::parse(&value);
                let expected = "the next_cursor of an earlier page";
                asked.after = Some(cursor.ok_or_else(|| bad_option(&name, expected))?);
            }
            _ => match name.strip_prefix("meta.") {
                Some(metadata) => filter.metadata.push((metadata.to_owned(), value)),
                None => {
                    return Err(unknown_option(
                        &name,
                        "q, namespace, prefix, mime, category, size_min, size_max, created_from, \
                         created_to, tag, meta.NAME, sort, snippet, limit, cursor",
                    ));
                }
            },
        }
    }
    Ok(asked)
}

/// Names of parameters in earlier versions, and their names now.
const EARLIER: [(&str, &str); 5] = [
    ("type", "mime"),
    ("min_size", "size_min"),
    ("max_size", "size_max"),
    ("after", "created_from"),
    ("before", "created_to"),
];

fn parameters() -> Vec<Parameter> {
    let earlier = EARLIER.map(|(name, now)| describe::earlier(name, Kind::Text, now));
    current_parameters().into_iter().chain(earlier).collect()
}

fn current_parameters() -> [Parameter; 15] {
    let size = Kind::Count(0, u64::MAX);
    let categories = Category::ALL.map(Category::as_str);
    let orders = SearchOrder::ALL.map(SearchOrder::as_str);
    let query = describe::query;
    [
        query(
            "q",
            Kind::Text,
            "Words that name, text, comment, metadata or tags have. \"a b\" is a phrase; word* is any word that begins \
             so. Without it the other parameters alone select",
        ),
        query("namespace", Kind::Text, "Only this namespace"),
        query("prefix", Kind::Text, "Only names that begin with this text"),
        query("mime", Kind::Text, "Only this media type, or all of a kind as in image/*"),
        query("category", Kind::Word(&categories), "Only files of this category"),
        query("size_min", size, "Only files of at least this many bytes"),
        query("size_max", size, "Only files of at most this many bytes"),
        query(
            "created_from",
            Kind::Text,
            "Only files named at or after this time (RFC 3339 or milliseconds since 1970)",
        ),
        query("created_to", Kind::Text, "Only files named before this time"),
        query("tag", Kind::Texts, "Only files with this tag: NAME, or NAME=VALUE. May be repeated"),
        query(
            "meta.NAME",
            Kind::Texts,
            "Only files whose metadata have this value under NAME. May be repeated",
        ),
        query(
            "sort",
            Kind::Word(&orders),
            "The order; the default is relevance, and newest without q",
        ),
        query("snippet", Kind::Flag, "Add the text around the first word found to each file"),
        query("limit", LIMIT, "Maximum number of results; the default is 20"),
        query("cursor", Kind::Text, CURSOR),
    ]
}

/// Describes the route.
pub(super) fn described() -> Operation {
    Operation::new("files", "search_files", "Search files by words and properties")
        .text(
            "The index follows what is stored: `index` says how far it is behind. Every file in the \
             answer exists as it is shown.",
        )
        .parameters(parameters())
        .json::<SearchAnswer<'static>>(200, "The files that match")
        .problems(&[
            (400, "A parameter is invalid, or q has no word"),
            (404, "Search is switched off"),
            BUSY,
            STORAGE,
        ])
}
