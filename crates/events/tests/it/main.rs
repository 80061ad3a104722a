//! The event store through its public interface.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod crash;
mod input;
mod input_envelopes;
mod input_hostile;
mod input_products;
mod input_split;
mod input_times;
mod merkle;
mod merkle_vectors;
mod store_addresses;
mod store_anchors;
mod store_authentic;
mod store_bundles;
mod store_cut;
mod store_damage;
mod store_derived;
mod store_faults;
mod store_model;
mod store_named;
mod store_online;
mod store_publish;
mod store_queries;
mod store_record;
mod store_requests;
mod store_retention;
mod store_tamper;
mod store_threads;
mod store_verified;
mod witness;
