//! The engine: its settings, its ticks, and the components it has loaded.
//!
//! Invariants: a component that computes gives way to others every few milliseconds, and is stopped when the run is;
//! memory of one instance is never seen by another.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use forebay_sdk::ConnectorError;
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use crate::cache::{Cache, Loaded};
use crate::state::State;
use crate::wit;

/// Time between ticks.
const TICK: Duration = Duration::from_millis(10);
/// Instances at once, of all components.
const INSTANCES: u32 = 256;
/// Stack of a component, in bytes.
const STACK_SIZE: usize = 1 << 20;

/// An engine and the components it has loaded.
pub struct Host {
    engine: Engine,
    linker: Linker<State>,
    cache: Cache,
    loaded: Mutex<HashMap<[u8; 32], Arc<Component>>>,
    /// Ends the ticks when it is dropped.
    _ticking: Mutex<mpsc::Sender<()>>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Host {
    /// Creates a host.
    ///
    /// * `cache`: directory of compiled components.
    ///
    /// # Errors
    /// This machine cannot run an engine.
    pub fn new(cache: PathBuf) -> Result<Arc<Self>, ConnectorError> {
        let failed = |error: wasmtime::Error| refused("start the engine for connectors", &error);
        let engine = Engine::new(&config(true)).or_else(|error| {
            tracing::debug!(%error, "no memory is reserved for instances of connectors");
            Engine::new(&config(false))
        });
        let engine = engine.map_err(failed)?;
        let mut linker = Linker::new(&engine);
        wit::host::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)
            .map_err(failed)?;
        wit::sockets::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)
            .map_err(failed)?;
        crate::sockets::write_in_place(&mut linker).map_err(failed)?;
        wit::outlet::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)
            .map_err(failed)?;
        wit::state::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)
            .map_err(failed)?;
        wit::metrics::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)
            .map_err(failed)?;
        let ticking = tick(&engine).map_err(|error| ConnectorError::Refused {
            act: "start the engine for connectors".into(),
            source: error.into(),
        })?;
        Ok(Arc::new(Self {
            engine,
            linker,
            cache: Cache::new(cache),
            loaded: Mutex::default(),
            _ticking: Mutex::new(ticking),
        }))
    }

    /// Loads a component; compiled, kept, or as it is loaded already.
    ///
    /// # Errors
    /// The bytes are not a component.
    pub fn load(&self, bytes: &[u8]) -> Result<(Arc<Component>, Loaded), ConnectorError> {
        let hash: [u8; 32] = Sha256::digest(bytes).into();
        match self.kept(&hash) {
            Some(known) => Ok((known, Loaded::Kept)),
            None => Ok((self.compile(bytes, &hash)?, Loaded::Compiled)),
        }
    }

    /// The component of this SHA-256, if it is loaded or was compiled before.
    #[must_use]
    pub fn kept(&self, hash: &[u8; 32]) -> Option<Arc<Component>> {
        if let Some(known) = self.loaded.lock().get(hash) {
            return Some(Arc::clone(known));
        }
        let component = Arc::new(self.cache.kept(&self.engine, hash)?);
        metrics::counter!("forebay_connector_loads_total", "from" => "cache").increment(1);
        self.loaded.lock().insert(*hash, Arc::clone(&component));
        Some(component)
    }

    /// Compiles a component with this SHA-256.
    ///
    /// # Errors
    /// The bytes are not a component.
    pub fn compile(&self, bytes: &[u8], hash: &[u8; 32]) -> Result<Arc<Component>, ConnectorError> {
        let compiled = self.cache.compile(&self.engine, bytes, hash);
        let component = Arc::new(compiled.map_err(|error| refused("load the component", &error))?);
        metrics::counter!("forebay_connector_loads_total", "from" => "compiler").increment(1);
        self.loaded.lock().insert(*hash, Arc::clone(&component));
        Ok(component)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn linker(&self) -> &Linker<State> {
        &self.linker
    }
}

/// A failure of the engine.
pub(crate) fn refused(act: &str, error: &wasmtime::Error) -> ConnectorError {
    // With all causes; its source is not an error of the standard library.
    ConnectorError::Refused { act: act.to_owned(), source: format!("{error:#}").into() }
}

fn config(is_pooled: bool) -> Config {
    let mut config = Config::new();
    config.epoch_interruption(true).max_wasm_stack(STACK_SIZE).async_stack_size(2 * STACK_SIZE);
    if is_pooled {
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(INSTANCES)
            .total_core_instances(4 * INSTANCES)
            .total_memories(INSTANCES)
            .total_tables(2 * INSTANCES)
            .total_stacks(INSTANCES)
            .table_elements(50_000)
            .max_memory_size(1 << 32);
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    }
    config
}

/// Makes the engine's clock tick until the returned end is dropped.
fn tick(engine: &Engine) -> std::io::Result<mpsc::Sender<()>> {
    let (running, stopped) = mpsc::channel();
    let engine = engine.clone();
    std::thread::Builder::new().name("wasm-tick".into()).spawn(move || {
        while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
            engine.increment_epoch();
        }
    })?;
    Ok(running)
}
