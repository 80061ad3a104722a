//! Writing to the cache: several pipelined connections, every reply noted in the oracle.
//!
//! Invariant: a write ends as exactly one of acknowledged and unanswered. Unanswered ones are there
//! only where the server was being killed; before that a lost connection is an error.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use parking_lot::Mutex;

use super::items::Item;
use super::oracle::{Oracle, Write};
use crate::cache_client::{Client, Reply, Speaks};
use crate::tour::interrupt::Interrupt;

/// Beyond this a server on the same machine hangs.
const STALL_LIMIT: Duration = Duration::from_secs(60);
/// Writes sent ahead of their replies, and about how many bytes.
const PIPELINE: usize = 64;
const PIPELINE_SIZE: usize = 1 << 20;
/// Writes sent ahead while a snapshot is taken: the fewer, the more a wait tells.
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

/// How a load ended.
#[derive(Debug, Default)]
pub(super) struct Left<'a> {
    /// What was not sent.
    pub(super) queue: VecDeque<Todo<'a>>,
    pub(super) unanswered: Vec<Write>,
    /// Files that could not be read.
    pub(super) unread: u64,
}

/// Opens a RESP connection that does not wait for ever.
pub(super) fn connect(address: SocketAddr) -> anyhow::Result<Client> {
    let mut client = Client::connect(address, Speaks::Resp, None)?;
    client.set_stall_limit(STALL_LIMIT)?;
    Ok(client)
}

impl Load<'_> {
    /// Writes what is queued until nothing is left or the server is gone.
    ///
    /// * `acknowledged`: told after each batch how many writes have been acknowledged in all, and
    ///   the bytes of the batch.
    ///
    /// # Errors
    /// The first of a connection or of `acknowledged`.
    pub(super) fn run<'q>(
        &self,
        queue: VecDeque<Todo<'q>>,
        oracle: &Mutex<Oracle>,
        acknowledged: &(dyn Fn(u64, u64) -> anyhow::Result<()> + Sync),
    ) -> anyhow::Result<Left<'q>> {
        let queue = Mutex::new(queue);
        let (over, unread) = (AtomicBool::new(false), AtomicU64::new(0));
        let unanswered = self.on_each_connection(&over, &|_, client| {
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
        })?;
        Ok(Left { queue: queue.into_inner(), unanswered, unread: unread.into_inner() })
    }

    /// Writes the same items again and again until the server is gone; returns what was unanswered
    /// and the longest wait for a batch of replies while `watched` was set.
    ///
    /// A key has one write under way at most: each connection has keys of its own.
    ///
    /// # Errors
    /// The first of a connection.
    pub(super) fn rewrite(
        &self,
        items: &[Item<'_>],
        oracle: &Mutex<Oracle>,
        watched: &AtomicBool,
        over: &AtomicBool,
    ) -> anyhow::Result<(Vec<Write>, Duration)> {
        let longest = Mutex::new(Duration::ZERO);
        let unanswered = self.on_each_connection(over, &|number, client| {
            let own: Vec<_> = items.iter().skip(number).step_by(self.connections).collect();
            for round in 0.. {
                for part in own.chunks(REWRITE_PIPELINE) {
                    if over.load(Ordering::Relaxed) {
                        return Ok(Vec::new());
                    }
                    let batch: anyhow::Result<_> =
                        part.iter().map(|item| item.rewrite(round)).collect();
                    let batch = batch?;
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
                if own.is_empty() {
                    break;
                }
            }
            Ok(Vec::new())
        })?;
        Ok((unanswered, longest.into_inner()))
    }

    /// Runs `work` on every connection; the first error ends all.
    fn on_each_connection(
        &self,
        over: &AtomicBool,
        work: &(dyn Fn(usize, &mut Client) -> anyhow::Result<Vec<Write>> + Sync),
    ) -> anyhow::Result<Vec<Write>> {
        let run = &|number| {
            let worked = match connect(self.address) {
                Ok(mut client) => work(number, &mut client),
                Err(_) if self.dying.load(Ordering::SeqCst) => Ok(Vec::new()),
                Err(error) => Err(error),
            };
            if worked.is_err() {
                over.store(true, Ordering::Relaxed);
            }
            worked
        };
        std::thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.connections).map(|number| scope.spawn(move || run(number))).collect();
            let mut unanswered = Vec::new();
            let mut failed = None;
            for worker in workers {
                match worker.join() {
                    Ok(Ok(left)) => unanswered.extend(left),
                    Ok(Err(error)) => failed = failed.or(Some(error)),
                    Err(_) => bail!("a writing thread panicked"),
                }
            }
            failed.map_or(Ok(unanswered), Err)
        })
    }

    /// Sends a batch and reads its replies; returns how many writes have been acknowledged in all,
    /// and those of the batch that were not.
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
                Err(error).context("the cache was lost under load")
            }
            _ => Ok((total, unanswered)),
        }
    }
}

/// The next writes of the queue, as many as go out at once.
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
