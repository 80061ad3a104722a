//! Instances of components: how they are made, and how a call of one ends.
//!
//! Invariants: an instance whose call did not return is discarded; what stopped it is an error of the connector, and
//! nothing else is affected.

use std::sync::Arc;

use forebay_sdk::ConnectorError;
use forebay_sdk::run::Context;
use wasmtime::Store;
use wasmtime::component::Component;

use crate::grants::Grants;
use crate::host::{Host, refused};
use crate::state::{State, Stopped};
use crate::wit::types;

/// A component with what it may reach.
#[derive(Clone)]
pub struct Loaded {
    /// Its name, for messages.
    pub name: Arc<str>,
    pub(crate) host: Arc<Host>,
    pub(crate) component: Arc<Component>,
    pub(crate) grants: Arc<Grants>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Loaded {
    /// A component in a host.
    ///
    /// # Errors
    /// The bytes are not a component.
    pub fn new(
        host: &Arc<Host>,
        name: &str,
        bytes: &[u8],
        grants: Grants,
    ) -> Result<Self, ConnectorError> {
        let (component, _) = host.load(bytes)?;
        Ok(Self::of(host, name, component, grants))
    }

    /// A component that a host has loaded.
    pub(crate) fn of(
        host: &Arc<Host>,
        name: &str,
        component: Arc<Component>,
        grants: Grants,
    ) -> Self {
        Self { name: name.into(), host: Arc::clone(host), component, grants: Arc::new(grants) }
    }

    /// The same component with other grants.
    #[must_use]
    pub fn granted(&self, grants: Grants) -> Self {
        Self { grants: Arc::new(grants), ..self.clone() }
    }

    /// Whether the component exports an interface.
    pub(crate) fn exports(&self, interface: &str) -> bool {
        self.component.get_export_index(None, interface).is_some()
    }

    /// A store for an instance.
    pub(crate) fn store(&self, context: Option<Context>) -> Store<State> {
        let state = State::new(Arc::clone(&self.name), Arc::clone(&self.grants), context);
        let name = self.name.to_string();
        metrics::counter!("forebay_connector_instances_total", "connector" => name).increment(1);
        let size = state.call_size();
        let mut store = Store::new(self.host.engine(), state);
        store.limiter(|state| state);
        store.set_hostcall_fuel(size);
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|mut store| store.data_mut().at_tick());
        store
    }

    /// The error of an instance that was not made, or whose call did not return.
    pub(crate) fn trapped(&self, call: &str, error: &wasmtime::Error) -> ConnectorError {
        let name = &self.name;
        let stopped = error.downcast_ref::<Stopped>();
        let cause = stopped.map_or("trap", Stopped::cause);
        let labels = [("connector", name.to_string()), ("cause", cause.to_owned())];
        metrics::counter!("forebay_connector_failures_total", &labels).increment(1);
        match stopped {
            Some(Stopped::Cancelled) => ConnectorError::Stopped,
            Some(Stopped::Memory { limit }) => ConnectorError::unsupported(
                format!("the connector {name} needs more than {limit} bytes of memory to {call}"),
                "raise `limits.max_memory` of its section, or use smaller batches",
            ),
            Some(stopped @ Stopped::Busy { .. }) => ConnectorError::Refused {
                act: format!("{call} with the connector {name}"),
                source: stopped.clone().into(),
            },
            None => refused(&format!("{call} with the connector {name}, which failed"), error),
        }
    }

    /// The result of a call.
    pub(crate) fn answer<T>(
        &self,
        call: &str,
        returned: wasmtime::Result<Result<T, types::Error>>,
    ) -> Result<T, ConnectorError> {
        match returned {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(error.failure.into()),
            Err(error) => Err(self.trapped(call, &error)),
        }
    }
}

/// An instance of one of the worlds, and whether it can be called again.
pub(crate) struct Instance<W> {
    pub(crate) store: Store<State>,
    pub(crate) world: W,
}

/// Makes an instance of a world.
macro_rules! instantiate {
    ($loaded:expr, $context:expr, $world:path) => {{
        let loaded: &$crate::instance::Loaded = $loaded;
        let mut store = loaded.store($context);
        match <$world>::instantiate_async(&mut store, &loaded.component, loaded.host.linker()).await
        {
            Ok(world) => Ok($crate::instance::Instance { store, world }),
            Err(error) => Err(loaded.trapped("start", &error)),
        }
    }};
}

/// Makes an instance of a world that also has the exports of another one.
macro_rules! instantiate_both {
    ($loaded:expr, $context:expr, $world:path, $other:path) => {{
        let loaded: &$crate::instance::Loaded = $loaded;
        let mut store = loaded.store($context);
        let linker = loaded.host.linker();
        match linker.instantiate_async(&mut store, &loaded.component).await {
            Ok(instance) => {
                let (world, other) =
                    (<$world>::new(&mut store, &instance), <$other>::new(&mut store, &instance));
                match (world, other) {
                    (Ok(world), Ok(other)) => {
                        Ok(($crate::instance::Instance { store, world }, other))
                    }
                    (Err(error), _) | (_, Err(error)) => Err(loaded.trapped("start", &error)),
                }
            }
            Err(error) => Err(loaded.trapped("start", &error)),
        }
    }};
}

/// Calls a function of an instance. A tuple of the instance's store comes first.
macro_rules! call {
    ($loaded:expr, $instance:expr, $what:literal, $interface:ident . $function:ident ($($argument:expr),*)) => {{
        let instance = &mut *$instance;
        instance.store.data_mut().is_active();
        let returned = instance.world.$interface().$function(&mut instance.store $(, $argument)*).await;
        $loaded.answer($what, returned)
    }};
}

pub(crate) use {call, instantiate, instantiate_both};
