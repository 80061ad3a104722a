//! The registry of connectors while a file is read or described, and the connectors that the file
//! uses.
//!
//! Deserialization has no argument for them, so they are variables of the thread.

use std::cell::RefCell;

use forebay_sdk::registry::{
    ConnectorSettings, DestinationSettings, Entry, Registry, SourceSettings,
};
use serde::Deserialize;

/// What the names of components begin with.
const COMPONENT: &str = "wasm:";

thread_local! {
    static IN_USE: RefCell<(Registry, Uses)> = RefCell::default();
}

/// The names of the connectors of a file, wherever they are in their sections: `config` is read by its
/// connector, also if it precedes `use`.
#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct Uses {
    #[serde(default)]
    source: Used,
    #[serde(default)]
    destination: Used,
}

/// The name in a section.
#[derive(Debug, Clone, Default, Deserialize)]
struct Used {
    #[serde(rename = "use")]
    name: Option<String>,
    #[serde(default)]
    sandbox: bool,
}

impl Used {
    /// The name of the connector that is meant: with `sandbox: true` the component of that name.
    fn meant(&self) -> Option<String> {
        let name = self.name.as_ref()?;
        let is_component = name.starts_with(COMPONENT);
        Some(if self.sandbox && !is_component {
            format!("{COMPONENT}{name}")
        } else {
            name.clone()
        })
    }
}

impl Uses {
    /// The names in a text. A text that cannot be read has none: reading it reports why.
    pub(super) fn of(text: &str) -> Self {
        serde_saphyr::with_deserializer_from_str(text, |from| Self::deserialize(from))
            .unwrap_or_default()
    }
}

/// Runs `run` with this registry and these connectors for the sections that it reads or describes.
pub(super) fn with<T>(registry: &Registry, uses: Uses, run: impl FnOnce() -> T) -> T {
    /// Puts the previous registry back, also if `run` panics.
    struct Restore((Registry, Uses));
    impl Drop for Restore {
        fn drop(&mut self) {
            IN_USE.set(std::mem::take(&mut self.0));
        }
    }
    let _restore = Restore(IN_USE.replace((registry.clone(), uses)));
    run()
}

/// The registry for sections that are read now; without connectors outside of [`with`].
pub(crate) fn current() -> Registry {
    IN_USE.with_borrow(|(registry, _)| registry.clone())
}

/// The connectors of one kind in a registry.
pub(super) trait Kind: ConnectorSettings {
    /// The section they belong to.
    const SECTION: &'static str;

    fn entries(registry: &Registry) -> &[Entry<Self>];

    /// The name of the section's connector.
    fn used() -> Option<String>;
}

impl Kind for dyn SourceSettings {
    const SECTION: &'static str = "source";

    fn entries(registry: &Registry) -> &[Entry<Self>] {
        registry.sources()
    }

    fn used() -> Option<String> {
        IN_USE.with_borrow(|(_, uses)| uses.source.meant())
    }
}

impl Kind for dyn DestinationSettings {
    const SECTION: &'static str = "destination";

    fn entries(registry: &Registry) -> &[Entry<Self>] {
        registry.destinations()
    }

    fn used() -> Option<String> {
        IN_USE.with_borrow(|(_, uses)| uses.destination.meant())
    }
}
