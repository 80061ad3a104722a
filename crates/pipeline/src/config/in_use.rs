//! The registry of connectors while a file is read or described.
//!
//! Deserialization has no argument for it, so it is a variable of the thread.

use std::cell::RefCell;

use forebay_sdk::registry::{
    ConnectorSettings, DestinationSettings, Entry, Registry, SourceSettings,
};

thread_local! {
    static IN_USE: RefCell<Registry> = RefCell::default();
}

/// Runs `run` with this registry for the sections that it reads or describes.
pub(super) fn with<T>(registry: &Registry, run: impl FnOnce() -> T) -> T {
    /// Puts the previous registry back, also if `run` panics.
    struct Restore(Registry);
    impl Drop for Restore {
        fn drop(&mut self) {
            IN_USE.set(std::mem::take(&mut self.0));
        }
    }
    let _restore = Restore(IN_USE.replace(registry.clone()));
    run()
}

/// The registry for sections that are read now; without connectors outside of [`with`].
pub(super) fn current() -> Registry {
    IN_USE.with_borrow(Clone::clone)
}

/// The connectors of one kind in a registry.
pub(super) trait Kind: ConnectorSettings {
    /// The section they belong to.
    const SECTION: &'static str;

    fn entries(registry: &Registry) -> &[Entry<Self>];
}

impl Kind for dyn SourceSettings {
    const SECTION: &'static str = "source";

    fn entries(registry: &Registry) -> &[Entry<Self>] {
        registry.sources()
    }
}

impl Kind for dyn DestinationSettings {
    const SECTION: &'static str = "destination";

    fn entries(registry: &Registry) -> &[Entry<Self>] {
        registry.destinations()
    }
}
