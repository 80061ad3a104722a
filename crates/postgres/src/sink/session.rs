//! The connection a sink writes over.
//!
//! Invariants:
//! * A session that has the connection has the schema's lock: it is taken before anything is read,
//!   and the server releases it when the session ends. So the outcome of a commit whose answer was
//!   lost is final once a new session has the lock, and what it reads then is true.
//! * Every call ends: a server that does not answer in time counts as unreachable, and its
//!   connection is dropped.

use std::fmt;
use std::future::{Future, poll_fn, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use forebay_base::server_error::Cause;
use forebay_sink::ServerError;
use forebay_sink::name::IDENTIFIER_LEN_MAX;
use forebay_sink::server::book::Book;
use forebay_sink::server::driver::Driver;
use tokio_postgres::{Client, SimpleQueryMessage};

use super::layout::{self, Layout};
use super::settings::Settings;
use crate::connect::{Server, failure};

/// Additional time beyond the server's own limit before a statement counts as lost.
const GRACE: Duration = Duration::from_secs(10);
/// Timeout of an answer if the server limits no statement.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3600);

/// A pending answer.
type Answer = Result<Vec<SimpleQueryMessage>, tokio_postgres::Error>;

/// The connection, if there is one.
pub(super) struct Session {
    // Before the driver, which its tasks live on.
    client: Option<Arc<Client>>,
    /// The request that began the open transaction, until its answer was received.
    begun: Option<Pin<Box<dyn Future<Output = Answer> + Send>>>,
    server: Server,
    pub(super) layout: Layout,
    lock_timeout: Duration,
    answer_timeout: Duration,
    connect_timeout: Duration,
    /// Its name in messages: the schema and the server.
    pub(super) place: String,
    pub(super) driver: Driver,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Session {
    pub(super) fn new(settings: &Settings) -> Result<Session, ServerError> {
        check_schema(&settings.schema)?;
        let server = Server::new(&settings.server)?;
        let place = format!("schema {} of {}", settings.schema, server.name());
        let answer_timeout =
            settings.server.statement_timeout.map_or(ANSWER_TIMEOUT, |timeout| timeout + GRACE);
        Ok(Session {
            client: None,
            begun: None,
            server,
            layout: Layout::new(&settings.schema),
            lock_timeout: settings.lock_timeout,
            answer_timeout,
            // Name, connection, TLS and log-in, each of which has its own limit as well.
            connect_timeout: settings.server.connect_timeout * 2,
            place,
            driver: Driver::new("forebay-postgres")?,
        })
    }

    /// The connection, if it is still open.
    pub(super) fn client(&self) -> Option<Arc<Client>> {
        self.client.as_ref().filter(|client| !client.is_closed()).map(Arc::clone)
    }

    /// The connection; an error if there is none.
    pub(super) fn connected(&self, act: &str) -> Result<Arc<Client>, ServerError> {
        self.client().ok_or_else(|| self.lost(act, "the connection was closed"))
    }

    /// Ends the connection.
    pub(super) fn disconnect(&mut self) {
        self.begun = None;
        self.client = None;
    }

    /// Sends the beginning of a transaction without waiting for its answer: the following requests
    /// are executed after it in any case, and [`begun`](Self::begun) receives the answer before the
    /// commit.
    pub(super) fn begin(&mut self, act: &str, sql: String) -> Result<(), ServerError> {
        let client = self.connected(act)?;
        let mut answer: Pin<Box<dyn Future<Output = Answer> + Send>> =
            Box::pin(async move { client.simple_query(&sql).await });
        // Asked for once, it is on its way.
        let asked = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context)));
        match self.driver.wait(self.answer_timeout, asked) {
            Some(Poll::Ready(Err(error))) => return Err(failure(act, &self.place, error)),
            Some(Poll::Ready(Ok(answer))) => self.begun = Some(Box::pin(ready(Ok(answer)))),
            Some(Poll::Pending) => self.begun = Some(answer),
            None => return Err(self.lost(act, "the request could not be sent in time")),
        }
        Ok(())
    }

    /// The answer to the beginning of the transaction; `None` if it was received already.
    pub(super) fn begun(
        &mut self,
        act: &str,
    ) -> Result<Option<Vec<SimpleQueryMessage>>, ServerError> {
        let Some(answer) = self.begun.take() else { return Ok(None) };
        self.wait(act, answer).map(Some)
    }

    /// Forgets a transaction that will not be committed.
    pub(super) fn forget(&mut self) {
        self.begun = None;
    }

    /// Waits for the server's answer to `future`.
    pub(super) fn wait<T>(
        &mut self,
        act: &str,
        future: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, ServerError> {
        match self.driver.wait(self.answer_timeout, future) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => Err(failure(act, &self.place, error)),
            None => {
                // A late answer could not be matched with its request.
                self.disconnect();
                Err(self.lost(act, "no answer in time"))
            }
        }
    }

    /// Runs a simple query.
    pub(super) fn ask(
        &mut self,
        act: &str,
        sql: &str,
    ) -> Result<Vec<SimpleQueryMessage>, ServerError> {
        let client = self.connected(act)?;
        self.wait(act, client.simple_query(sql))
    }

    /// A connection that was lost.
    pub(super) fn lost(&self, act: &str, why: &'static str) -> ServerError {
        ServerError::Unreachable {
            act: act.to_owned(),
            server: self.place.clone(),
            source: why.into(),
        }
    }

    /// An error for invalid contents.
    pub(super) fn contents(&self, act: &str, found: String) -> ServerError {
        ServerError::Contents { act: act.to_owned(), server: self.place.clone(), found }
    }

    /// Connects unless connected, takes the lock, and creates the tables if they do not exist.
    ///
    /// Returns whether this is a new connection.
    pub(super) fn connect(&mut self) -> Result<bool, ServerError> {
        if self.client().is_some() {
            return Ok(false);
        }
        self.disconnect();
        let client = self.driver.wait(self.connect_timeout, self.server.connect());
        let Some(client) = client else {
            return Err(self.lost("connect", "no connection in time"));
        };
        self.client = Some(Arc::new(client?));
        let prepared = self.lock().and_then(|()| self.prepare());
        if prepared.is_err() {
            self.disconnect();
        }
        prepared.map(|()| true)
    }

    fn lock(&mut self) -> Result<(), ServerError> {
        let timeout_ms = self.lock_timeout.as_millis().max(1);
        let key = layout::lock_key(&self.layout.name);
        let sql = format!(
            "SET lock_timeout = {timeout_ms}; SELECT pg_advisory_lock({key}); SET lock_timeout = 0; \
             SHOW server_encoding"
        );
        let answer = match self.ask("lock the sink", &sql) {
            // This waited for the sink's lock; nothing else is locked here.
            Err(ServerError::Busy { act, server, source }) if is_locked(&source) => {
                drop(source);
                return Err(ServerError::InUse { act, server });
            }
            answer => answer?,
        };
        let encoding = layout::rows(&answer).last().and_then(|row| row.try_get(0).ok().flatten());
        match encoding {
            Some("UTF8") => Ok(()),
            other => Err(ServerError::settings(
                format!("{} has the encoding {}", self.place, other.unwrap_or("unknown")),
                "use a database created with ENCODING 'UTF8', which can store any text",
            )),
        }
    }

    fn prepare(&mut self) -> Result<(), ServerError> {
        let answer = self.ask("look up the sink", &self.layout.probe())?;
        let is_there = |index| {
            let row = layout::rows(&answer).next();
            row.and_then(|row| row.try_get(index).ok().flatten()) == Some("t")
        };
        if !is_there(1) {
            self.ask("create the sink's tables", &self.layout.create(!is_there(0)))?;
        }
        Ok(())
    }

    /// Reads the server's state.
    pub(super) fn read(&mut self) -> Result<Book, ServerError> {
        const ACT: &str = "read the state of the sink";
        let state = self.ask(ACT, &self.layout.state())?;
        let (identity, position) =
            layout::parse_state(&state).map_err(|found| self.contents(ACT, found))?;
        let namespaces = self.ask(ACT, &self.layout.namespaces())?;
        let columns = self.ask(ACT, &self.layout.columns())?;
        let namespaces = layout::parse_namespaces(&namespaces, &columns)
            .map_err(|found| self.contents(ACT, found))?;
        Ok(Book::new(identity, position, namespaces))
    }
}

fn is_locked(source: &Cause) -> bool {
    let error = source.downcast_ref::<tokio_postgres::Error>();
    let code = error.and_then(tokio_postgres::Error::code);
    code == Some(&tokio_postgres::error::SqlState::LOCK_NOT_AVAILABLE)
}

/// A schema can have any name that is stored in full.
fn check_schema(name: &str) -> Result<(), ServerError> {
    if name.is_empty() || name.len() > IDENTIFIER_LEN_MAX || name.contains('\0') {
        return Err(ServerError::settings(
            "`schema` is not a valid schema name",
            "use one of 1 to 63 bytes",
        ));
    }
    Ok(())
}
