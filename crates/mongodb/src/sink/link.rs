//! The database that a sink writes to, and its network thread.
//!
//! Invariants: every request gets an answer or a failure within a time limit; a write is done when it
//! is in the journal (of a majority of members, if there are several).

use std::future::Future;
use std::time::Duration;

use forebay_sink::ServerError;
use forebay_sink::server::driver::Driver;
use mongodb::Database;
use mongodb::error::Error;

use super::settings::Settings;
use crate::connect::Server;
use crate::error::failure;

/// A database of a server, and the thread that speaks to it.
#[derive(Debug)]
pub(super) struct Link {
    // Before the driver, which its tasks live on.
    pub(super) database: Database,
    answer_timeout: Duration,
    /// Its name in messages: the database and the server.
    pub(super) place: String,
    driver: Driver,
}

impl Link {
    /// Locates the server.
    pub(super) fn new(settings: &Settings) -> Result<Link, ServerError> {
        let driver = Driver::new("forebay-mongodb")?;
        let server = Server::new(settings.server());
        let located = driver.wait(settings.connect_timeout, async {
            let database = server.database().await?.clone();
            Ok((database, server.hosts().await?.join(",")))
        });
        let (database, hosts) = located.unwrap_or_else(|| {
            Err(ServerError::Unreachable {
                act: "connect".to_owned(),
                server: "MongoDB".to_owned(),
                source: "its name could not be resolved in time".into(),
            })
        })?;
        let place = format!("database {} of MongoDB at {hosts}", database.name());
        Ok(Link { database, answer_timeout: settings.answer_timeout, place, driver })
    }

    /// Waits for the server's answer to `future`.
    pub(super) fn wait<T>(
        &self,
        act: &str,
        future: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, ServerError> {
        match self.driver.wait(self.answer_timeout, future) {
            Some(answer) => answer.map_err(|error| failure(act, &self.place, &error)),
            None => Err(ServerError::Unreachable {
                act: act.to_owned(),
                server: self.place.clone(),
                source: "no answer in time".into(),
            }),
        }
    }

    /// An error for invalid contents.
    pub(super) fn contents(&self, act: &str, found: String) -> ServerError {
        ServerError::Contents { act: act.to_owned(), server: self.place.clone(), found }
    }
}
