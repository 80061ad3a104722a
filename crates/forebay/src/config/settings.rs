//! Every setting there is: key, type, default and what it means, each written once.
//!
//! The `settings!` table below is the only place that names a setting. From it come the typed
//! [`Config`], the [`SETTINGS`] list that `config show` and `config init` walk, the environment
//! variable (`server.listen` is `FOREBAY_SERVER_LISTEN`) and the check for unknown keys.

use std::net::SocketAddr;
use std::path::PathBuf;

use forebay_base::bytes::ByteSize;
use forebay_base::durability::Durability;
use forebay_base::duration::HumanDuration;
use forebay_cache::store::Policy;
use forebay_events::segment::Compression;
use forebay_intake::rules::Rules;

use super::anchors::{Anchors, WitnessLogs, Witnesses};
use super::blobs::Prefix;
use super::cache::OutputLimit;
use super::database::{DatabaseTls, DatabaseUrl};
use super::events::{ByStream, Preset, Retentions, Zones};
use super::inventory::Sources;
use super::origin::{Hosts, Origins};
use super::pipelines::Schedules;
use super::resolve::Resolved;
use super::sources::SettingSources;
use super::value::{Auth, CacheNetwork, CacheServer, LogFormat, Percent, Toml, Value};
use super::webhooks::AllowedReceivers;

/// One setting, as the rest of the program sees it.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Dotted key in `forebay.toml`: `server.listen`.
    pub(crate) key: &'static str,
    /// The default, as text the parser accepts; empty when unset by default.
    pub(crate) default: &'static str,
    /// Its description, by lines.
    pub(crate) doc: &'static [&'static str],
    /// The form of its value, for error messages.
    pub(crate) expected: &'static str,
    /// How `forebay.toml` writes it.
    pub(crate) toml: Toml,
    /// Returns what is wrong with a text, if anything.
    pub(crate) check: fn(&str) -> Result<(), String>,
    /// Returns the text to print, without its secrets.
    pub(crate) shown: fn(&str) -> String,
}

impl Setting {
    /// The environment variable of this setting.
    pub(crate) fn env(&self) -> String {
        format!("FOREBAY_{}", self.key.replace('.', "_").to_uppercase())
    }

    /// `text` the way `forebay.toml` writes it.
    pub(crate) fn toml_literal(&self, text: &str) -> String {
        match self.toml {
            Toml::Number | Toml::Flag if !text.is_empty() => text.to_owned(),
            _ => toml::Value::String(text.to_owned()).to_string(),
        }
    }
}

/// The setting called `key`.
pub(crate) fn find(key: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.key == key)
}

macro_rules! settings {
    ($(
        $(#[doc = $sdoc:literal])+
        $section:ident: $struct:ident {
            $( $(#[doc = $doc:literal])+ $field:ident($key:literal): $type:ty = $default:literal; )+
        }
    )+) => {
        $(
            $(#[doc = $sdoc])+
            #[derive(Clone, Debug)]
            #[cfg_attr(not(feature = "mongodb"), allow(dead_code, reason = "of an absent part"))]
            pub(crate) struct $struct { $( $(#[doc = $doc])+ pub(crate) $field: $type, )+ }
        )+

        /// The whole configuration, typed.
        #[derive(Clone, Debug)]
        pub(crate) struct Config {
            $( $(#[doc = $sdoc])+ pub(crate) $section: $struct, )+
            /// Where each setting comes from, for messages.
            pub(crate) sources: SettingSources,
        }

        /// Every setting, in the order `config show` prints them.
        pub(crate) const SETTINGS: &[Setting] = &[
            $($(Setting {
                key: $key,
                default: $default,
                doc: &[$($doc),+],
                expected: <$type as Value>::EXPECTED,
                toml: <$type as Value>::TOML,
                check: |text| <$type as Value>::parse(text).map(drop),
                shown: <$type as Value>::shown,
            },)+)+
        ];

        impl Config {
            /// Builds the typed configuration from texts that were checked one by one before.
            pub(crate) fn build(resolved: &Resolved) -> anyhow::Result<Self> {
                Ok(Self { $(
                    $section: $struct { $( $field: resolved.typed::<$type>($key)?, )+ },
                )+ sources: SettingSources::of(resolved) })
            }
        }
    };
}

settings! {
    /// The process itself.
    process: Process {
        /// Directory for all data of the server. It is created if it does not exist.
        data("data"): PathBuf = "./forebay-data";
        /// Number of worker threads. 0 uses one for each processor.
        threads("threads"): u16 = "0";
        /// Log level (error, warn, info, debug, trace), or a filter such as
        /// info,forebay_api=debug. Requests are logged at level debug.
        log("log"): String = "info";
        /// Log format: auto (human on a terminal, JSON otherwise), human or json.
        log_format("log_format"): LogFormat = "auto";
    }
    /// The HTTP server.
    server: Server {
        /// Address and port to listen on. Port 0 chooses a free port.
        listen("server.listen"): SocketAddr = "127.0.0.1:8090";
        /// Host names by which clients may address the server, separated by commas, in addition to
        /// localhost, loopback addresses and the address they connect to. Others are refused with
        /// 421.
        hosts("server.hosts"): Hosts = "";
        /// Origins of web pages that may call the server from a browser, separated by commas.
        /// Requests from other pages are refused with 403.
        cors_origins("server.cors_origins"): Origins = "";
        /// Allow listening on addresses other than loopback without API keys.
        insecure("server.insecure"): bool = "false";
        /// When /v1 requires an API key: auto (once `forebay key new` was used), required or off.
        auth("server.auth"): Auth = "auto";
        /// Certificate chain in PEM. Set together with tls_key, it makes the server speak HTTPS.
        tls_cert("server.tls_cert"): Option<PathBuf> = "";
        /// Private key in PEM.
        tls_key("server.tls_key"): Option<PathBuf> = "";
        /// Maximum number of open connections. A further one replaces an idle connection, or a slow
        /// one of an address that has more than client_share_max percent of them. If there is none,
        /// it is refused with 503 and closed.
        connections_max("server.connections_max"): u32 = "4096";
        /// Maximum number of requests in progress. More are refused with 429 and Retry-After.
        requests_in_flight_max("server.requests_in_flight_max"): u32 = "1024";
        /// Maximum share of requests_in_flight_max that one address or one API key may use, in
        /// percent. More are refused with 429.
        client_share_max("server.client_share_max"): Percent = "75";
        /// Maximum share of connections_max that clients which follow documents, events or jobs may
        /// use, in percent. More are refused with 429.
        followers_share_max("server.followers_share_max"): Percent = "25";
        /// Maximum size of the request line and headers together. Larger ones are refused with 431.
        header_size_max("server.header_size_max"): ByteSize = "32KiB";
        /// Time limit for a client to send a complete request head, or to finish a TLS handshake.
        header_read_timeout("server.header_read_timeout"): HumanDuration = "10s";
        /// Maximum time a kept-alive connection may wait for its next request.
        idle_timeout("server.idle_timeout"): HumanDuration = "75s";
        /// Maximum time a client may leave a response unread. Then the connection is closed.
        write_stall_timeout("server.write_stall_timeout"): HumanDuration = "60s";
        /// Maximum time a client may send nothing of a request body. Then it is answered 408.
        body_idle_timeout("server.body_idle_timeout"): HumanDuration = "30s";
        /// Minimum rate, in bytes per second, at which a client must send a body or read a response
        /// once rate_grace has passed.
        rate_min("server.rate_min"): ByteSize = "1KiB";
        /// Maximum time a transfer may stay below rate_min.
        rate_grace("server.rate_grace"): HumanDuration = "30s";
        /// Maximum memory for responses that clients have not read yet. Beyond it the connection
        /// that has not read for the longest time is closed.
        output_memory_max("server.output_memory_max"): ByteSize = "16MiB";
        /// Maximum time that shutdown waits for running requests.
        shutdown_limit("server.shutdown_limit"): HumanDuration = "30s";
    }
    /// Files and documents.
    intake: Intake {
        /// When an upload is acknowledged: sync (on stable storage), interval:50ms (in the kernel,
        /// flushed at most that much later) or os (in the kernel).
        durability("intake.durability"): Durability = "sync";
        /// Maximum size of a file.
        file_size_max("intake.file_size_max"): ByteSize = "64GiB";
        /// Maximum size of a single JSON document.
        document_size_max("intake.document_size_max"): ByteSize = "16MiB";
        /// Minimum number of documents before a namespace is decided to be a table or a collection.
        /// Until then it is a collection. A request with a target decides at once.
        decision_documents_min("intake.decision_documents_min"): u32 = "10";
        /// Interval at which all names and counts are verified while the server runs. A pass that
        /// takes long is followed by a longer pause.
        verify_interval("intake.verify_interval"): HumanDuration = "10m";
        /// Whether files can be searched. The index is kept in the data directory and follows what is
        /// stored.
        search("intake.search"): bool = "true";
        /// Maximum number of parts in one multipart upload.
        parts_max("intake.parts_max"): u32 = "10000";
        /// Maximum number of concurrent uploads. More are refused with 429 and Retry-After.
        uploads_max("intake.uploads_max"): u32 = "512";
        /// Minimum average rate of an upload, in bytes per second, once upload_rate_grace has
        /// passed.
        upload_rate_min("intake.upload_rate_min"): ByteSize = "1KiB";
        /// Maximum time an upload may stay below upload_rate_min.
        upload_rate_grace("intake.upload_rate_grace"): HumanDuration = "30s";
        /// Maximum time an upload may send nothing.
        upload_idle_timeout("intake.upload_idle_timeout"): HumanDuration = "30s";
        /// Maximum number of unfinished resumable uploads. More are refused with 429.
        unfinished_uploads_max("intake.unfinished_uploads_max"): u32 = "10000";
        /// Maximum number of bytes that unfinished uploads may take, with those still to come. More
        /// are refused with 507.
        unfinished_bytes_max("intake.unfinished_bytes_max"): ByteSize = "1TiB";
        /// Time after its last change at which an unfinished upload expires.
        unfinished_kept("intake.unfinished_kept"): HumanDuration = "24h";
        /// Routing rules of new files, each CONDITIONS -> ACTIONS. The first that matches applies.
        /// Conditions: name=, type=, from= (namespace), key= (id of the API key; all are patterns
        /// with * and ?), category=, protocol= (http, tus or s3), size_min= and size_max=. Actions:
        /// namespace= (only where the request names none), tag.NAME= and keep= (time after which
        /// the file is deleted, at least 1m). Separate several rules by commas.
        rules("intake.rules"): Rules = "";
        /// Where the bytes of files are kept: empty for the data directory, or s3://BUCKET/PREFIX for
        /// object storage. Files stored before stay where they are until `forebay blobs move`.
        blobs("intake.blobs"): Option<Prefix> = "";
        /// Object storage that files are still read from, while intake.blobs is empty and
        /// `forebay blobs move` moves them to the data directory.
        blobs_from("intake.blobs_from"): Option<Prefix> = "";
        /// URL of the object storage server. Empty: AWS_ENDPOINT_URL, or Amazon S3.
        blobs_endpoint("intake.blobs_endpoint"): Option<String> = "";
        /// Region of the bucket. Empty: AWS_REGION, or us-east-1.
        blobs_region("intake.blobs_region"): Option<String> = "";
        /// Profile in ~/.aws with keys or credential_process, region and endpoint. Empty: AWS_PROFILE.
        blobs_profile("intake.blobs_profile"): Option<String> = "";
        /// Whether requests name the bucket in the path, not in the host name.
        blobs_path_style("intake.blobs_path_style"): bool = "false";
        /// Whether an object storage server without TLS is permitted.
        blobs_allow_http("intake.blobs_allow_http"): bool = "false";
        /// Size of the cache, on this machine, of what is read from object storage, at least 16MiB.
        blobs_cache("intake.blobs_cache"): ByteSize = "1GiB";
        /// Maximum size of a file that stays in the log, and so on this machine, although intake.blobs
        /// names a bucket.
        blobs_inline_max("intake.blobs_inline_max"): ByteSize = "4KiB";
        /// Minimum time between two uploads of small files, which are sent together. The longer, the
        /// fewer requests, and the longer a small file waits.
        blobs_pack_wait("intake.blobs_pack_wait"): HumanDuration = "50ms";
        /// Time that an object stays in the bucket after its last file was deleted. A backup that is
        /// older cannot be restored completely.
        blobs_keep("intake.blobs_keep"): HumanDuration = "24h";
    }
    /// An external database that receives every document too. Without `url` there is none.
    database: Database {
        /// Address of the database: postgres://user@host:5432/database or
        /// mongodb://user@host:27017/database. It may include the password, with special characters
        /// written as %XX.
        url("intake.database.url"): Option<DatabaseUrl> = "";
        /// File whose first line is the password of the user in url.
        password_file("intake.database.password_file"): Option<PathBuf> = "";
        /// PostgreSQL: schema of the tables, used by one intake only. Empty: forebay. MongoDB: name
        /// of the database. Empty: the one in url.
        schema("intake.database.schema"): Option<String> = "";
        /// Whether the connection is encrypted: auto (unless the server is on this machine, or the
        /// url of a MongoDB says otherwise), disable or verify.
        tls("intake.database.tls"): DatabaseTls = "auto";
        /// File of CA certificates (PEM) to trust instead of the system's.
        tls_ca_file("intake.database.tls_ca_file"): Option<PathBuf> = "";
        /// MongoDB: number of connections kept open, unless url sets it. PostgreSQL uses one.
        connections_min("intake.database.connections_min"): u32 = "10";
        /// MongoDB: maximum number of connections, unless url sets it.
        connections_max("intake.database.connections_max"): u32 = "100";
        /// MongoDB: whether the traffic is compressed with a method that the server offers.
        compression("intake.database.compression"): bool = "true";
        /// Time limit for connecting to the database.
        connect_timeout("intake.database.connect_timeout"): HumanDuration = "10s";
        /// Time limit for one statement.
        statement_timeout("intake.database.statement_timeout"): HumanDuration = "60s";
        /// Maximum size of documents spilled to files while the database is unavailable. Beyond it
        /// the documents are kept in the log.
        spill_max("intake.database.spill_max"): ByteSize = "1GiB";
        /// Time the database must be unavailable before waiting documents are spilled.
        spill_after("intake.database.spill_after"): HumanDuration = "5s";
        /// Maximum size of the log kept for the database. Beyond it documents are refused with 503
        /// and Retry-After until the database has caught up.
        log_max("intake.database.log_max"): ByteSize = "4GiB";
        /// Maximum delay between two attempts to connect.
        retry_max("intake.database.retry_max"): HumanDuration = "30s";
        /// Accept a database that already holds documents of this intake although forward.json does
        /// not name it. Use it for one start, after forward.json in the data directory was lost.
        adopt("intake.database.adopt"): bool = "false";
    }
    /// The S3-compatible port. Buckets are namespaces of files.
    s3: S3 {
        /// Address for the S3-compatible API. It speaks HTTPS if server.tls_cert is set, and the limits
        /// of the server apply. Empty: not served.
        listen("s3.listen"): Option<SocketAddr> = "";
        /// Domain names under which a bucket may be the first part of the host name (BUCKET.DOMAIN),
        /// separated by commas. Empty: only paths name buckets.
        domains("s3.domains"): Hosts = "";
        /// Region that requests must be signed for. Empty: any region is accepted, and the region is
        /// reported as forebay.
        region("s3.region"): Option<String> = "";
    }
    /// The key-value cache.
    cache: Cache {
        /// Whether `forebay serve` serves the cache.
        enabled("cache.enabled"): bool = "true";
        /// Address for RESP, the protocol of Redis. Empty: not served.
        resp("cache.resp"): Option<SocketAddr> = "127.0.0.1:6380";
        /// Address for the plain text protocol. Empty: not served.
        text("cache.text"): Option<SocketAddr> = "127.0.0.1:8890";
        /// Address for RESP over TLS. Empty: not served.
        tls_resp("cache.tls_resp"): Option<SocketAddr> = "";
        /// Address for the text protocol over TLS. Empty: not served.
        tls_text("cache.tls_text"): Option<SocketAddr> = "";
        /// Certificate chain in PEM for the TLS addresses. Empty: server.tls_cert. A renewed file
        /// is used for new connections within a second.
        tls_cert("cache.tls_cert"): Option<PathBuf> = "";
        /// Private key in PEM for the TLS addresses. Empty: server.tls_key.
        tls_key("cache.tls_key"): Option<PathBuf> = "";
        /// Whether the cache keeps its data on disk, in the data directory.
        persist("cache.persist"): bool = "true";
        /// When a write is acknowledged: sync, interval:50ms or os.
        durability("cache.durability"): Durability = "interval:50ms";
        /// Maximum memory for data and index together. Empty: no limit.
        memory_max("cache.memory_max"): Option<ByteSize> = "";
        /// Maximum memory for all connections together: incomplete requests, unread output and
        /// queued transactions. Beyond it the connections that use most are closed. It also limits
        /// the size of a request. Empty: a quarter of memory_max, at least 64MiB; without
        /// memory_max a quarter of the machine's memory.
        clients_memory_max("cache.clients_memory_max"): Option<ByteSize> = "";
        /// What to evict when memory_max is reached: noeviction (nothing; writes that need memory
        /// are refused), allkeys-s3fifo (the keys used least; best for a cache of data stored
        /// elsewhere), allkeys-lru, -lfu or -random; or only keys with a deadline: volatile-lru,
        /// -lfu, -random, -ttl.
        policy("cache.policy"): Policy = "noeviction";
        /// Threading model: per-connection (one thread does all work of a connection) or pooled (a
        /// connection with work to do is given to one of a limited number of workers).
        server("cache.server"): CacheServer = "per-connection";
        /// Maximum number of workers of the pooled server. It adapts their number up to this limit.
        workers("cache.workers"): u32 = "200";
        /// Maximum number of threads of the per-connection server. 0 uses one for each processor.
        threads("cache.threads"): u16 = "0";
        /// Number of these threads that are always in use. Further ones are used while those are
        /// busy, and connections move to them.
        threads_min("cache.threads_min"): u16 = "1";
        /// How the per-connection server accesses its sockets: auto (io_uring where the kernel
        /// provides and permits it, else epoll), epoll or io_uring. The pooled server uses epoll.
        network("cache.network"): CacheNetwork = "auto";
        /// File whose first line is the password for clients. Empty: no password is needed until
        /// the first API key is made. An API key is accepted too, within its scopes.
        password_file("cache.password_file"): Option<PathBuf> = "";
        /// Maximum number of open connections. More are refused with an error and closed. The limit
        /// on open files of the process, less a reserve for storage, applies too. 0: only that
        /// limit.
        connections_max("cache.connections_max"): u32 = "10000";
        /// Maximum time a RESP connection may be idle. Empty: no limit.
        idle_timeout("cache.idle_timeout"): Option<HumanDuration> = "";
        /// Maximum time a text connection may be idle. Empty: no limit.
        text_idle_timeout("cache.text_idle_timeout"): Option<HumanDuration> = "5m";
        /// Maximum length of a line of the text protocol.
        line_size_max("cache.line_size_max"): ByteSize = "1MiB";
        /// Maximum size of one argument, and therefore of a value.
        value_size_max("cache.value_size_max"): ByteSize = "512MiB";
        /// Maximum size of unread output of one connection. Beyond it the connection is closed.
        output_size_max("cache.output_size_max"): ByteSize = "1GiB";
        /// Limits on unread output of a connection that subscribes to no channel: a hard limit, a
        /// soft limit, and how long the soft limit may be exceeded. 0 is no limit.
        output_limit_normal("cache.output_limit_normal"): OutputLimit = "0 0 0s";
        /// The same limits for a connection that subscribes to channels.
        output_limit_pubsub("cache.output_limit_pubsub"): OutputLimit = "32MiB 8MiB 60s";
        /// Maximum time a client may read nothing of its output. Then its connection is closed.
        write_stall_timeout("cache.write_stall_timeout"): HumanDuration = "60s";
    }
    /// The event store. Where a setting may be empty, the preset supplies its value.
    events: Events {
        /// Whether `forebay serve` serves the event store.
        enabled("events.enabled"): bool = "true";
        /// Defaults of the settings below: balanced (every batch synced, blocks compressed),
        /// max-throughput (acknowledged by the kernel, large tables, no compression) or
        /// max-durability (one event per batch, each synced, small tables).
        preset("events.preset"): Preset = "balanced";
        /// When a batch is acknowledged: sync, interval:50ms or os. Empty: sync; os in
        /// max-throughput.
        durability("events.durability"): Option<Durability> = "";
        /// Whether to keep and sign a Merkle tree over all events. Chosen when the store is
        /// created.
        merkle("events.merkle"): bool = "true";
        /// Name under which the store signs its checkpoints. Used when the store creates its key.
        /// Empty: forebay.local/events.
        origin("events.origin"): Option<String> = "";
        /// How long a commit waits for others that share its sync. Empty: 0s; 500us in
        /// max-throughput.
        group_commit_delay("events.group_commit_delay"): Option<HumanDuration> = "";
        /// Number of events in one batch, 1 to 65000. Empty: 2000; 1 in max-durability.
        batch_events("events.batch_events"): Option<u32> = "";
        /// Size of one file of the log, 1MiB to 64GiB. Empty: 64MiB.
        log_segment_size("events.log_segment_size"): Option<ByteSize> = "";
        /// Number of events in memory at which a segment is written. Empty: 500000; 2000000 in
        /// max-throughput, 100000 in max-durability.
        memory_table_events("events.memory_table_events"): Option<u32> = "";
        /// Bytes in memory at which a segment is written, at least 1MiB. Up to three times as much
        /// may be in memory. Empty: 64MiB; 512MiB in max-throughput, 16MiB in max-durability.
        memory_table_size("events.memory_table_size"): Option<ByteSize> = "";
        /// Compression of segments: none, lz4, zstd or zstd:LEVEL. Empty: zstd:3; none in
        /// max-throughput.
        compression("events.compression"): Option<Compression> = "";
        /// Size of a block of a segment before compression, 4KiB to 1MiB. The index has one entry
        /// for each block. Empty: 32KiB.
        block_size("events.block_size"): Option<ByteSize> = "";
        /// Bits of a block's filter for each key, 1 to 64. Empty: 10.
        filter_bits_per_key("events.filter_bits_per_key"): Option<u32> = "";
        /// Whether the filters include the words of the raw bytes, for text search, and the addresses
        /// that events name. Empty: true; false in max-throughput.
        text_filter("events.text_filter"): Option<bool> = "";
        /// Maximum time events stay in memory before they are written as a segment. Empty: 1m; 2m
        /// in max-throughput, 10s in max-durability.
        flush_interval("events.flush_interval"): Option<HumanDuration> = "";
        /// How often small segments are merged and expired events removed. Empty: 30s; 10m in
        /// max-throughput.
        compaction_interval("events.compaction_interval"): Option<HumanDuration> = "";
        /// How often a checkpoint is signed while events arrive. Empty: 10s; 1s in max-durability.
        checkpoint_interval("events.checkpoint_interval"): Option<HumanDuration> = "";
        /// Places outside the data directory, on other machines if possible, into which signed
        /// checkpoints are published: directories, s3://BUCKET/PREFIX, https://HOST/PATH (the body of
        /// a POST request), syslog://HOST:PORT (UDP) or syslog+tcp://HOST:PORT. Separate several by
        /// commas. `forebay events verify --anchor` compares the store with those in a directory or
        /// bucket. Empty: none.
        anchor("events.anchor"): Anchors = "";
        /// Minimum time between two published checkpoints, and between two that witnesses cosign.
        anchor_interval("events.anchor_interval"): HumanDuration = "1m";
        /// Witnesses that cosign checkpoints (C2SP tlog-witness): the URL of each, to which
        /// add-checkpoint is appended, a space, and its key. Separate several by commas. Empty: none.
        witnesses("events.witnesses"): Witnesses = "";
        /// Number of witnesses that must have cosigned a checkpoint before it is served as the newest
        /// one.
        witness_quorum("events.witness_quorum"): u32 = "1";
        /// Verifier keys of logs for which this server is a witness, at POST /witness/add-checkpoint.
        /// Separate several by commas. Empty: none.
        witness_logs("events.witness_logs"): WitnessLogs = "";
        /// Name of the key with which this server cosigns as a witness. Used when the key is created.
        witness_name("events.witness_name"): String = "forebay.local/witness";
        /// How long events are kept, from their arrival. Empty: forever. 30d applies to every
        /// stream, audit=365d to one. Separate several rules by commas: 30d,audit=365d,debug=12h.
        retention("events.retention"): Retentions = "";
        /// Maximum size of all segments, at least 16MiB. Above it the events of any stream that
        /// arrived first are removed, a sixteenth of the size at a time. Empty: no limit.
        retention_size("events.retention_size"): Option<ByteSize> = "";
        /// How long an append with an Idempotency-Key is remembered, so that it is not stored again.
        /// At most 32768 are remembered.
        idempotency_window("events.idempotency_window"): HumanDuration = "1d";
        /// Field that has the time of a record, with dots between nested ones. Empty: recognised by
        /// its name. ts applies to every stream, audit=meta.time to one; separate by commas.
        time_field("events.time_field"): ByStream = "";
        /// Zone of times without an offset: UTC, +02:00, or a name such as Europe/Paris. Empty: they
        /// are read as UTC and marked as assumed. Times that the zone's clocks show twice or never
        /// are marked, too. By stream as in events.time_field.
        time_zone("events.time_zone"): Zones = "";
        /// Field that has the host of a record. By stream as in events.time_field.
        host_field("events.host_field"): ByStream = "";
        /// Field that has the type of a record. By stream as in events.time_field.
        type_field("events.type_field"): ByStream = "";
        /// Memory for the cache of segment blocks. Empty: 32MiB.
        block_cache_size("events.block_cache_size"): Option<ByteSize> = "";
        /// Whether events are compared with the signed tree when their block is first read. An event
        /// that was changed, with corrected checksums, is then an error. False: only checksums are
        /// compared, and what was changed can be read.
        verified_reads("events.verified_reads"): bool = "true";
        /// Maximum size of the body of POST /v1/events.
        body_size_max("events.body_size_max"): ByteSize = "256MiB";
        /// Maximum memory for bodies being received. Further requests are refused with 429 and
        /// Retry-After.
        body_memory_max("events.body_memory_max"): ByteSize = "64MiB";
        /// Maximum number of concurrent appends. A request counts once its body, or 1MiB of it, has
        /// arrived. More are refused with 429 and Retry-After.
        appends_max("events.appends_max"): u32 = "64";
        /// Maximum number of concurrent searches. More are refused with 429 and Retry-After.
        reads_max("events.reads_max"): u32 = "64";
        /// Maximum number of clients that follow new events (`follow=true`). More are refused with
        /// 429 and Retry-After.
        followers_max("events.followers_max"): u32 = "1000";
        /// Maximum time an append request may send nothing.
        body_idle_timeout("events.body_idle_timeout"): HumanDuration = "30s";
    }
    /// Indexes over inventories of object stores.
    inventory: Inventory {
        /// Whether `forebay serve` builds and queries inventory indexes.
        enabled("inventory.enabled"): bool = "true";
        /// Sources from which clients may build indexes, besides the server's own files:
        /// directories of this machine and bucket prefixes, separated by commas:
        /// /srv/inventories,s3://bucket/reports/. Empty: none.
        sources("inventory.sources"): Sources = "";
        /// Maximum number of indexes the server keeps.
        indexes_max("inventory.indexes_max"): u32 = "1000";
        /// Maximum number of open indexes. The least recently used one is closed to open another.
        open_max("inventory.open_max"): u32 = "64";
        /// Maximum number of concurrent queries that scan an index. More are refused with 429 and
        /// Retry-After.
        queries_max("inventory.queries_max"): u32 = "16";
        /// Maximum number of concurrent builds. More are refused with 429 and Retry-After.
        builds_max("inventory.builds_max"): u32 = "1";
        /// Maximum memory of one build.
        build_memory("inventory.build_memory"): ByteSize = "256MiB";
        /// TOML file with the prices for cost estimates. Empty: Amazon S3 prices of us-east-1.
        prices("inventory.prices"): Option<PathBuf> = "";
    }
    /// Jobs: requests that are accepted once they are durable, and run later.
    jobs: Jobs {
        /// When a job is acknowledged: sync (on stable storage), interval:50ms (written, synced
        /// within 50 ms) or os (written).
        durability("jobs.durability"): Durability = "sync";
        /// Maximum number of waiting jobs. More are refused with 429 and Retry-After.
        queued_max("jobs.queued_max"): u32 = "1000";
        /// Number of jobs that run at once. 0: twice the number of processors, at least 10. With more
        /// than one, builds of inventories and runs of pipelines leave one for other jobs.
        workers("jobs.workers"): u32 = "0";
        /// Maximum size of all bodies of jobs that are too large for the log (64KiB). More are
        /// refused with 429 and Retry-After.
        bodies_size_max("jobs.bodies_size_max"): ByteSize = "10GiB";
        /// Number of times a job is tried again after a failure that may pass, after 1, 2, 4 ... s.
        retries_max("jobs.retries_max"): u32 = "3";
        /// How long jobs that completed or were cancelled are known.
        ended_kept("jobs.ended_kept"): HumanDuration = "1d";
        /// How long failed jobs are known, with their bodies, and can be queued again.
        failed_kept("jobs.failed_kept"): HumanDuration = "7d";
    }
    /// Webhooks: events that are sent to HTTP receivers.
    webhooks: Webhooks {
        /// Receivers that are permitted beside the public Internet, also without TLS: host names,
        /// addresses and networks, separated by commas: hooks.internal,10.1.0.0/16. Empty: none.
        allow("webhooks.allow"): AllowedReceivers = "";
        /// Maximum number of webhooks. Each sends one request at a time. More are refused with 429.
        hooks_max("webhooks.hooks_max"): u32 = "100";
        /// Number of ended deliveries that are known of each webhook.
        deliveries_kept("webhooks.deliveries_kept"): u32 = "200";
        /// Time limit for a receiver to answer.
        timeout("webhooks.timeout"): HumanDuration = "15s";
        /// Delay before a failed request is repeated. It doubles each time, and is shortened at
        /// random by up to half.
        retry_first("webhooks.retry_first"): HumanDuration = "5s";
        /// Maximum delay between two attempts.
        retry_max("webhooks.retry_max"): HumanDuration = "1h";
        /// Number of attempts after which an event that the receiver refuses is given up, if it
        /// takes others meanwhile.
        attempts_max("webhooks.attempts_max"): u32 = "24";
        /// How long every request to a receiver may fail before its webhook is disabled.
        disable_after("webhooks.disable_after"): HumanDuration = "5d";
        /// Maximum number of bytes of log that a webhook that is behind keeps from being freed.
        /// Beyond it, events of data that was deleted may be lost, which the webhook reports.
        log_held_max("webhooks.log_held_max"): ByteSize = "1GiB";
    }
    /// Pipelines the server runs.
    pipelines: Pipelines {
        /// Whether `forebay serve` runs pipelines.
        enabled("pipelines.enabled"): bool = "true";
        /// Directory of the pipeline files NAME.yaml. Empty: pipelines in the data directory.
        dir("pipelines.dir"): Option<PathBuf> = "";
        /// Pipelines to run on a schedule, and the time from the start of one run to the start of
        /// the next: orders=15m,customers=24h.
        every("pipelines.every"): Schedules = "";
        /// Maximum number of concurrent runs. More are refused with 429 and Retry-After.
        runs_max("pipelines.runs_max"): u32 = "2";
    }
}
