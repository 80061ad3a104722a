//! The server: sockets in front of an engine.
//!
//! Both protocols run on the same threads, see [`crate::resp`] and [`crate::text`]. In the default
//! mode ([`Mode::PerConnection`]) each of a few threads owns an epoll instance or a ring and its
//! connections, and runs their commands itself; as many threads are in use as the load needs. In
//! the other mode ([`Mode::Pooled`]) a limited pool of threads serves the connections that have
//! work. Both modes use the same `connection`.
//!
//! Invariants: the replies of a turn are sent after its effects were settled; every buffer, queue
//! and count has a limit; a client can slow down or end only its own connection.

mod acceptor;
mod balance;
mod connection;
mod epoll;
mod error;
mod event_loop;
mod http;
mod inbox;
mod listen;
mod options;
mod pool;
mod readiness;
mod request;
mod sizing;
mod slots;
mod statistics;
mod tls;
mod transport;
mod uring;
mod work;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use mio::{Poll, Token, Waker};
use parking_lot::Mutex;

use crate::engine::Engine;
use acceptor::{Acceptor, Listening};
use balance::Balance;
use epoll::Epoll;
use event_loop::EventLoop;
use inbox::{Inbox, Moved};
use pool::Poller;
use statistics::Counters;
use uring::Uring;
use work::Work;

pub use error::StartError;
pub use options::{Mode, Network, ServerLimits, ServerOptions, TlsOptions, TlsSource};
pub use statistics::{PoolStatistics, ServerStatistics, ThreadStatistics};

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wire {
    Resp,
    Text,
}

const WAKER: Token = Token(usize::MAX);
const LISTEN_RESP: Token = Token(usize::MAX - 1);
const LISTEN_TEXT: Token = Token(usize::MAX - 2);
const LISTEN_TLS_RESP: Token = Token(usize::MAX - 3);
const LISTEN_TLS_TEXT: Token = Token(usize::MAX - 4);

/// State shared by all threads of a server.
#[derive(Debug)]
struct Shared {
    engine: Arc<Engine>,
    counters: Arc<Counters>,
    limits: ServerLimits,
    stopping: AtomicBool,
    /// One for each event loop (or for the pool's poller).
    inboxes: Vec<Arc<Inbox>>,
    balance: Balance,
    /// Where the search for the thread with the fewest connections starts.
    turn: AtomicUsize,
}

impl Shared {
    /// Records that a connection of a thread is closed.
    fn left(&self, thread: usize) {
        self.counters.open.fetch_sub(1, Relaxed);
        self.counters.thread(thread).open.fetch_sub(1, Relaxed);
        self.engine.statistics().clients.fetch_sub(1, Relaxed);
    }

    /// The thread in use that has the fewest connections; in turn, of those that have the same
    /// number.
    fn fewest_connections(&self) -> Option<usize> {
        let count = self.balance.active().min(self.inboxes.len());
        let turn = self.turn.fetch_add(1, Relaxed);
        let open = |at: usize| self.counters.thread(at).open.load(Relaxed);
        (0..count).map(|step| turn.wrapping_add(step) % count).min_by_key(|&at| open(at))
    }

    /// Gives a connection of one thread to another.
    fn hand_over(&self, from: usize, to: usize, moved: Moved) {
        self.counters.thread(from).open.fetch_sub(1, Relaxed);
        let counters = self.counters.thread(to);
        counters.open.fetch_add(1, Relaxed);
        counters.taken.fetch_add(1, Relaxed);
        if let Some(inbox) = self.inboxes.get(to) {
            inbox.leave(|left| left.moved.push(moved));
        }
    }
}

/// A running server.
///
/// Dropping it stops it as [`Server::stop`] does.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    resp: Option<SocketAddr>,
    text: Option<SocketAddr>,
    tls_resp: Option<SocketAddr>,
    tls_text: Option<SocketAddr>,
    pooled: bool,
}

impl Server {
    /// Listens, starts the threads and serves `engine` on them.
    ///
    /// # Errors
    /// [`StartError`]: no address is listened on, and no thread is left.
    pub fn start(engine: Arc<Engine>, options: &ServerOptions) -> Result<Self, StartError> {
        let pooled = matches!(options.mode, Mode::Pooled { .. });
        let count = match (pooled, options.threads) {
            // One thread waits for events; the workers do the rest.
            (true, _) => 1,
            (false, 0) => std::thread::available_parallelism().map_or(1, usize::from),
            (false, threads) => threads.min(1_024),
        };
        let counters = Arc::new(Counters::new(count));
        let limits = options.limits;
        let mut listening = Vec::new();
        let resp = listen(options.resp, Wire::Resp, None, &mut listening)?;
        let text = listen(options.text, Wire::Text, None, &mut listening)?;
        let (mut tls_resp, mut tls_text) = (None, None);
        if let Some(TlsOptions { resp, text, source }) = &options.tls {
            tls_resp = listen(*resp, Wire::Resp, Some(source), &mut listening)?;
            tls_text = listen(*text, Wire::Text, Some(source), &mut listening)?;
        }
        let mut polls = Vec::new();
        let mut inboxes = Vec::new();
        for _ in 0..count {
            let poll = Poll::new().map_err(StartError::Poll)?;
            let waker = Waker::new(poll.registry(), WAKER).map_err(StartError::Poll)?;
            polls.push(poll);
            inboxes.push(Arc::new(Inbox::new(waker)));
        }
        let shared = Arc::new(Shared {
            engine,
            counters,
            limits,
            stopping: AtomicBool::new(false),
            balance: Balance::new(options.threads_min, count, Instant::now()),
            inboxes,
            turn: AtomicUsize::new(0),
        });
        let mut acceptor = Acceptor::new(listening, Arc::clone(&shared));
        if let Some(poll) = polls.first() {
            acceptor.register(poll.registry()).map_err(StartError::Poll)?;
        }
        let server =
            Self { shared, threads: Mutex::default(), resp, text, tls_resp, tls_text, pooled };
        // An error below drops the server, which ends the threads that run already.
        server.spawn(polls, acceptor, options)?;
        Ok(server)
    }

    /// Starts one thread per poll; the first of them accepts connections.
    fn spawn(
        &self,
        polls: Vec<Poll>,
        acceptor: Acceptor,
        options: &ServerOptions,
    ) -> Result<(), StartError> {
        let mut acceptor = Some(acceptor);
        for (number, poll) in polls.into_iter().enumerate() {
            let Some(inbox) = self.shared.inboxes.get(number).cloned() else { break };
            let (shared, acceptor) = (Arc::clone(&self.shared), acceptor.take());
            match options.mode {
                Mode::PerConnection => {
                    let parts = Parts { number, inbox, acceptor, shared };
                    let network = options.network;
                    let (begun, begins) = mpsc::sync_channel(1);
                    self.spawn_thread(number, move || parts.run(poll, network, &begun))?;
                    // A thread that ended without a result has panicked; stopping reports it.
                    begins.recv().unwrap_or(Ok(())).map_err(StartError::Uring)?;
                }
                Mode::Pooled { workers } => {
                    let failed =
                        |source| StartError::Thread { name: "cache-worker".into(), source };
                    let poller = Poller::new(poll, inbox, acceptor, shared, workers);
                    let poller = poller.map_err(failed)?;
                    self.spawn_thread(number, move || poller.run())?;
                }
            }
        }
        Ok(())
    }

    fn spawn_thread(
        &self,
        number: usize,
        run: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let name = format!("cache-{number}");
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(run)
            .map_err(|source| StartError::Thread { name, source })?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Address of the RESP listener.
    #[must_use]
    pub fn resp_address(&self) -> Option<SocketAddr> {
        self.resp
    }

    /// Address of the text listener.
    #[must_use]
    pub fn text_address(&self) -> Option<SocketAddr> {
        self.text
    }

    /// Address of the RESP listener with TLS.
    #[must_use]
    pub fn tls_resp_address(&self) -> Option<SocketAddr> {
        self.tls_resp
    }

    /// Address of the text listener with TLS.
    #[must_use]
    pub fn tls_text_address(&self) -> Option<SocketAddr> {
        self.tls_text
    }

    /// Counters since the start, and the current state.
    #[must_use]
    pub fn statistics(&self) -> ServerStatistics {
        self.shared.counters.read(self.pooled, self.shared.balance.active())
    }

    /// Whether all its threads run; a thread that does not was ended by a bug.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.threads.lock().iter().any(JoinHandle::is_finished)
    }

    /// Stops: accepts no more connections and commands, sends the replies to what has run, closes.
    ///
    /// Blocks until that is done, at most [`ServerLimits::stop_limit`]. The engine is left open.
    pub fn stop(&self) {
        self.shared.stopping.store(true, SeqCst);
        for inbox in &self.shared.inboxes {
            inbox.wake();
        }
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the cache's server had panicked");
            }
        }
        // A socket may have been handed to a thread after its last turn: no other thread closes it.
        let mut work = Work::for_one(&self.shared);
        for (thread, inbox) in self.shared.inboxes.iter().enumerate() {
            let mut left = inbox::Left::default();
            inbox.take(&mut left);
            for accepted in left.accepted {
                drop(accepted);
                self.shared.left(thread);
            }
            for moved in left.moved {
                moved.connection.close(&mut work);
                self.shared.left(thread);
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The parts of an event loop before its transport is chosen.
struct Parts {
    number: usize,
    inbox: Arc<Inbox>,
    acceptor: Option<Acceptor>,
    shared: Arc<Shared>,
}

impl Parts {
    /// Chooses the transport, reports the choice, and serves.
    ///
    /// A ring belongs to the thread that creates it, so this runs on the thread that serves.
    fn run(self, poll: Poll, network: Network, begun: &mpsc::SyncSender<io::Result<()>>) {
        let Self { number, inbox, acceptor, shared } = self;
        let ring = match network {
            Network::Epoll => Err(poll),
            Network::Automatic | Network::Uring => Uring::new(poll).map_err(|(poll, error)| {
                tracing::info!(%error, "io_uring cannot be had here");
                if network == Network::Uring {
                    begun.send(Err(error)).unwrap_or_default();
                }
                poll
            }),
        };
        match ring {
            Ok(ring) => {
                shared.counters.uring.store(true, Relaxed);
                begun.send(Ok(())).unwrap_or_default();
                EventLoop::new(number, ring, inbox, acceptor, shared).run();
            }
            Err(_) if network == Network::Uring => {}
            Err(poll) => {
                begun.send(Ok(())).unwrap_or_default();
                EventLoop::new(number, Epoll::new(poll), inbox, acceptor, shared).run();
            }
        }
    }
}

/// Binds a listener, if configured, and returns its address.
fn listen(
    address: Option<SocketAddr>,
    wire: Wire,
    tls: Option<&TlsSource>,
    into: &mut Vec<Listening>,
) -> Result<Option<SocketAddr>, StartError> {
    let Some(address) = address else { return Ok(None) };
    let (protocol, token) = match (wire, tls.is_some()) {
        (Wire::Resp, false) => ("RESP", LISTEN_RESP),
        (Wire::Text, false) => ("text", LISTEN_TEXT),
        (Wire::Resp, true) => ("RESP over TLS", LISTEN_TLS_RESP),
        (Wire::Text, true) => ("text over TLS", LISTEN_TLS_TEXT),
    };
    let failed = |source| StartError::Listen { address, protocol, source };
    let socket = listen::bind(address).map_err(failed)?;
    let bound = socket.local_addr().map_err(failed)?;
    into.push(Listening { socket, wire, tls: tls.cloned(), token });
    Ok(Some(bound))
}
