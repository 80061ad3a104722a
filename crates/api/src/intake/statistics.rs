//! `GET /v1/files/statistics`: what the files are that a filter selects.

use std::collections::BTreeMap;

use axum::extract::{Request, State};
use axum::response::Response;
use forebay_intake::answer::{FileAnswer, time_text, to_json};
use forebay_intake::catalogue::{FileFilter, FileStatistics, FileSums};
use forebay_intake::{Intake, IntakeError};
use http::Uri;
use serde::Serialize;
use utoipa::ToSchema;

use super::files::{FILTERS, narrow};
use super::{json, problem, query, unknown_option};

/// Statistics of files.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileStatistics)]
pub(super) struct StatisticsAnswer<'a> {
    /// Number of files.
    files: u64,
    /// Bytes of all files.
    bytes: u64,
    /// Number of different contents.
    different_files: u64,
    /// Bytes of different contents: each is counted once.
    different_bytes: u64,
    /// Number of earlier versions that the filter selects.
    versions: u64,
    /// Their bytes.
    version_bytes: u64,
    /// Files by category; categories without files are absent.
    categories: BTreeMap<&'static str, Sums>,
    /// Files by media type, those with the most bytes first, at most 20.
    media_types: Vec<MediaType<'a>>,
    /// Files of all other media types.
    other_media_types: Sums,
    /// Files by namespace, those with the most bytes first, at most 100.
    namespaces: Vec<OfNamespace<'a>>,
    /// Files of all other namespaces.
    other_namespaces: Sums,
    /// Files by size, ascending; classes without files are absent.
    sizes: Vec<Sizes>,
    /// When the oldest name was given, RFC 3339; null without files.
    #[schema(required)]
    oldest: Option<String>,
    /// When the newest name was given, RFC 3339; null without files.
    #[schema(required)]
    newest: Option<String>,
    /// The largest files, at most ten.
    largest: Vec<FileAnswer<'a>>,
}

/// A number of files and their bytes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileSums)]
pub(super) struct Sums {
    /// Number of files.
    files: u64,
    /// Their bytes.
    bytes: u64,
}

/// Files of a media type.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileMediaType)]
struct MediaType<'a> {
    /// The media type.
    mime: &'a str,
    #[serde(flatten)]
    sums: Sums,
}

/// Files of a namespace.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileNamespaceShare)]
struct OfNamespace<'a> {
    /// The namespace.
    namespace: &'a str,
    #[serde(flatten)]
    sums: Sums,
}

/// Files of a class of sizes.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = FileSizeClass)]
struct Sizes {
    /// The least size, inclusive: 0, or a power of four.
    size_min: u64,
    /// The greatest size, inclusive.
    size_max: u64,
    #[serde(flatten)]
    sums: Sums,
}

impl Sums {
    pub(super) fn of(FileSums { files, bytes }: FileSums) -> Self {
        Self { files, bytes }
    }
}

impl<'a> StatisticsAnswer<'a> {
    fn of(found: &'a FileStatistics) -> Self {
        let categories = found.categories.iter();
        let types = found.media_types.iter();
        let namespaces = found.namespaces.iter();
        let sizes = found.sizes.iter();
        Self {
            files: found.all.files,
            bytes: found.all.bytes,
            different_files: found.different.files,
            different_bytes: found.different.bytes,
            versions: found.versions.files,
            version_bytes: found.versions.bytes,
            categories: categories.map(|(category, sums)| (*category, Sums::of(*sums))).collect(),
            media_types: types
                .map(|(mime, sums)| MediaType { mime, sums: Sums::of(*sums) })
                .collect(),
            other_media_types: Sums::of(found.other_media_types),
            namespaces: namespaces
                .map(|(namespace, sums)| OfNamespace { namespace, sums: Sums::of(*sums) })
                .collect(),
            other_namespaces: Sums::of(found.other_namespaces),
            sizes: sizes
                .map(|class| Sizes {
                    size_min: class.size_min,
                    size_max: class.size_max,
                    sums: Sums::of(class.sums),
                })
                .collect(),
            oldest: found.oldest_ms.map(time_text),
            newest: found.newest_ms.map(time_text),
            largest: found.largest.iter().map(FileAnswer::of).collect(),
        }
    }
}

pub(super) async fn get(State(intake): State<Intake>, request: Request) -> Response {
    match statistics(&intake, request.uri()).await {
        Ok(response) => response,
        Err(error) => problem::answer(&error, request.headers()),
    }
}

async fn statistics(intake: &Intake, uri: &Uri) -> Result<Response, IntakeError> {
    let mut filter = FileFilter::default();
    for (name, value) in query(uri) {
        if !narrow(&mut filter, &name, value)? {
            return Err(unknown_option(&name, FILTERS));
        }
    }
    let found = intake.statistics(filter).await?;
    Ok(json(200, to_json(&StatisticsAnswer::of(&found))))
}
