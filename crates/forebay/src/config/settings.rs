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

use super::database::{DatabaseTls, DatabaseUrl};
use super::events::{Preset, Retentions};
use super::inventory::Sources;
use super::pipelines::Schedules;
use super::resolve::Resolved;
use super::value::{Auth, CacheNetwork, CacheServer, LogFormat, Toml, Value};

/// One setting as the rest of the program sees it.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Dotted key in `forebay.toml`: `server.listen`.
    pub(crate) key: &'static str,
    /// The default, as text the parser accepts; empty when unset by default.
    pub(crate) default: &'static str,
    /// What it means, in lines.
    pub(crate) doc: &'static [&'static str],
    /// What a value looks like.
    pub(crate) expected: &'static str,
    /// How the file writes it.
    pub(crate) toml: Toml,
    /// Says what is wrong with a text, or nothing.
    pub(crate) check: fn(&str) -> Result<(), String>,
    /// The text as people may see it: without what is secret in it.
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
            pub(crate) struct $struct { $( $(#[doc = $doc])+ pub(crate) $field: $type, )+ }
        )+

        /// The whole configuration, typed.
        #[derive(Clone, Debug)]
        pub(crate) struct Config { $( $(#[doc = $sdoc])+ pub(crate) $section: $struct, )+ }

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
                )+ })
            }
        }
    };
}

settings! {
    /// The process itself.
    process: Process {
        /// Directory that holds everything the server keeps; made when missing.
        data("data"): PathBuf = "./forebay-data";
        /// Worker threads of the server; 0 takes one a core.
        threads("threads"): u16 = "0";
        /// What is logged: a level (error, warn, info, debug, trace) or a filter such as
        /// info,forebay::serve=debug. Requests are logged at debug.
        log("log"): String = "info";
        /// How log lines look: auto (human on a terminal, JSON otherwise), human or json.
        log_format("log_format"): LogFormat = "auto";
    }
    /// The HTTP server.
    server: Server {
        /// Address and port to listen on; port 0 takes a free one.
        listen("server.listen"): SocketAddr = "127.0.0.1:8090";
        /// Allow listening beyond this machine with neither API keys nor TLS.
        insecure("server.insecure"): bool = "false";
        /// When /v1 needs an API key: auto (once `forebay key new` was used), required or off.
        auth("server.auth"): Auth = "auto";
        /// Certificate chain in PEM; set together with tls_key to speak HTTPS.
        tls_cert("server.tls_cert"): Option<PathBuf> = "";
        /// Private key in PEM.
        tls_key("server.tls_key"): Option<PathBuf> = "";
        /// Connections open at once; further ones are answered 503 and closed.
        connections_max("server.connections_max"): u32 = "4096";
        /// Requests worked on at once; further ones are answered 429 with Retry-After.
        requests_in_flight_max("server.requests_in_flight_max"): u32 = "1024";
        /// Longest request line and headers together; beyond it 431.
        header_size_max("server.header_size_max"): ByteSize = "32KiB";
        /// How long a client may take to send a whole request head, or a TLS handshake.
        header_read_timeout("server.header_read_timeout"): HumanDuration = "10s";
        /// How long a kept-alive connection may wait for its next request.
        idle_timeout("server.idle_timeout"): HumanDuration = "75s";
        /// How long a client may leave a response unread before it is cut.
        write_stall_timeout("server.write_stall_timeout"): HumanDuration = "60s";
        /// How long shutdown waits for running requests.
        shutdown_limit("server.shutdown_limit"): HumanDuration = "30s";
    }
    /// Files and documents.
    intake: Intake {
        /// When an upload is acknowledged: sync (on stable storage), interval:50ms (in the
        /// kernel, flushed at most that much later) or os (in the kernel).
        durability("intake.durability"): Durability = "sync";
        /// Largest file taken in.
        file_size_max("intake.file_size_max"): ByteSize = "64GiB";
        /// Largest single JSON document.
        document_size_max("intake.document_size_max"): ByteSize = "16MiB";
        /// Most parts in one multipart upload.
        parts_max("intake.parts_max"): u32 = "10000";
        /// Uploads at once; further ones are answered 429 with Retry-After.
        uploads_max("intake.uploads_max"): u32 = "512";
        /// Slowest an upload may be on average, in bytes a second, once the grace has passed.
        upload_rate_min("intake.upload_rate_min"): ByteSize = "1KiB";
        /// How long an upload may stay below the slowest rate.
        upload_rate_grace("intake.upload_rate_grace"): HumanDuration = "30s";
        /// How long an upload may send nothing at all.
        upload_idle_timeout("intake.upload_idle_timeout"): HumanDuration = "30s";
    }
    /// A database elsewhere that gets every document too. Without `url` there is none.
    database: Database {
        /// Where it is: postgres://user@host:5432/database or mongodb://user@host:27017/database. It may
        /// hold the password; special characters are written as %XX.
        url("intake.database.url"): Option<DatabaseUrl> = "";
        /// File whose first line is the password of the user in url.
        password_file("intake.database.password_file"): Option<PathBuf> = "";
        /// PostgreSQL: schema of the tables, which belongs to one intake; empty: forebay. MongoDB: the
        /// database; empty: that in url.
        schema("intake.database.schema"): Option<String> = "";
        /// Whether the connection to a PostgreSQL is encrypted: auto (unless it is on this machine),
        /// disable or verify.
        tls("intake.database.tls"): DatabaseTls = "auto";
        /// Certificates (PEM) to be trusted instead of the system's.
        tls_ca_file("intake.database.tls_ca_file"): Option<PathBuf> = "";
        /// MongoDB: connections kept open, unless url says it. A PostgreSQL is written to over one.
        connections_min("intake.database.connections_min"): u32 = "10";
        /// MongoDB: most connections, unless url says it.
        connections_max("intake.database.connections_max"): u32 = "100";
        /// MongoDB: whether what is sent is compressed by what the server offers.
        compression("intake.database.compression"): bool = "true";
        /// How long the database may take to answer at all.
        connect_timeout("intake.database.connect_timeout"): HumanDuration = "10s";
        /// How long it may take for one statement.
        statement_timeout("intake.database.statement_timeout"): HumanDuration = "60s";
        /// Most documents spilled to files while it is away; the log is kept beyond that.
        spill_max("intake.database.spill_max"): ByteSize = "1GiB";
        /// How long it is away before what waits is spilled.
        spill_after("intake.database.spill_after"): HumanDuration = "5s";
        /// Most of the log that is kept for it; beyond that documents are answered 503 with
        /// Retry-After until it has caught up.
        log_max("intake.database.log_max"): ByteSize = "4GiB";
        /// How long to wait at most before it is tried again.
        retry_max("intake.database.retry_max"): HumanDuration = "30s";
        /// Take a database for this intake's own that holds documents and is not remembered: for one
        /// start, after forward.json in the data directory was lost.
        adopt("intake.database.adopt"): bool = "false";
    }
    /// The key-value cache.
    cache: Cache {
        /// Whether `forebay serve` serves the cache.
        enabled("cache.enabled"): bool = "true";
        /// Where it speaks RESP, the protocol of Redis; empty: nowhere.
        resp("cache.resp"): Option<SocketAddr> = "127.0.0.1:6380";
        /// Where it speaks the plain text protocol; empty: nowhere.
        text("cache.text"): Option<SocketAddr> = "127.0.0.1:8890";
        /// Where it speaks RESP over TLS; empty: nowhere.
        tls_resp("cache.tls_resp"): Option<SocketAddr> = "";
        /// Where it speaks the text protocol over TLS; empty: nowhere.
        tls_text("cache.tls_text"): Option<SocketAddr> = "";
        /// Certificate chain in PEM for these; empty: that of server.tls_cert. A renewed file is
        /// read within a second, for new connections.
        tls_cert("cache.tls_cert"): Option<PathBuf> = "";
        /// Private key in PEM for these; empty: that of server.tls_key.
        tls_key("cache.tls_key"): Option<PathBuf> = "";
        /// Whether it keeps its data on disk, below the data directory.
        persist("cache.persist"): bool = "true";
        /// When a write is acknowledged: sync, interval:50ms or os.
        durability("cache.durability"): Durability = "interval:50ms";
        /// Most memory for data, index and buffers together; empty: no bound.
        memory_max("cache.memory_max"): Option<ByteSize> = "";
        /// What goes when that is used up.
        policy("cache.policy"): Policy = "allkeys-s3fifo";
        /// per-connection (a connection stays with one thread) or pooled (a connection that has
        /// something to do gets one of a bounded number of workers).
        server("cache.server"): CacheServer = "per-connection";
        /// Most workers of the pooled server; it sizes itself below that.
        workers("cache.workers"): u32 = "200";
        /// Threads of the server that is not pooled; 0 takes one a core.
        threads("cache.threads"): u16 = "0";
        /// How those threads reach their sockets: auto (io_uring where the kernel has and permits
        /// it, epoll elsewhere), epoll or io_uring. The pooled server uses epoll.
        network("cache.network"): CacheNetwork = "auto";
        /// File whose first line is the password clients must give; empty: none is needed.
        password_file("cache.password_file"): Option<PathBuf> = "";
        /// Connections open at once; further ones are told so and closed.
        connections_max("cache.connections_max"): u32 = "10000";
        /// How long a RESP connection may be silent; empty: as long as it likes.
        idle_timeout("cache.idle_timeout"): Option<HumanDuration> = "";
        /// How long a text connection may be silent; empty: as long as it likes.
        text_idle_timeout("cache.text_idle_timeout"): Option<HumanDuration> = "5m";
        /// Longest line of the text protocol.
        line_size_max("cache.line_size_max"): ByteSize = "1MiB";
        /// Longest single argument, and so the largest value.
        value_size_max("cache.value_size_max"): ByteSize = "512MiB";
        /// Most output that may wait for one connection to read it; beyond it, it is closed.
        output_size_max("cache.output_size_max"): ByteSize = "1GiB";
        /// How long a client may leave its output unread altogether before it is closed.
        write_stall_timeout("cache.write_stall_timeout"): HumanDuration = "60s";
    }
    /// The event store. Where a setting says so, empty means what the preset says.
    events: Events {
        /// Whether `forebay serve` serves the event store.
        enabled("events.enabled"): bool = "true";
        /// Where the settings below begin: balanced (every batch synced, blocks compressed),
        /// max-throughput (acknowledged by the kernel, large tables, nothing compressed) or
        /// max-durability (one event a batch, each synced, small tables).
        preset("events.preset"): Preset = "balanced";
        /// When a batch is acknowledged: sync, interval:50ms or os. Empty: sync; os in
        /// max-throughput.
        durability("events.durability"): Option<Durability> = "";
        /// Whether a Merkle tree over all events is kept and signed. Decided when the store is
        /// made.
        merkle("events.merkle"): bool = "true";
        /// Name the store signs its checkpoints under; used when it makes its key. Empty:
        /// forebay.local/events.
        origin("events.origin"): Option<String> = "";
        /// How long a commit waits for others to share its sync. Empty: 0s; 500us in
        /// max-throughput.
        group_commit_delay("events.group_commit_delay"): Option<HumanDuration> = "";
        /// Events of an input that make one batch, 1 to 65000. Empty: 2000; 1 in max-durability.
        batch_events("events.batch_events"): Option<u32> = "";
        /// Bytes of one file of the log, 1MiB to 64GiB. Empty: 64MiB.
        log_segment_size("events.log_segment_size"): Option<ByteSize> = "";
        /// Events in memory that make a segment. Empty: 500000; 2000000 in max-throughput, 100000
        /// in max-durability.
        memory_table_events("events.memory_table_events"): Option<u32> = "";
        /// Bytes in memory that make a segment, at least 1MiB; three times as much may be in
        /// memory. Empty: 64MiB; 512MiB in max-throughput, 16MiB in max-durability.
        memory_table_size("events.memory_table_size"): Option<ByteSize> = "";
        /// How segments are compressed: none, lz4, zstd or zstd:LEVEL. Empty: zstd:3; none in
        /// max-throughput.
        compression("events.compression"): Option<Compression> = "";
        /// Bytes of a segment's block before it is compressed, which is what one entry of its index
        /// stands for: 4KiB to 1MiB. Empty: 32KiB.
        block_size("events.block_size"): Option<ByteSize> = "";
        /// Bits a filter has for each thing in a block, 1 to 64. Empty: 10.
        filter_bits_per_key("events.filter_bits_per_key"): Option<u32> = "";
        /// Whether the filters have the words of the raw bytes, for searches by text. Empty: true;
        /// false in max-throughput.
        text_filter("events.text_filter"): Option<bool> = "";
        /// How long events may be in memory before they become a segment, however few they are.
        /// Empty: 1m; 2m in max-throughput, 10s in max-durability.
        flush_interval("events.flush_interval"): Option<HumanDuration> = "";
        /// How often small segments are joined and expired events removed. Empty: 30s; 10m in
        /// max-throughput.
        compaction_interval("events.compaction_interval"): Option<HumanDuration> = "";
        /// How often a checkpoint is signed while events come. Empty: 10s; 1s in max-durability.
        checkpoint_interval("events.checkpoint_interval"): Option<HumanDuration> = "";
        /// How long events are kept, by the time they say; empty: for ever. 30d is for every
        /// stream, audit=365d for one; several are parted by commas: 30d,audit=365d,debug=12h.
        retention("events.retention"): Retentions = "";
        /// Memory for blocks of segments that were read. Empty: 32MiB.
        block_cache_size("events.block_cache_size"): Option<ByteSize> = "";
        /// Largest body of one POST /v1/events.
        body_size_max("events.body_size_max"): ByteSize = "256MiB";
        /// Appending requests at once; further ones are answered 429 with Retry-After.
        appends_max("events.appends_max"): u32 = "64";
        /// Searches and streams at once; further ones are answered 429 with Retry-After.
        reads_max("events.reads_max"): u32 = "64";
        /// How long an appending request may send nothing at all.
        body_idle_timeout("events.body_idle_timeout"): HumanDuration = "30s";
    }
    /// Indexes over inventories of object stores.
    inventory: Inventory {
        /// Whether `forebay serve` answers questions to them and builds them.
        enabled("inventory.enabled"): bool = "true";
        /// What clients may have indexes built from beside the server's own files: directories of
        /// this machine and prefixes of buckets, with commas between:
        /// /srv/inventories,s3://bucket/reports/. Empty: nothing else.
        sources("inventory.sources"): Sources = "";
        /// Most indexes the server keeps.
        indexes_max("inventory.indexes_max"): u32 = "1000";
        /// Indexes open at once; the one unused for longest is closed for another.
        open_max("inventory.open_max"): u32 = "64";
        /// Questions at once that walk through an index; further ones are answered 429 with
        /// Retry-After.
        queries_max("inventory.queries_max"): u32 = "16";
        /// Indexes built at once; further ones are answered 429 with Retry-After.
        builds_max("inventory.builds_max"): u32 = "1";
        /// Memory of one build.
        build_memory("inventory.build_memory"): ByteSize = "256MiB";
        /// File with the prices costs are computed from (TOML); empty: Amazon's of us-east-1.
        prices("inventory.prices"): Option<PathBuf> = "";
    }    /// Pipelines the server runs.
    pipelines: Pipelines {
        /// Whether `forebay serve` runs pipelines.
        enabled("pipelines.enabled"): bool = "true";
        /// Directory of the pipeline files, each NAME.yaml; empty: pipelines in the data directory.
        dir("pipelines.dir"): Option<PathBuf> = "";
        /// Which of them are run by themselves, and how long after the beginning of one run the next
        /// begins: orders=15m,customers=24h.
        every("pipelines.every"): Schedules = "";
        /// Runs at once; further ones are answered 429 with Retry-After.
        runs_max("pipelines.runs_max"): u32 = "2";
    }
}
