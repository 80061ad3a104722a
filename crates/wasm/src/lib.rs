//! The host of connectors that are WebAssembly components.
//!
//! A component is called through `wit/connector.wit`. It has its own memory, reaches the servers and files that its
//! pipeline grants, and nothing else: no other files, no environment, no processes. Whatever it does, the run gets an error
//! and goes on.
//!
//! | module | purpose |
//! |---|---|
//! | [`host`], [`cache`], `seen` | the engine, and components it has compiled |
//! | [`grants`] | what a component may reach |
//! | [`instance`], `state` | instances, their limits, and how a call of one ends |
//! | `imports`, `sockets` | what a component may call |
//! | [`source`], [`destination`], [`transform`] | components as connectors |
//! | `change_source`, `following`, `change_target` | components as sources and destinations of changes |
//! | [`inspect`], [`examine`] | what a component is; whether it keeps the promises of a connector |
//! | [`installed`], `settings` | components in a directory, and their settings |
//!
//! Invariants:
//! * Names of types, columns and units of a component are data: they are checked before they are used.
//! * Rows and content hashes are counted here, and compared with what a component says.
//! * This crate reads no configuration, environment or arguments.

pub mod cache;
mod change_source;
mod change_target;
pub mod destination;
pub mod examine;
mod following;
pub mod grants;
pub mod host;
mod imports;
pub mod inspect;
pub mod installed;
pub mod instance;
mod seen;
mod settings;
pub mod sockets;
pub mod source;
mod state;
pub mod transform;
mod wit;

pub use destination::WasmDestination;
pub use grants::Grants;
pub use host::Host;
pub use instance::Loaded;
pub use source::WasmSource;
pub use transform::WasmTransform;

forebay_sdk::component_conversions!();
