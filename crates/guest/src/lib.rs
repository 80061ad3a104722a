//! What makes a connector a WebAssembly component.
//!
//! A connector implements the traits of `forebay-sdk`, and its settings those of the registry. One macro for each role
//! exports it:
//!
//! ```ignore
//! forebay_guest::source!(meters::Settings);
//! forebay_guest::destination!(meters::Settings);
//! forebay_guest::transform!(scale::Settings);
//! forebay_guest::change_source!(meters::Settings);
//! forebay_guest::change_target!(meters::Settings);
//! ```
//!
//! The same crate, without these lines, is a connector of the process. `wit/connector.wit` is the contract.
//!
//! | module | purpose |
//! |---|---|
//! | [`runtime`] | runs futures, and waits for connections and time through the host |
//! | [`net`] | a connection as a stream of bytes |
//! | [`rows`] | rows of a batch, as they cross |
//! | [`roles`] | what the macros call |
//!
//! Invariants: an instance runs one call at a time, and every call runs to its end; nothing here panics on what the host
//! or a server sends.

pub mod net;
pub mod roles;
pub mod rows;
pub mod runtime;
pub mod wit;

forebay_sdk::component_conversions!();

/// Exports settings of a source.
#[macro_export]
macro_rules! source {
    ($settings:ty) => {
        const _: () = {
            struct Component;
            type Own = $settings;
            use $crate::roles::source as role;
            use $crate::wit::{source as wit, types};

            impl wit::Guest for Component {
                fn spec() -> types::ComponentSpec {
                    role::spec::<Own>(env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION"))
                }
                fn validate(config: String) -> Result<types::Reach, types::InvalidSetting> {
                    role::validate::<Own>(&config)
                }
                fn check(config: String) -> Result<String, types::Error> {
                    role::check::<Own>(&config)
                }
                fn discover(config: String) -> Result<Vec<wit::Discovered>, types::Error> {
                    role::discover::<Own>(&config)
                }
                fn place(
                    config: String,
                    stream: types::StreamSettings,
                ) -> Result<Option<String>, types::Error> {
                    role::place::<Own>(&config, stream)
                }
                fn open(
                    config: String,
                    stream: types::StreamSettings,
                    opening: wit::Opening,
                ) -> Result<wit::Opened, types::Error> {
                    role::open::<Own>(&config, stream, opening)
                }
                fn attach(
                    config: String,
                    stream: types::StreamSettings,
                    handle: Vec<u8>,
                ) -> Result<(), types::Error> {
                    role::attach::<Own>(&config, stream, &handle)
                }
                fn read(unit: u32) -> Result<(), types::Error> {
                    role::read(unit)
                }
            }

            $crate::wit::source_world::export_source!(Component with_types_in $crate::wit::source_world);
        };
    };
}

/// Exports settings of a destination.
#[macro_export]
macro_rules! destination {
    ($settings:ty) => {
        const _: () = {
            struct Component;
            type Own = $settings;
            use $crate::roles::destination as role;
            use $crate::wit::{destination as wit, types};

            impl wit::Guest for Component {
                fn spec() -> types::ComponentSpec {
                    role::spec::<Own>(env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION"))
                }
                fn preferred_form() -> types::Form {
                    role::form::<Own>()
                }
                fn evolves() -> wit::Evolution {
                    role::evolves::<Own>()
                }
                fn validate(config: String) -> Result<types::Reach, types::InvalidSetting> {
                    role::validate::<Own>(&config)
                }
                fn check(config: String) -> Result<String, types::Error> {
                    role::check::<Own>(&config)
                }
                fn last_load(
                    config: String,
                    target: wit::TargetSettings,
                ) -> Result<Option<wit::Recorded>, types::Error> {
                    role::last_load::<Own>(&config, target)
                }
                fn forget(config: String, target: wit::TargetSettings) -> Result<u64, types::Error> {
                    role::forget::<Own>(&config, target)
                }
                fn place(
                    config: String,
                    target: wit::TargetSettings,
                ) -> Result<Option<String>, types::Error> {
                    role::place::<Own>(&config, target)
                }
                fn claim(config: String, target: wit::TargetSettings) -> Result<(), types::Error> {
                    role::claim::<Own>(&config, target)
                }
                fn open(
                    config: String,
                    target: wit::TargetSettings,
                    columns: Vec<types::Column>,
                ) -> Result<wit::OpenedTarget, types::Error> {
                    role::open::<Own>(&config, target, columns)
                }
                fn attach(
                    config: String,
                    target: wit::TargetSettings,
                    columns: Vec<types::Column>,
                    _handle: Vec<u8>,
                ) -> Result<(), types::Error> {
                    role::open::<Own>(&config, target, columns).map(drop)
                }
                fn prepare(load: wit::Load) -> Result<(), types::Error> {
                    role::prepare(load)
                }
                fn begin(load: wit::Load, unit: types::Unit) -> Result<(), types::Error> {
                    role::begin(load, unit)
                }
                fn write(
                    rows: types::Rows,
                    content: wit::ContentHash,
                    dead: Vec<types::DeadRow>,
                ) -> Result<(), types::Error> {
                    role::write(rows, content, dead)
                }
                fn commit(entry: wit::LedgerEntry) -> Result<wit::LedgerEntry, types::Error> {
                    role::commit(entry)
                }
                fn finish(load: wit::Load) -> Result<(), types::Error> {
                    role::finish(load)
                }
                fn content() -> Result<wit::ContentHash, types::Error> {
                    role::content()
                }
            }

            $crate::wit::destination_world::export_destination!(Component with_types_in $crate::wit::destination_world);
        };
    };
}

/// Exports settings of a transform.
#[macro_export]
macro_rules! transform {
    ($settings:ty) => {
        const _: () = {
            struct Component;
            type Own = $settings;
            use $crate::roles::transform as role;
            use $crate::wit::{transform as wit, types};

            impl wit::Guest for Component {
                fn spec() -> types::ComponentSpec {
                    role::spec::<Own>(env!("CARGO_PKG_VERSION"), env!("CARGO_PKG_DESCRIPTION"))
                }
                fn validate(config: String) -> Result<types::Reach, types::InvalidSetting> {
                    role::validate::<Own>(&config)
                }
                fn open(
                    config: String,
                    stream: String,
                    columns: Vec<types::Column>,
                ) -> Result<wit::OpenedTransform, types::Error> {
                    role::open::<Own>(&config, &stream, columns)
                }
                fn apply(
                    position: wit::Position,
                    rows: types::Rows,
                ) -> Result<wit::Applied, types::Error> {
                    role::apply(&position, rows)
                }
            }

            $crate::wit::transform_world::export_transform!(Component with_types_in $crate::wit::transform_world);
        };
    };
}

/// Exports settings of a source that reports changes, besides [`source!`].
#[macro_export]
macro_rules! change_source {
    ($settings:ty) => {
        const _: () = {
            struct Component;
            type Own = $settings;
            use $crate::roles::change_source as role;
            use $crate::wit::{change_source as wit, changes, types};

            impl wit::Guest for Component {
                fn name(
                    config: String,
                    pipeline: String,
                    streams: Vec<types::StreamSettings>,
                    known: Option<changes::FeedOrigin>,
                ) -> Result<changes::FeedOrigin, types::Error> {
                    role::name::<Own>(&config, &pipeline, streams, known)
                }
                fn create(
                    config: String,
                    origin: changes::FeedOrigin,
                    streams: Vec<types::StreamSettings>,
                ) -> Result<wit::CreatedFeed, types::Error> {
                    role::create::<Own>(&config, origin, streams)
                }
                fn extend(
                    config: String,
                    origin: changes::FeedOrigin,
                    streams: Vec<types::StreamSettings>,
                    further: Vec<types::StreamSettings>,
                ) -> Result<wit::CreatedFeed, types::Error> {
                    role::extend::<Own>(&config, origin, streams, further)
                }
                fn read_at(snapshot: Option<String>) {
                    role::read_at(snapshot)
                }
                fn attach(
                    config: String,
                    feed: changes::Feed,
                    streams: Vec<types::StreamSettings>,
                    unit_size: u64,
                ) -> Result<wit::Attached, types::Error> {
                    role::attach::<Own>(&config, feed, streams, unit_size)
                }
                fn next(wait_ms: u32) -> Result<wit::Following, types::Error> {
                    role::next(wait_ms)
                }
                fn keep_alive(wait_ms: u32) -> Result<(), types::Error> {
                    role::keep_alive(wait_ms)
                }
                fn confirm(position: String) -> Result<(), types::Error> {
                    role::confirm(&position)
                }
                fn behind() -> wit::Lag {
                    role::behind()
                }
                fn is_reached(position: String, wanted: String) -> bool {
                    role::is_reached(&position, &wanted)
                }
                fn health(
                    config: String,
                    origin: changes::FeedOrigin,
                ) -> Result<wit::FeedHealth, types::Error> {
                    role::health::<Own>(&config, origin)
                }
                fn remove(
                    config: String,
                    origin: changes::FeedOrigin,
                ) -> Result<bool, types::Error> {
                    role::remove::<Own>(&config, origin)
                }
            }

            $crate::wit::change_source_world::export_change_source!(
                Component with_types_in $crate::wit::change_source_world
            );
        };
    };
}

/// Exports settings of a destination that applies changes, besides [`destination!`].
#[macro_export]
macro_rules! change_target {
    ($settings:ty) => {
        const _: () = {
            struct Component;
            type Own = $settings;
            use $crate::roles::change_target as role;
            use $crate::wit::{change_target as wit, changes, types};

            impl wit::Guest for Component {
                fn forms() -> Vec<changes::FeedForm> {
                    role::forms::<Own>()
                }
                fn check(
                    config: String,
                    streams: Vec<changes::FeedStream>,
                    form: changes::FeedForm,
                ) -> Result<(), types::Error> {
                    role::check::<Own>(&config, streams, form)
                }
                fn recorded(
                    config: String,
                    pipeline: String,
                ) -> Result<Option<changes::Feed>, types::Error> {
                    role::recorded::<Own>(&config, &pipeline)
                }
                fn replace(
                    config: String,
                    pipeline: String,
                    before: Option<changes::Feed>,
                    feed: Option<changes::Feed>,
                ) -> Result<(), types::Error> {
                    role::replace::<Own>(&config, &pipeline, before, feed)
                }
                fn copy_for(form: changes::FeedForm) {
                    role::copy_for(form)
                }
                fn open(
                    config: String,
                    pipeline: String,
                    feed: changes::Feed,
                    targets: Vec<types::TargetSettings>,
                ) -> Result<(), types::Error> {
                    role::open::<Own>(&config, &pipeline, feed, targets)
                }
                fn apply(unit: Vec<u8>) -> Result<Vec<wit::Applied>, types::Error> {
                    role::apply(&unit)
                }
                fn advance(position: String) -> Result<(), types::Error> {
                    role::advance(&position)
                }
            }

            $crate::wit::change_target_world::export_change_target!(
                Component with_types_in $crate::wit::change_target_world
            );
        };
    };
}
