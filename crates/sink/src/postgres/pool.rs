//! Connections that readers borrow.
//!
//! Invariants: at most `connections_max` are open, and a request for one more waits at most
//! `acquire_timeout`; a returned connection has no open transaction; those idle for `idle_timeout`
//! are closed, except for `connections_min` of them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::Client;

use super::connect::Server;
use super::settings::PoolSettings;
use crate::server::ServerError;

/// Connections to one server.
#[derive(Debug)]
pub(super) struct Pool {
    server: Server,
    settings: PoolSettings,
    permits: Semaphore,
    /// Idle connections, the most recently used last.
    idle: Mutex<Vec<(Client, Instant)>>,
}

/// A borrowed connection; closed when it is dropped without having been given back.
#[derive(Debug)]
pub(super) struct Lent<'p> {
    pub(super) client: Client,
    // Given back after the connection was.
    _permit: SemaphorePermit<'p>,
}

impl Pool {
    pub(super) fn new(server: Server, settings: PoolSettings) -> Result<Pool, ServerError> {
        let most = settings.connections_max;
        if most == 0 || most > Semaphore::MAX_PERMITS || settings.connections_min > most {
            return Err(ServerError::settings(
                format!("the pool cannot have {} to {most} connections", settings.connections_min),
                "set the maximum to at least 1, and the minimum to at most the maximum",
            ));
        }
        let permits = Semaphore::new(most);
        Ok(Pool { server, settings, permits, idle: Mutex::default() })
    }

    /// Opens the minimum number of connections.
    pub(super) async fn warm_up(&self) -> Result<(), ServerError> {
        for _ in 0..self.settings.connections_min.max(1) {
            let client = self.server.connect().await?;
            self.idle().push((client, Instant::now()));
        }
        Ok(())
    }

    /// Returns an idle connection, or a new one.
    pub(super) async fn lend(&self) -> Result<Lent<'_>, ServerError> {
        let wait = self.settings.acquire_timeout;
        let permit = match tokio::time::timeout(wait, self.permits.acquire()).await {
            Ok(Ok(permit)) => permit,
            Ok(Err(closed)) => return Err(self.busy(closed)),
            Err(elapsed) => return Err(self.busy(elapsed)),
        };
        let found = self.take(Instant::now());
        let client = match found {
            Some(client) => client,
            None => self.server.connect().await?,
        };
        Ok(Lent { client, _permit: permit })
    }

    /// Takes back a connection without an open transaction.
    pub(super) fn give_back(&self, lent: Lent<'_>) {
        if !lent.client.is_closed() {
            self.idle().push((lent.client, Instant::now()));
        }
    }

    /// The most recently used one, after closing those idle for too long.
    fn take(&self, now: Instant) -> Option<Client> {
        let mut idle = self.idle();
        idle.retain(|(client, _)| !client.is_closed());
        let kept = self.settings.connections_min;
        let limit: Duration = self.settings.idle_timeout;
        let beyond = idle.len().saturating_sub(kept);
        let old = idle.iter().take(beyond);
        let old = old.take_while(|(_, since)| now.duration_since(*since) > limit).count();
        idle.drain(..old);
        idle.pop().map(|(client, _)| client)
    }

    /// The state behind the lock is consistent whatever a holder did.
    fn idle(&self) -> MutexGuard<'_, Vec<(Client, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn busy(&self, source: impl std::error::Error + Send + Sync + 'static) -> ServerError {
        let act = format!("wait for one of {} connections", self.settings.connections_max);
        ServerError::Busy { act, server: self.server.name().to_owned(), source: Box::new(source) }
    }
}
