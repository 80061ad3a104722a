//! Writes to the cache: several pipelined connections, every reply recorded in the oracle.
//!
//! Invariant: a write ends as exactly one of acknowledged and unanswered. Writes are unanswered
//! only if the server was being killed; before that a lost connection is an error.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;

use super::items::Item;
use super::oracle::{Oracle, Write};
use crate::tour::HANGS_AFTER;
use crate::tour::first::{First, on_threads};
use forebay_console::cache_client::{Client, Protocol, Reply};
use forebay_console::interrupt::Interrupt;

/// Number of writes sent ahead of their replies, and their approximate size.
const PIPELINE: usize = 64;
const PIPELINE_SIZE: usize = 1 << 20;
/// Number of writes sent ahead during a snapshot: the fewer, the more precise the wait.
const REWRITE_PIPELINE: usize = 16;

/// Something to write: for the first time, or again.
#[derive(Debug)]
pub(super) enum Todo<'a> {
    New(Item<'a>),
    Again(Write),
}

/// A load on one server.
pub(super) struct Load<'a> {
    pub(super) address: SocketAddr,
    pub(super) connections: usize,
    /// Set before the server is killed.
    pub(super) dying: &'a AtomicBool,
    pub(super) interrupt: &'a Interrupt,
}

/// The result of a load.
#[derive(Debug, Default)]
pub(super) struct Remaining<'a> {
    /// What was not sent.
    pub(super) queue: VecDeque<Todo<'a>>,
    pub(super) unanswered: Vec<Write>,
    /// Files that could not be read.
    pub(super) unread: u64,
}

/// Opens a RESP connection with time limits.
pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Client> {
    let mut client = Client::connect(address, Protocol::Resp, None)?;
    client.set_stall_limit(HANGS_AFTER)?;
    Ok(client)
}

impl Load<'_> {
    /// Writes what is queued until nothing is left or the server has ended.
    ///
    /// * `acknowledged`: called after each batch with the total number of acknowledged writes, and
    ///   the bytes of the batch.
    ///
    /// # Errors
    /// The first error of a connection or of `acknowledged`.
    pub(super) fn run<'q>(
        &self,
        queue: VecDeque<Todo<'q>>,
        oracle: &Mutex<Oracle>,
        acknowledged: &(dyn Fn(u64, u64) -> anyhow::Result<()> + Sync),
    ) -> anyhow::Result<Remaining<'q>> {
        let queue = Mutex::new(queue);
        let (over, unread) = (AtomicBool::new(false), AtomicU64::new(0));
        let first = First::default();
        let unanswered = self.on_each_connection(&over, &first, &|_, client| {
            let mut unanswered = Vec::new();
            while !over.load(Ordering::Relaxed) && unanswered.is_empty() {
                self.interrupt.check()?;
                let batch = take(&queue, &unread);
                if batch.is_empty() {
                    break;
                }
                let size = batch.iter().map(|write| write.size() as u64).sum();
                let total;
                (total, unanswered) = self.exchange(client, batch, oracle)?;
                acknowledged(total, size)?;
            }
            Ok(unanswered)
        });
        first.result()?;
        Ok(Remaining { queue: queue.into_inner(), unanswered, unread: unread.into_inner() })
    }

    /// Writes the same items repeatedly until the server has ended; returns the unanswered writes
    /// and the longest wait for a batch of replies while `watched` was set.
    ///
    /// A key has at most one write in progress, because each connection has its own keys. A file
    /// that can no longer be read is skipped, as [`Load::run`] does.
    ///
    /// Errors of connections are kept in `first`.
    pub(super) fn rewrite(
        &self,
        items: &[Item<'_>],
        oracle: &Mutex<Oracle>,
        watched: &AtomicBool,
        over: &AtomicBool,
        first: &First,
    ) -> (Vec<Write>, Duration) {
        let longest = Mutex::new(Duration::ZERO);
        let unanswered = self.on_each_connection(over, first, &|number, client| {
            let own: Vec<_> = items.iter().skip(number).step_by(self.connections).collect();
            for round in 0.. {
                let mut written = 0;
                for part in own.chunks(REWRITE_PIPELINE) {
                    if over.load(Ordering::Relaxed) {
                        return Ok(Vec::new());
                    }
                    let batch = part.iter().filter_map(|item| item.rewrite(round).ok());
                    let batch: Vec<Write> = batch.collect();
                    written += batch.len();
                    let begun = Instant::now();
                    let (_, unanswered) = self.exchange(client, batch, oracle)?;
                    if !unanswered.is_empty() {
                        return Ok(unanswered);
                    }
                    if watched.load(Ordering::Relaxed) {
                        let mut longest = longest.lock();
                        *longest = longest.max(begun.elapsed());
                    }
                }
                if written == 0 {
                    break;
                }
            }
            Ok(Vec::new())
        });
        (unanswered, longest.into_inner())
    }

    /// Runs `work` on every connection and returns the unanswered writes; an error ends all.
    fn on_each_connection(
        &self,
        over: &AtomicBool,
        first: &First,
        work: &(dyn Fn(usize, &mut Client) -> anyhow::Result<Vec<Write>> + Sync),
    ) -> Vec<Write> {
        let all = Mutex::new(Vec::new());
        on_threads(self.connections, first, &|number| {
            let worked = match connect(self.address) {
                Ok(mut client) => work(number, &mut client),
                Err(_) if self.dying.load(Ordering::SeqCst) => Ok(Vec::new()),
                Err(error) => Err(error),
            };
            match worked {
                Ok(unanswered) => all.lock().extend(unanswered),
                Err(error) => {
                    first.note(error);
                    over.store(true, Ordering::Relaxed);
                }
            }
            Ok(())
        });
        all.into_inner()
    }

    /// Sends a batch and reads its replies; returns the total number of acknowledged writes,
    /// and the unacknowledged writes of the batch.
    fn exchange(
        &self,
        client: &mut Client,
        batch: Vec<Write>,
        oracle: &Mutex<Oracle>,
    ) -> anyhow::Result<(u64, Vec<Write>)> {
        batch.iter().for_each(|write| client.command(&write.words));
        let mut lost = client.send().err();
        let (mut answered, mut unanswered) = (Vec::with_capacity(batch.len()), Vec::new());
        for write in batch {
            match if lost.is_none() { client.read().map_err(Some) } else { Err(None) } {
                Ok(Reply::Error(text)) => {
                    let name = write.words.first().map(|word| String::from_utf8_lossy(word));
                    bail!("the cache answered {} with {text}", name.unwrap_or_default());
                }
                Ok(_) => answered.push(write),
                Err(error) => {
                    lost = lost.or(error);
                    unanswered.push(write);
                }
            }
        }
        let total = {
            let mut oracle = oracle.lock();
            answered.into_iter().for_each(|write| oracle.acknowledged(write));
            oracle.writes
        };
        match lost {
            Some(error) if !self.dying.load(Ordering::SeqCst) => {
                Err(error).context("lost the connection to the cache under load")
            }
            _ => Ok((total, unanswered)),
        }
    }
}

/// Returns the next writes of the queue, up to the size of a batch.
fn take(queue: &Mutex<VecDeque<Todo<'_>>>, unread: &AtomicU64) -> Vec<Write> {
    let (mut batch, mut size) = (Vec::with_capacity(PIPELINE), 0);
    while batch.len() < PIPELINE && size < PIPELINE_SIZE {
        let Some(todo) = queue.lock().pop_front() else { break };
        let writes = match todo {
            Todo::Again(write) => vec![write],
            Todo::New(item) => item.writes().unwrap_or_else(|_| {
                unread.fetch_add(1, Ordering::Relaxed);
                Vec::new()
            }),
        };
        size += writes.iter().map(Write::size).sum::<usize>();
        batch.extend(writes);
    }
    batch
}
