//! A log in memory, a receiver that answers as it is asked to, and keys that any test can derive again.

use std::collections::VecDeque;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use forebay_base::clock::ManualClock;
use forebay_base::fs::{FileSystem, RealFs};
use forebay_webhooks::{
    Allowed, Answer, Batch, Event, Filter, Hook, HookId, Hooks, Item, NewHook, OpenError, Options,
    Point, Request, Secrets, SendError, SigningKey, Source, SourceError, Transport, event_id,
};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::watch;

pub(crate) const START_MS: u64 = 1_800_000_000_000;
/// Bytes of log of each event.
const STEP: u64 = 10;

/// A log in memory.
pub(crate) struct Memory {
    name: &'static str,
    pub(crate) log: Mutex<[u8; 16]>,
    items: Mutex<Vec<Item>>,
    end: watch::Sender<u64>,
    /// Positions below are not there any more.
    start: Mutex<u64>,
}

impl Memory {
    pub(crate) fn new(name: &'static str) -> Arc<Self> {
        let (items, end) = (Mutex::default(), watch::channel(0).0);
        Arc::new(Self { name, log: Mutex::new([7; 16]), items, end, start: Mutex::new(0) })
    }

    /// Appends an event; returns its id.
    pub(crate) fn add(&self, kind: &'static str, namespace: &str, name: &str) -> String {
        self.append(kind, (namespace, name), None)
    }

    /// Appends an event of before, as a log that is shortened does.
    pub(crate) fn restate(&self, kind: &'static str, name: &str, time_ms: u64) -> String {
        self.append(kind, ("", name), Some(time_ms))
    }

    fn append(
        &self,
        kind: &'static str,
        (namespace, name): (&str, &str),
        before_ms: Option<u64>,
    ) -> String {
        let mut items = self.items.lock();
        let position = items.len() as u64 * STEP;
        let id = event_id(&[self.name.as_bytes(), &position.to_le_bytes()]);
        items.push(Item::Event(Box::new(Event {
            id: id.clone(),
            kind,
            time_ms: before_ms.unwrap_or(START_MS + position),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            before: None,
            data: RawValue::from_string(format!("{{\"name\":\"{name}\"}}")).unwrap(),
            at: Point { position, item: 0 },
            next: Point { position: position + STEP, item: 0 },
            is_restated: before_ms.is_some(),
        })));
        self.end.send_replace(position + STEP);
        id
    }

    /// Lets the log begin behind this number of events.
    pub(crate) fn truncate(&self, count: u64) {
        *self.start.lock() = count * STEP;
    }
}

impl Source for Memory {
    fn name(&self) -> &'static str {
        self.name
    }

    fn log_id(&self) -> [u8; 16] {
        *self.log.lock()
    }

    fn end(&self) -> u64 {
        *self.end.borrow()
    }

    fn passed(&self, position: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let mut end = self.end.subscribe();
            drop(end.wait_for(|end| *end > position).await);
        })
    }

    fn read(&self, from: u64) -> Result<Batch, SourceError> {
        let (start, end) = (*self.start.lock(), self.end());
        let mut items = Vec::new();
        if from < start {
            let next = Point { position: start, item: 0 };
            items.push(Item::Lost { from, next, entries: (start - from) / STEP });
        }
        let kept = self.items.lock();
        let first = from.max(start) / STEP;
        items.extend(kept.iter().skip(usize::try_from(first).unwrap()).take(50).cloned());
        let reached = items.last().map_or(end, |item| item.next().position);
        Ok(Batch { from, reached, items })
    }
}

/// What a receiver does with a request.
type Behaviour = Box<dyn Fn(&Request) -> Result<Answer, SendError> + Send + Sync>;

/// A receiver without a network.
#[derive(Default)]
pub(crate) struct Receiver {
    pub(crate) requests: Mutex<Vec<Request>>,
    /// What it answers next; 200 without one.
    pub(crate) answers: Mutex<VecDeque<u16>>,
    pub(crate) behaves: Mutex<Option<Behaviour>>,
}

pub(crate) fn answered(status: u16) -> Result<Answer, SendError> {
    Ok(Answer { status, retry_after_s: None, body: b"an answer".to_vec() })
}

impl Receiver {
    pub(crate) fn answer(&self, statuses: &[u16]) {
        self.answers.lock().extend(statuses);
    }

    pub(crate) fn behave(
        &self,
        behaves: impl Fn(&Request) -> Result<Answer, SendError> + Send + Sync + 'static,
    ) {
        *self.behaves.lock() = Some(Box::new(behaves));
    }

    /// The names in the requests so far, in order; the type where there is none.
    pub(crate) fn names(&self) -> Vec<String> {
        self.requests.lock().iter().map(|request| name_in(&request.body)).collect()
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.requests.lock().iter().map(|request| request.id.clone()).collect()
    }
}

pub(crate) fn name_in(body: &[u8]) -> String {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    let name = body["data"]["name"].as_str().or(body["type"].as_str());
    name.unwrap_or_default().to_owned()
}

#[async_trait]
impl Transport for Receiver {
    async fn send(&self, request: Request) -> Result<Answer, SendError> {
        let answer = match &*self.behaves.lock() {
            Some(behaves) => behaves(&request),
            None => answered(self.answers.lock().pop_front().unwrap_or(200)),
        };
        self.requests.lock().push(request);
        answer
    }
}

/// Keys that are made of a number.
pub(crate) struct Keys(pub(crate) u8);

impl Secrets for Keys {
    fn key(&self, hook: HookId, generation: u32) -> SigningKey {
        let mut key = [self.0; 32];
        key[..16].copy_from_slice(&hook.to_bytes());
        key[16..20].copy_from_slice(&generation.to_le_bytes());
        SigningKey(key)
    }

    fn fingerprint(&self) -> [u8; 16] {
        [self.0; 16]
    }
}

/// Everything of one server.
pub(crate) struct World {
    pub(crate) hooks: Hooks,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) files: Arc<Memory>,
    pub(crate) jobs: Arc<Memory>,
}

pub(crate) fn options(dir: &Path) -> Options {
    Options { hooks_max: 5, deliveries_kept: 10, ..Options::new(dir.join("webhooks")) }
}

impl World {
    pub(crate) fn new(dir: &Path) -> Self {
        let clock = Arc::new(ManualClock::new(START_MS));
        let (files, jobs) = (Memory::new("intake"), Memory::new("jobs"));
        let receiver = Arc::new(Receiver::default());
        let hooks = open(options(dir), &clock, [&files, &jobs], &receiver, 1).unwrap();
        Self { hooks, clock, receiver, files, jobs }
    }

    /// Opens the same state again, as after a crash.
    pub(crate) fn reopen(self, options: Options, keys: u8) -> Self {
        let Self { hooks, clock, receiver, files, jobs } = self;
        drop(hooks);
        let hooks = open(options, &clock, [&files, &jobs], &receiver, keys).unwrap();
        Self { hooks, clock, receiver, files, jobs }
    }

    pub(crate) async fn create(&self, filter: Filter) -> HookId {
        let url = "https://hooks.example.com/in".to_owned();
        let new = NewHook { url, filter, ..NewHook::default() };
        self.hooks.create(new).await.unwrap().0.id
    }

    pub(crate) fn hook(&self, id: HookId) -> Hook {
        self.hooks.hook(id).unwrap().hook
    }

    /// Works for a hook until it waits, and moves the clock to that time, `rounds` times.
    pub(crate) async fn run(&self, id: HookId, rounds: usize) {
        for _ in 0..rounds {
            let Some(until_ms) = self.hooks.run_until_idle(id).await else { return };
            let now_ms = forebay_base::clock::Clock::now_ms(&*self.clock);
            let left = until_ms.saturating_sub(now_ms);
            self.clock.advance(std::time::Duration::from_millis(left));
        }
    }
}

pub(crate) fn open(
    options: Options,
    clock: &Arc<ManualClock>,
    [files, jobs]: [&Arc<Memory>; 2],
    receiver: &Arc<Receiver>,
    keys: u8,
) -> Result<Hooks, OpenError> {
    let fs: Arc<dyn FileSystem> = Arc::new(RealFs);
    let sources: Vec<Arc<dyn Source>> = vec![files.clone(), jobs.clone()];
    let transport: Arc<dyn Transport> = receiver.clone();
    let sources = (sources, Allowed::default());
    Hooks::open(&fs, clock.clone(), options, sources, (transport, Arc::new(Keys(keys))))
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}
