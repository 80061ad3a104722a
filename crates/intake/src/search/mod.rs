//! Search over files: by words in names and texts, by properties, in several orders.
//!
//! ```text
//! log --(as far as the catalogue has applied it)--> follow --> store --> search.sqlite
//! Intake::search --> words, filter --> find (search.sqlite) --> each hit compared with the catalogue
//! ```
//!
//! The index is a view of the log with its own thread (`follow`). It is never waited for: writes are
//! acknowledged and listed without it, and an answer says how far it is behind. It can be built again
//! at any time, and is when it is missing, damaged, of another version or of another log.
//!
//! Invariants: a file is returned only if its name refers to it when the answer is made, with the
//! record of the catalogue; the index is never beyond what the catalogue has applied; nothing that
//! happens to the index makes a write or another read fail.

mod check;
mod cursor;
mod filter;
mod find;
mod follow;
mod meters;
mod schema;
mod snippet;
mod store;
mod text;
mod words;

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_log::Lsn;
use parking_lot::{Condvar, Mutex, RwLock};
use rusqlite::Connection;
use tokio::sync::{Semaphore, watch};

use self::find::{FindError, Found, Hit, Plan};
use self::schema::Checked;
use self::words::Words;
use crate::Intake;
use crate::catalogue::FileRecord;
use crate::classify::check_wanted_type;
use crate::error::{CatalogueError, IntakeError};
use crate::intake::layout;
use crate::options::IntakeOptions;
use crate::pace;
use crate::shared::Shared;

pub(crate) use check::{Sound, check};
pub use cursor::{SearchCursor, SearchOrder};
pub use filter::SearchFilter;
pub(crate) use follow::Follower;
pub use text::TEXT_SIZE_MAX;
pub use words::{QUERY_SIZE_MAX, WORDS_MAX};

/// Maximum number of files on a page.
pub const SEARCH_PAGE_MAX: usize = 1_000;
/// Searches that read the index at the same time; others wait.
const TURNS: usize = 8;
/// How long a search waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(10);
/// How often a page is filled up after hits that the catalogue no longer has.
const ROUNDS_MAX: usize = 4;
/// Bytes of files that are read for the excerpts of one page.
const EXCERPTS_SIZE_MAX: u64 = 32 << 20;

/// A search.
#[derive(Debug, Clone, Default)]
pub struct SearchQuery {
    /// Words that name, text, comment, metadata or tags have; `None` selects by the filter alone.
    pub words: Option<String>,
    /// What else must hold.
    pub filter: SearchFilter,
    /// The order; by default relevance if there are words, otherwise the newest first.
    pub order: Option<SearchOrder>,
    /// Maximum number of files, at most [`SEARCH_PAGE_MAX`].
    pub limit: usize,
    /// Where the page begins: the end of the previous one. It decides the order.
    pub after: Option<SearchCursor>,
    /// Whether to read an excerpt from each text.
    pub excerpts: bool,
}

/// A file that a search found.
#[derive(Debug, Clone)]
pub struct FoundFile {
    /// The file.
    pub file: Arc<FileRecord>,
    /// Relevance, only comparable within one answer; `None` if the answer is not ranked.
    pub score: Option<f64>,
    /// The text around the first word that was found, on one line; `None` if none was asked for or
    /// only the name matches.
    pub excerpt: Option<String>,
}

/// A page of results.
#[derive(Debug, Clone)]
pub struct SearchPage {
    /// The files.
    pub files: Vec<FoundFile>,
    /// The order they are in.
    pub order: SearchOrder,
    /// Number of matches that the index has; `None` if they were too many to count.
    pub matches: Option<u64>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<SearchCursor>,
    /// The state of the index.
    pub index: SearchStatus,
}

/// The state of the search index.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SearchStatus {
    /// Number of files in it.
    pub files: u64,
    /// Number of files with text.
    pub texts: u64,
    /// Bytes of all texts.
    pub text_bytes: u64,
    /// Bytes of the log that it does not reflect yet; 0 when it is up to date.
    pub behind_bytes: u64,
    /// How long it has not been up to date, at most.
    pub behind: Duration,
    /// Why it does not follow at the moment, if it does not.
    pub waiting: Option<String>,
}

/// State shared by searches, the applier and the thread that follows the log.
#[derive(Debug)]
pub(crate) struct Search {
    path: PathBuf,
    orders: Mutex<Orders>,
    work: Condvar,
    progress: watch::Sender<Progress>,
    /// `None` while there is no index. Held for reading by every search, for writing while the index
    /// is replaced.
    readers: RwLock<Option<Readers>>,
    turns: Semaphore,
}

/// Orders to the thread.
#[derive(Debug)]
struct Orders {
    /// Position up to which the catalogue has applied the log.
    target: Lsn,
    /// When the target was first beyond the index.
    since: Option<Instant>,
    /// The damage that a search has met.
    damage: Option<String>,
    /// The target is waited for, so it is followed without a pause.
    is_awaited: bool,
    stop: bool,
}

/// What the index holds.
#[derive(Debug, Clone, Default)]
struct Progress {
    position: Lsn,
    files: u64,
    texts: u64,
    text_bytes: u64,
    waiting: Option<Arc<str>>,
    /// The thread has ended.
    is_closed: bool,
}

/// Idle connections that read the index.
#[derive(Debug)]
struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
}

impl Search {
    /// Returns `None` if search is switched off.
    ///
    /// * `target`: position up to which the catalogue has applied the log.
    pub(crate) fn of(options: &IntakeOptions, target: Lsn) -> Option<Arc<Self>> {
        let since = Some(Instant::now());
        options.search.then(|| {
            Arc::new(Self {
                path: options.dir.join(layout::SEARCH),
                orders: Mutex::new(Orders {
                    target,
                    since,
                    damage: None,
                    is_awaited: false,
                    stop: false,
                }),
                work: Condvar::new(),
                progress: watch::Sender::new(Progress::default()),
                readers: RwLock::new(None),
                turns: Semaphore::new(TURNS),
            })
        })
    }

    /// Pauses the thread for a time, or until a caller waits for it or it has to stop. Returns whether one
    /// does.
    fn pause(&self, pause: Duration) -> bool {
        pace::wait(&self.orders, &self.work, pause, |orders| orders.stop || orders.is_awaited)
    }

    /// Announces that the catalogue has applied the log up to `end`. Never waits for the index.
    pub(crate) fn announce(&self, end: Lsn) {
        let mut orders = self.orders.lock();
        orders.target = orders.target.max(end);
        // Otherwise the thread already follows, or waits for a limited time.
        if orders.since.is_none() {
            orders.since = Some(Instant::now());
            drop(orders);
            self.work.notify_one();
        }
    }

    /// The state of the index.
    ///
    /// * `end`: end of everything that was appended.
    fn status(&self, end: Lsn) -> SearchStatus {
        let progress = self.progress.borrow().clone();
        let since = self.orders.lock().since;
        SearchStatus {
            files: progress.files,
            texts: progress.texts,
            text_bytes: progress.text_bytes,
            behind_bytes: end.0.saturating_sub(progress.position.0),
            behind: since.map_or(Duration::ZERO, |since| since.elapsed()),
            waiting: progress.waiting.as_deref().map(str::to_owned),
        }
    }

    /// Reads the index. Blocks.
    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, FindError>,
    ) -> Result<T, IntakeError> {
        let readers = self.readers.read();
        let Some(readers) = readers.as_ref() else {
            return Err(IntakeError::Busy { what: "the search index is being opened" });
        };
        let failed =
            |source| IntakeError::Search(CatalogueError::new("read the search index", source));
        match readers.read(read) {
            Ok(found) => Ok(found),
            Err(FindError::Query(error)) => Err(error),
            Err(FindError::Index(fault)) if fault.is_damage() => {
                self.orders.lock().damage.get_or_insert_with(|| fault.to_string());
                self.work.notify_one();
                let what = "the search index is damaged and is being built again";
                Err(IntakeError::Busy { what })
            }
            Err(FindError::Index(fault)) => Err(failed(fault)),
        }
    }
}

impl Readers {
    fn open(path: PathBuf) -> Checked<Self> {
        let first = schema::open_reader(&path)?;
        Ok(Self { path, idle: Mutex::new(vec![first]) })
    }

    fn read<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, FindError>,
    ) -> Result<T, FindError> {
        let idle = self.idle.lock().pop();
        let connection = match idle {
            Some(connection) => connection,
            None => schema::open_reader(&self.path)?,
        };
        let found = {
            // One state of the index: several statements look at the same matches.
            let failed = |error: rusqlite::Error| FindError::Index(error.into());
            let _transaction = connection.unchecked_transaction().map_err(failed)?;
            read(&connection)
        };
        // At most as many as there are turns.
        self.idle.lock().push(connection);
        found
    }
}

impl Intake {
    /// Searches files by words in their names and texts, and by their properties.
    ///
    /// The index follows the log: what was just stored may be missing, and the answer says how far it
    /// is behind ([`SearchPage::index`]). Every file that is returned was compared with the catalogue,
    /// so a name that was deleted or replaced is never returned. A page may have fewer files than the
    /// limit although there are more.
    ///
    /// # Errors
    /// [`IntakeError::Rejected`]: there is no word, or a limit is exceeded. [`IntakeError::NotFound`]:
    /// search is switched off. [`IntakeError::Busy`]: the index is being built again. Others: the
    /// index or the catalogue could not be read.
    pub async fn search(&self, query: SearchQuery) -> Result<SearchPage, IntakeError> {
        let search = self.search_index()?;
        let limit = query.limit.clamp(1, SEARCH_PAGE_MAX);
        let words = query.words.as_deref().map(Words::parse).transpose()?;
        check_filter(&query.filter)?;
        let plan = Arc::new(Plan::new(&query, words.as_ref()));
        let turn = tokio::time::timeout(TURN_WAIT, search.turns.acquire()).await;
        let Ok(Ok(_turn)) = turn else {
            return Err(IntakeError::Busy { what: "too many searches are running" });
        };
        let begun = Instant::now();
        // Before anything is read: an index that catches up meanwhile would be described as newer than what was
        // found in it.
        let index = self.search_status()?;
        let mut page = Gathered::new(query.after.clone());
        for _ in 0..ROUNDS_MAX {
            let left = limit - page.files.len();
            let found = self.find_hits(search, &plan, page.next.clone(), left).await?;
            page.order = found.order;
            page.matches = page.matches.or(found.matches);
            page.next = found.more;
            // Fewer than asked for: as much was looked at as may be in one call.
            let is_limited = found.hits.len() < left;
            for hit in found.hits {
                page.files.extend(self.current(hit, &query.filter).await?);
            }
            if page.next.is_none() || is_limited || page.files.len() >= limit {
                break;
            }
        }
        if let (true, Some(words)) = (query.excerpts, words) {
            page.files = self.with_excerpts(page.files, words).await?;
        }
        meters::searched(begun.elapsed());
        Ok(SearchPage {
            files: page.files,
            order: page.order,
            matches: page.matches,
            next: page.next,
            index,
        })
    }

    /// The state of the search index.
    ///
    /// # Errors
    /// [`IntakeError::NotFound`]: search is switched off.
    pub fn search_status(&self) -> Result<SearchStatus, IntakeError> {
        let search = self.search_index()?;
        let shared = &self.inner.shared;
        let end = {
            // Under the lock, a change is in the queue or applied.
            let pending = shared.pending.lock();
            let applied = shared.applied.borrow().position;
            pending.last_end(None).map_or(applied, |pending| pending.max(applied))
        };
        Ok(search.status(end))
    }

    /// Waits until the index shows everything that was acknowledged before this call.
    ///
    /// # Errors
    /// [`IntakeError::NotFound`]: search is switched off. [`IntakeError::ViewStopped`]: the intake is
    /// closing. [`IntakeError::ViewWaiting`]: the index does not follow at the moment.
    pub async fn search_reached(&self) -> Result<(), IntakeError> {
        let search = self.search_index()?;
        self.inner.shared.catch_up().await?;
        let end = self.inner.shared.applied.borrow().position;
        let mut progress = search.progress.subscribe();
        search.orders.lock().is_awaited = true;
        search.work.notify_one();
        let closing = || IntakeError::ViewStopped { reason: "the intake is closing".into() };
        let reached = progress
            .wait_for(|found| found.position >= end || found.is_closed || found.waiting.is_some())
            .await
            .map_err(|_| closing())?;
        match &reached.waiting {
            _ if reached.position >= end => Ok(()),
            Some(reason) => Err(IntakeError::ViewWaiting { reason: reason.to_string() }),
            None => Err(closing()),
        }
    }

    fn search_index(&self) -> Result<&Arc<Search>, IntakeError> {
        self.inner.shared.search.as_ref().ok_or_else(|| {
            let what = "search index: the setting intake.search is false".to_owned();
            IntakeError::NotFound { what }
        })
    }

    async fn find_hits(
        &self,
        search: &Arc<Search>,
        plan: &Arc<Plan>,
        after: Option<SearchCursor>,
        limit: usize,
    ) -> Result<Found, IntakeError> {
        let (search, plan) = (search.clone(), plan.clone());
        let found = forebay_base::blocking::spawn(move || {
            search.read(|connection| plan.find(connection, after.as_ref(), limit))
        });
        found.await.unwrap_or_else(|_| {
            Err(IntakeError::ViewStopped { reason: "the search was interrupted".into() })
        })
    }

    /// The file of a hit as the catalogue has it; `None` if its name does not refer to it any more.
    async fn current(
        &self,
        hit: Hit,
        filter: &SearchFilter,
    ) -> Result<Option<FoundFile>, IntakeError> {
        let Hit { file, score, .. } = hit;
        let (Ok(namespace), Ok(name)) = (
            crate::names::Namespace::parse(&file.namespace),
            crate::names::FileName::parse_stored(&file.name),
        ) else {
            return Ok(None);
        };
        let found = self.inner.shared.file(&(namespace, name)).await?;
        let current = found.map(|(record, _)| record);
        let current = current.filter(|record| record.id == file.id && filter.selects(record));
        Ok(current.map(|file| FoundFile { file, score, excerpt: None }))
    }

    /// Reads an excerpt from the text of each file.
    async fn with_excerpts(
        &self,
        files: Vec<FoundFile>,
        words: Words,
    ) -> Result<Vec<FoundFile>, IntakeError> {
        let shared = self.inner.shared.clone();
        let excerpts = forebay_base::blocking::spawn(move || {
            let mut left = EXCERPTS_SIZE_MAX;
            let excerpt = |mut found: FoundFile| {
                if text::is_indexed(&found.file.mime, found.file.size) && found.file.size <= left {
                    left -= found.file.size;
                    found.excerpt = excerpt(&shared, &found.file, &words)?;
                }
                Ok(found)
            };
            files.into_iter().map(excerpt).collect()
        });
        excerpts.await.unwrap_or_else(|_| {
            Err(IntakeError::ViewStopped { reason: "the search was interrupted".into() })
        })
    }
}

/// A page that is being filled.
struct Gathered {
    files: Vec<FoundFile>,
    order: SearchOrder,
    matches: Option<u64>,
    next: Option<SearchCursor>,
}

impl Gathered {
    fn new(next: Option<SearchCursor>) -> Self {
        Self { files: Vec::new(), order: SearchOrder::Newest, matches: None, next }
    }
}

fn check_filter(filter: &SearchFilter) -> Result<(), IntakeError> {
    if filter.tags.len() + filter.metadata.len() > WORDS_MAX {
        let message = format!("at most {WORDS_MAX} tags and metadata can be searched for at once");
        return Err(IntakeError::rejected("query", message));
    }
    filter.media_type.as_deref().map_or(Ok(()), check_wanted_type)
}

/// The excerpt of one file; `None` if its name has changed meanwhile, or no word is found.
fn excerpt(
    shared: &Shared,
    file: &FileRecord,
    words: &Words,
) -> Result<Option<String>, IntakeError> {
    let _pinned = follow::Pinned::new(shared, file.digest);
    // Hits come from the index, which is never beyond the catalogue.
    let Some(blob) = shared.reader.live_blob(file.digest)? else { return Ok(None) };
    match text::read(shared, &blob) {
        Ok(bytes) => Ok(snippet::snippet(&text::text_of(&bytes, &file.mime), words)),
        Err(error) if error.shortage().is_some() => Err(error),
        // The file was found all the same; who reads it learns what is wrong.
        Err(error) => {
            let error = forebay_base::error_chain::chain(&error).to_string();
            tracing::warn!(%error, "could not read a file for an excerpt");
            Ok(None)
        }
    }
}
