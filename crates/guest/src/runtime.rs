//! Runs the futures of a call, and waits through the host for what they wait for.
//!
//! A component has one thread and no event loop. Futures run until none can go on; then the host waits for the
//! connections and times that they registered. There are few of them (the call, and one for each connection), so all
//! are polled after each wait.
//!
//! Invariant: a call returns when its own future is ready; tasks that were spawned continue in the next call of the
//! instance, and end with it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

#[cfg(target_family = "wasm")]
use forebay_sdk::ConnectorError;

use crate::net;
use crate::wit::host;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

thread_local! {
    /// When the futures that wait for a time go on.
    static TIMES: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static TASKS: RefCell<Vec<Task>> = const { RefCell::new(Vec::new()) };
}

/// Time, pauses and tasks for `forebay-sdk`.
#[cfg(target_family = "wasm")]
struct Host;

#[cfg(target_family = "wasm")]
impl forebay_sdk::platform::Platform for Host {
    fn monotonic_ns(&self) -> u64 {
        host::monotonic_ns()
    }

    fn now_us(&self) -> u64 {
        host::now_us()
    }

    fn random(&self) -> u64 {
        host::random(8).try_into().map_or(0, u64::from_le_bytes)
    }

    fn sleep(&self, duration: Duration) -> Task {
        Box::pin(pause(duration))
    }

    fn spawn(&self, future: Task) {
        TASKS.with_borrow_mut(|tasks| tasks.push(future));
    }

    fn connect(
        &self,
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<Box<dyn forebay_sdk::platform::Transport>, ConnectorError> {
        Ok(Box::new(net::Stream::connect(host, port, limit)?))
    }

    fn read_file(&self, path: &str) -> Result<Vec<u8>, ConnectorError> {
        host::read_file(path).map_err(|error| ConnectorError::from(error.failure))
    }
}

/// Lines of the log, for the host.
#[cfg(target_family = "wasm")]
struct Lines;

#[cfg(target_family = "wasm")]
impl log::Log for Lines {
    fn enabled(&self, of: &log::Metadata<'_>) -> bool {
        of.level() <= log::Level::Info
    }

    fn log(&self, line: &log::Record<'_>) {
        let level = match line.level() {
            log::Level::Error => host::Level::Error,
            log::Level::Warn => host::Level::Warn,
            log::Level::Info => host::Level::Info,
            log::Level::Debug | log::Level::Trace => return,
        };
        host::log(level, &line.args().to_string());
    }

    fn flush(&self) {}
}

/// Sets what connectors take from `forebay-sdk` and from the crates they are made of. Only the first call has an effect.
#[cfg(target_family = "wasm")]
fn install() {
    forebay_sdk::platform::install(&Host);
    if log::set_logger(&Lines).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
}

/// Random numbers of the host, for crates that ask for some.
#[cfg(target_family = "wasm")]
#[expect(unsafe_code, reason = "the name and the signature that the crate `getrandom` calls")]
// SAFETY: `getrandom` calls it with a buffer of that length, of which exactly as many bytes are written.
#[unsafe(no_mangle)]
unsafe extern "Rust" fn __getrandom_v03_custom(
    into: *mut u8,
    length: usize,
) -> Result<(), getrandom::Error> {
    let mut at = 0;
    while at < length {
        let some = u32::try_from((length - at).min(4096)).unwrap_or(4096);
        let bytes = host::random(some);
        if bytes.is_empty() {
            return Err(getrandom::Error::UNEXPECTED);
        }
        let some = bytes.len().min(length - at);
        // SAFETY: `at + some` is at most `length`.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), into.add(at), some) };
        at += some;
    }
    Ok(())
}

/// Waits.
pub async fn pause(duration: Duration) {
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let at_ns = host::monotonic_ns().saturating_add(ns);
    poll_fn(|_| {
        if host::monotonic_ns() >= at_ns {
            return Poll::Ready(());
        }
        TIMES.with_borrow_mut(|times| times.push(at_ns));
        Poll::Pending
    })
    .await;
}

/// Waits for a future, but not longer than a limit, and only until the host has another call.
///
/// Nothing of the future is lost, if nothing is when it is dropped.
pub async fn until_wanted<T>(future: impl Future<Output = T>, limit: Duration) -> Option<T> {
    let (mut future, mut limit) = (pin!(future), pin!(pause(limit)));
    poll_fn(|context| {
        if let Poll::Ready(done) = future.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        if host::is_wanted() || limit.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        Poll::Pending
    })
    .await
}

/// Whether a future can go on.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs the future of a call to its end.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    #[cfg(target_family = "wasm")]
    install();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let mut done = None;
    loop {
        woken.0.store(false, Ordering::Relaxed);
        net::forget_interests();
        TIMES.take();
        if done.is_none()
            && let Poll::Ready(output) = future.as_mut().poll(&mut context)
        {
            done = Some(output);
        }
        run_tasks(&mut context);
        if woken.0.load(Ordering::Relaxed) {
            continue;
        }
        match done {
            Some(output) => return output,
            None => wait(),
        }
    }
}

/// Polls all tasks. Those that they spawn are polled, too.
fn run_tasks(context: &mut Context<'_>) {
    let mut pending = Vec::new();
    loop {
        let tasks = TASKS.take();
        if tasks.is_empty() {
            break;
        }
        for mut task in tasks {
            if task.as_mut().poll(context).is_pending() {
                pending.push(task);
            }
        }
    }
    TASKS.set(pending);
}

/// Waits until the host reports a connection that is ready, or a time that has come.
fn wait() {
    let now = host::monotonic_ns();
    let next = TIMES.with_borrow(|times| times.iter().min().copied());
    let timeout_ms = next.map(|at_ns| {
        let ms = at_ns.saturating_sub(now).div_ceil(1_000_000);
        u32::try_from(ms).unwrap_or(u32::MAX)
    });
    net::wait(timeout_ms);
}
