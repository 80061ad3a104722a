//! Webhooks: what the server stored, changed and finished, sent to HTTP receivers.
//!
//! ```text
//! log of the intake, log of the jobs --Source--> worker of a hook --Transport--> receiver
//!                                                      |
//!                                          state.sqlite: hooks, positions, deliveries
//! ```
//!
//! A hook is a URL, a filter, and a position in each log. Its worker reads on from there, sends one event after
//! the other, and moves the position when the receiver has answered. So the logs are the queue: nothing has to
//! be stored when something happens, nothing that was acknowledged is missed after a crash, and a receiver that
//! is away costs no memory. An event's id is made of its position, so it is the same however often it is sent.
//!
//! From the bottom: `event` and `source` (what is sent, and where it comes from), `address` (which receivers are
//! permitted), `secret` (signatures), `transport` (HTTP), `hook` and `store` (what is kept), `judge` (what an
//! answer means), `worker` (one task a hook), `hooks` (what callers use).
//!
//! This crate deliberately serves no HTTP, reads no configuration, and knows no other engine: sources are a trait.
//! Decision 0025 has the reasons, `docs/formats/webhooks.md` the bytes.
#![deny(missing_docs, clippy::unwrap_used)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test"))]

mod address;
mod check;
mod error;
mod event;
mod hook;
mod hooks;
mod image;
mod judge;
mod live;
mod meters;
mod options;
mod reading;
mod secret;
mod source;
mod store;
mod transport;
mod worker;

pub use address::{AddressError, Allow, Allowed};
pub use check::{Checked, check, pause_all};
pub use error::{OpenError, StoreError, WebhookError};
pub use event::{EVENT_TYPES, Event, Filter, Item, Point, event_id};
pub use hook::{CursorState, Delivery, DeliveryState, Hook, HookId, HookView, URL_SIZE_MAX};
pub use hooks::{Change, DeliveryFilter, Hooks, NewHook, Stats};
pub use image::WebhookImageError;
pub use options::Options;
pub use secret::{Secrets, SigningKey, signature};
pub use source::{Batch, Source, SourceError};
pub use transport::{Answer, HttpTransport, Lookup, Request, SendError, SystemLookup, Transport};
