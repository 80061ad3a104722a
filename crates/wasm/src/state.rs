//! What belongs to an instance: its limits, its connections, and the run it takes part in.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use forebay_sdk::ConnectorError;
use forebay_sdk::batch::DeadRow;
use forebay_sdk::run::Context;
use tokio::sync::{Notify, mpsc};
use wasmtime::component::ResourceTable;
use wasmtime::{ResourceLimiter, UpdateDeadline};

use crate::grants::Grants;
use crate::wit::types;

/// Ticks between two looks at an instance that computes.
const TICKS: u64 = 1;
/// How long a component may go on after the run was cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(2);
/// Elements of a table of a component.
const TABLE_MAX: usize = 50_000;
/// Bytes that a component may hand over in one call, at least. Its memory is the limit otherwise.
const CALL_MIN: usize = 64 << 20;
/// Lines of the log of an instance, in a second.
const LINES_MAX: u32 = 100;
/// Bytes of a line.
const LINE_SIZE_MAX: usize = 1 << 10;

/// Rows that a component sent.
#[derive(Debug)]
pub(crate) struct Sent {
    pub(crate) rows: types::Rows,
    pub(crate) dead: Vec<DeadRow>,
}

/// Why an instance was stopped.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum Stopped {
    /// It wants more memory.
    #[error("it needs more than {limit} bytes of memory")]
    Memory {
        /// Its limit.
        limit: usize,
    },
    /// It computes without end.
    #[error("it computed for {seconds} s without reading, writing or sending anything")]
    Busy {
        /// Its limit.
        seconds: f64,
    },
    /// The run was cancelled.
    #[error("the run was cancelled")]
    Cancelled,
}

impl Stopped {
    /// Why, as a label of metrics.
    pub(crate) fn cause(&self) -> &'static str {
        match self {
            Self::Memory { .. } => "memory",
            Self::Busy { .. } => "busy",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Whether the host has another call for an instance whose call waits.
#[derive(Debug, Default)]
pub(crate) struct Wanted {
    is: AtomicBool,
    changed: Notify,
}

impl Wanted {
    /// Asks the call that runs to return.
    pub(crate) fn set(&self) {
        self.is.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Before another call.
    pub(crate) fn reset(&self) {
        self.is.store(false, Ordering::Release);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is.load(Ordering::Acquire)
    }

    /// Returns once it is set.
    pub(crate) async fn wait(&self) {
        while !self.is_set() {
            // What was notified before this began is kept.
            self.changed.notified().await;
        }
    }
}

/// What belongs to an instance.
pub(crate) struct State {
    /// The component's name, for messages.
    pub(crate) name: Arc<str>,
    pub(crate) grants: Arc<Grants>,
    pub(crate) connections: ResourceTable,
    /// The run; none while settings are read.
    pub(crate) context: Option<Context>,
    /// Where rows are sent during a read.
    pub(crate) batches: Option<mpsc::Sender<Sent>>,
    /// The role in which it has opened a stream, and the stream's name.
    pub(crate) stream: Option<(&'static str, Arc<str>)>,
    /// Whether it is to return from a call that only waits.
    pub(crate) wanted: Arc<Wanted>,
    /// When it last did something besides computing.
    pub(crate) active_at: Instant,
    cancelled_at: Option<Instant>,
    lines: Lines,
}

impl Drop for State {
    fn drop(&mut self) {
        metrics::gauge!("forebay_connector_instances").decrement(1);
    }
}

impl State {
    pub(crate) fn new(name: Arc<str>, grants: Arc<Grants>, context: Option<Context>) -> Self {
        metrics::gauge!("forebay_connector_instances").increment(1);
        Self {
            name,
            grants,
            connections: ResourceTable::new(),
            context,
            batches: None,
            stream: None,
            wanted: Arc::default(),
            active_at: Instant::now(),
            cancelled_at: None,
            lines: Lines::default(),
        }
    }

    /// Bytes that a component may hand over in one call.
    pub(crate) fn call_size(&self) -> usize {
        self.grants.memory.max(CALL_MIN)
    }

    /// It read, wrote or sent something.
    pub(crate) fn is_active(&mut self) {
        self.active_at = Instant::now();
    }

    /// Decides at a tick whether the instance may go on.
    pub(crate) fn at_tick(&mut self) -> wasmtime::Result<UpdateDeadline> {
        if self.context.as_ref().is_some_and(Context::is_cancelled) {
            let since = *self.cancelled_at.get_or_insert_with(Instant::now);
            if since.elapsed() > CANCEL_GRACE {
                return Err(wasmtime::Error::new(Stopped::Cancelled));
            }
        }
        if self.active_at.elapsed() > self.grants.busy {
            let seconds = self.grants.busy.as_secs_f64();
            return Err(wasmtime::Error::new(Stopped::Busy { seconds }));
        }
        Ok(UpdateDeadline::YieldCustom(TICKS, Box::pin(tokio::task::yield_now())))
    }

    /// A line for the log, unless there were too many of late.
    pub(crate) fn line(&mut self, text: &str) -> Option<String> {
        let left_out = self.lines.admit(Instant::now())?;
        let mut line = forebay_base::printable::printable(text).to_string();
        if line.len() > LINE_SIZE_MAX {
            let end = (0..=LINE_SIZE_MAX).rev().find(|&end| line.is_char_boundary(end));
            line.truncate(end.unwrap_or_default());
            line.push_str("...");
        }
        if left_out > 0 {
            line.push_str(&format!(" ({left_out} lines before it were left out)"));
        }
        Some(line)
    }
}

impl ResourceLimiter for State {
    fn memory_growing(
        &mut self,
        _: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let limit = self.grants.memory;
        if desired > limit {
            return Err(wasmtime::Error::new(Stopped::Memory { limit }));
        }
        Ok(true)
    }

    fn table_growing(
        &mut self,
        _: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_MAX)
    }
}

/// How many lines an instance has written in this second.
#[derive(Debug, Default)]
struct Lines {
    second: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Lines {
    /// Returns how many lines were left out before one that may be written; `None` if it may not.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_new =
            self.second.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1));
        if is_new {
            self.second = Some(now);
            self.written = 0;
        }
        if self.written >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

/// An error for a component.
pub(crate) fn error(error: ConnectorError) -> types::Error {
    types::Error { failure: error.into(), committed: types::Committed::No }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_some_are_left_out_and_counted() {
        let (mut lines, start) = (Lines::default(), Instant::now());
        let admitted = (0..1_000).filter(|_| lines.admit(start).is_some()).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(lines.admit(start + Duration::from_secs(1)), Some(900));
        assert_eq!(lines.admit(start + Duration::from_secs(1)), Some(0));
    }

    #[test]
    fn a_line_is_printable_and_short() {
        let mut state = State::new("x".into(), Arc::default(), None);
        let line = state.line(&format!("a\nb\u{1b}[31m{}", "ä".repeat(2_000))).unwrap();
        assert!(!line.contains(['\n', '\u{1b}']) && line.len() < LINE_SIZE_MAX + 10, "{line}");
    }
}
