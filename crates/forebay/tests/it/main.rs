//! The real `forebay` binary, end to end: started on a free port, used over its sockets.

#![expect(clippy::unwrap_used, reason = "a test says what it means by panicking")]

mod api_description;
mod auth;
mod backup;
mod backup_s3;
mod blobs_faults;
mod blobs_kill;
mod cache_auth;
mod cache_client;
mod cache_descriptors;
mod cache_full;
mod cache_keys;
mod cache_kill;
mod cache_memory;
mod cache_serve;
mod cache_support;
mod cache_tls;
mod cli;
mod connector_scaffolds;
mod deployment;
mod documents_cli;
mod events_anchor_s3;
mod events_cli;
mod events_export;
mod events_export_s3;
mod events_http;
mod events_kill;
mod events_support;
mod events_tiles;
mod events_witness;
mod export;
#[cfg(feature = "mongodb")]
mod ferret_support;
mod files_cli;
mod followers;
mod fsck;
mod full_disk;
mod http;
mod intake_database;
#[cfg(feature = "mongodb")]
mod intake_database_mongo;
mod intake_hostile;
mod intake_http;
mod intake_kill;
mod inventory_cli;
mod inventory_http;
mod inventory_versions;
mod jobs;
mod jobs_adopted;
mod lake;
mod mixed_client;
mod mixed_kill;
mod mixed_oracle;
mod mixed_records;
mod mixed_uploads;
mod namespaces_cli;
mod pipeline_alerts;
#[cfg(feature = "clickhouse")]
mod pipeline_clickhouse;
#[cfg(feature = "clickhouse")]
mod pipeline_clickhouse_kill;
mod pipeline_columns;
#[cfg(feature = "delta")]
mod pipeline_delta;
mod pipeline_feed;
mod pipeline_feed_cut;
mod pipeline_feed_events;
mod pipeline_feed_events_kinds;
mod pipeline_feed_files;
mod pipeline_feed_forms;
mod pipeline_feed_keyless;
mod pipeline_feed_kinds;
#[cfg(feature = "mongodb")]
mod pipeline_feed_mongodb;
mod pipeline_feed_sandbox;
mod pipeline_feed_sqlite;
mod pipeline_feed_tables;
mod pipeline_file;
mod pipeline_forebay;
mod pipeline_http;
#[cfg(feature = "http-json")]
mod pipeline_http_json;
mod pipeline_incremental;
mod pipeline_kill;
#[cfg(feature = "mongodb")]
mod pipeline_mongodb;
#[cfg(feature = "mysql")]
mod pipeline_mysql;
mod pipeline_names;
mod pipeline_pg;
mod pipeline_sandbox;
mod presign;
mod process;
mod rules;
mod s3_client;
mod support;
#[cfg(feature = "thumbnails")]
mod thumbnails;
mod tls;
mod tour;
mod uploads_kill;
mod uploads_limits;
mod webhook_receiver;
mod webhooks;
