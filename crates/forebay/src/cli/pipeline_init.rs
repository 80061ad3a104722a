//! `forebay pipeline init`: prints a template of a pipeline file.

use forebay_pipeline::config::Name;

use crate::exit::{Coded, Exit};
use crate::out;

#[derive(clap::Args, Debug)]
pub(super) struct Args {
    /// Connector to read from.
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    from: From,
    /// Connector to write to.
    #[arg(long, value_enum, value_name = "NAME", default_value_t)]
    to: End,
    /// Name of the pipeline.
    #[arg(long, value_name = "NAME", default_value = "my-pipeline", value_parser = name)]
    name: String,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, Default)]
enum From {
    /// PostgreSQL.
    #[default]
    Postgres,
    /// MongoDB.
    Mongodb,
    /// MySQL or MariaDB.
    Mysql,
    /// Parquet files.
    Parquet,
    /// CSV files.
    Csv,
    /// NDJSON files, one JSON object per line.
    Ndjson,
    /// SQLite.
    Sqlite,
    /// A running Forebay.
    Forebay,
    /// A JSON API over HTTP.
    HttpJson,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy, Default)]
enum End {
    /// PostgreSQL.
    #[default]
    Postgres,
    /// MongoDB.
    Mongodb,
    /// Parquet files.
    Parquet,
    /// CSV files.
    Csv,
    /// NDJSON files, one JSON object per line.
    Ndjson,
    /// SQLite.
    Sqlite,
    /// Delta Lake tables.
    Delta,
    /// ClickHouse.
    Clickhouse,
    /// A running Forebay, which takes the changes of a PostgreSQL as events.
    Forebay,
}

const POSTGRES: &str = "    host: 127.0.0.1
    port: 5432
    database: mydb
    user: postgres
    password: ${PGPASSWORD}        # from the environment; or ${file:/run/secrets/password}
    # url: ${DATABASE_URL}         # instead of the five above
    # tls: verify                  # auto (verify except on this machine), verify, disable
    # tls_ca_file: /etc/ssl/db.pem
    # schema: public               # for tables named without a schema
";

const FILES: &str = "    path: ./files                  # or s3://BUCKET/PREFIX
    # s3: {region: eu-central-1}   # endpoint, access_key_id, secret_access_key, path_style
";

const SQLITE: &str = "    path: ./data.sqlite
";

const MONGODB: &str = "    url: ${MONGODB_URL}            # mongodb://user:password@host:27017/mydb
    # database: mydb               # if the url names none
    # tls: verify                  # auto (as in the url, else verify except on this machine), verify, disable
    # tls_ca_file: /etc/ssl/db.pem
    # compression: zstd            # auto, none, zstd, snappy, zlib
    # pool: {min: 0, max: 100}
";

const FROM_MONGODB: &str =
    "    # sample_documents: 5000       # sampled at each end, to determine the columns
    # unknown_fields: ignore       # ignore, fail (names the field and the document)
    # types: {orders: {amount: \"numeric(10,2)\"}}
";

const TO_MONGODB: &str = "    # json: text                   # document (BSON values) or text (the exact bytes)
    # decimals: text               # decimal128 (34 digits) or text
    # moments: milliseconds        # date (microseconds are an error), milliseconds (truncated), text
    # object_ids: [customer_id]    # columns of 24 hexadecimal digits
";

const MYSQL: &str = "    host: 127.0.0.1
    port: 3306
    database: mydb
    user: root
    password: ${MYSQL_PASSWORD}    # from the environment; or ${file:/run/secrets/password}
    # url: ${DATABASE_URL}         # mysql://user:password@host:3306/mydb, instead of the five above
    # tls: verify                  # auto (verify except on this machine), verify, disable
    # tls_ca_file: /etc/ssl/db.pem
    # types: {orders: {is_paid: boolean}}
    # zero_dates: null             # fail, null: what 0000-00-00 becomes
";

const HTTP_JSON: &str = "    url: http://127.0.0.1:8080     # the paths of streams follow it
    # headers: {authorization: \"Bearer ${API_TOKEN}\"}
    streams:
      - name: orders
        path: orders
        # records: /data           # where the array of records is; the whole response
        # pagination: {page: {param: page}}     # offset, cursor, link, next_url
        # cursor_param: since      # gets the last value of cursor_field
        # columns: [{name: id, type: bigint}]   # those of the first page
";

const CLICKHOUSE: &str = "    url: http://127.0.0.1:8123
    database: default
    # user: loader
    # password: ${CLICKHOUSE_PASSWORD}
    # tls_ca_file: /etc/ssl/db.pem
    # compression: none            # zstd, none
";

const FOREBAY: &str = "    url: http://127.0.0.1:8090
    key: ${FOREBAY_KEY}            # `forebay key new --name pipeline --scope read`
    # tls_ca_file: /etc/ssl/forebay.pem
";

const TO_FOREBAY: &str = "    url: http://127.0.0.1:8090
    key: ${FOREBAY_KEY}            # `forebay key new --name feed --scope read --scope append`
    # tls_ca_file: /etc/ssl/forebay.pem
";

const FOREBAY_STREAMS: &str = "  streams:
    - name: collections/orders     # documents of a namespace
      sync_mode: incremental
      cursor_field: id
    - name: events                 # or events/STREAM, or events/type=login&severity=high
      sync_mode: incremental
      cursor_field: position
    # - name: files                # the catalogue, completely in each run: write_mode: replace
";

const FENCE: &str = "  # permissions:                   # anything not listed here is unrestricted
  #   network: {allowed_hosts: [\"db.example.org:5432\", \"*.example.org\"]}
  #   env: {allowed_vars: [PGPASSWORD]}
  #   fs: {allowed_preopens: [/run/secrets]}
  # limits: {max_memory: 16MiB, timeout_seconds: 600}
";

const STREAMS: &str = "  streams:
    - name: orders
      # into: orders_copy          # name in the destination
      # sync_mode: incremental     # full_refresh reads all rows every time
      # cursor_field: updated_at   # for incremental: a column that grows with every change
      # tie_breaker_field: id      # distinguishes rows with the same cursor
      # partition_key: id          # its ranges are copied concurrently; a killed run continues with the rest
      # columns: [id, name]        # only these columns
";

/// Streams whose changes are followed.
const FOLLOWED: &str = "  streams:
    - name: public.orders
      # into: orders_log           # name of the stream of events
      sync_mode: cdc
";

const CHANGES: &str = "  write_mode: append               # every change is an event
  schema_evolution:
    new_column: fail               # add, fail
    type_change: alter             # fail, alter
";

const DESTINATION: &str =
    "  write_mode: append               # append, replace (swapped in at the end), upsert
  # primary_key: [id]              # for upsert
  on_data_error: fail              # fail, skip, dlq (a separate table, with row and reason)
  # load_method: insert            # instead of copy
  schema_evolution:                # not every destination can do all of it
    new_column: add                # add, ignore, fail
    removed_column: ignore         # ignore, fail
    type_change: fail              # fail, alter
    nullability_change: allow      # allow, fail
";

const REST: &str = "\
# transforms:                      # applied in order
#   - validate: {stream: orders, rules: [{not_null: id}], on_failure: dlq}
#   - sql: {query: \"select id, upper(name) as name from orders\"}

resources:
  max_memory: 32MiB                # for all batches in memory
  # max_batch_bytes: 1MiB
  # parallelism: 2                 # units copied concurrently; default: one per processor
  checkpoint_interval_bytes: 256MiB
  max_retries: 5
";

/// A name that a pipeline file can have.
fn name(text: &str) -> Result<String, String> {
    let read = serde_json::from_value::<Name>(text.into());
    read.map(|name| name.as_str().to_owned()).map_err(|error| error.to_string())
}

/// Returns the source's connector, settings and streams.
fn source(of: From, is_followed: bool) -> (&'static str, String) {
    // Only PostgreSQL's tables have schemas.
    let qualified = STREAMS.replace("name: orders", "name: public.orders");
    let (name, config, streams) = match of {
        From::Postgres if is_followed => ("postgres", POSTGRES.to_owned(), FOLLOWED),
        From::Postgres => ("postgres", POSTGRES.to_owned(), qualified.as_str()),
        From::Mongodb => ("mongodb", format!("{MONGODB}{FROM_MONGODB}"), STREAMS),
        From::Mysql => ("mysql", MYSQL.to_owned(), STREAMS),
        From::Parquet => ("parquet", FILES.to_owned(), STREAMS),
        From::Csv => ("csv", FILES.to_owned(), STREAMS),
        From::Ndjson => ("ndjson", FILES.to_owned(), STREAMS),
        From::Sqlite => ("sqlite", SQLITE.to_owned(), STREAMS),
        From::Forebay => ("forebay", FOREBAY.to_owned(), FOREBAY_STREAMS),
        From::HttpJson => ("http-json", HTTP_JSON.to_owned(), STREAMS),
    };
    (name, format!("{config}{streams}"))
}

/// Returns the destination's connector and settings.
fn destination(of: End) -> (&'static str, String) {
    match of {
        End::Postgres => ("postgres", POSTGRES.to_owned()),
        End::Mongodb => ("mongodb", format!("{MONGODB}{TO_MONGODB}")),
        End::Parquet => ("parquet", FILES.to_owned()),
        End::Csv => ("csv", FILES.to_owned()),
        End::Ndjson => ("ndjson", FILES.to_owned()),
        End::Sqlite => ("sqlite", SQLITE.to_owned()),
        End::Delta => ("delta", FILES.to_owned()),
        End::Clickhouse => ("clickhouse", CLICKHOUSE.to_owned()),
        End::Forebay => ("forebay", TO_FOREBAY.to_owned()),
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let takes_changes_alone = matches!(args.to, End::Forebay);
    if takes_changes_alone && !matches!(args.from, From::Postgres) {
        let wrong = "a Forebay takes the changes of a PostgreSQL alone; use `--from postgres`";
        return Err(Coded::error(Exit::Usage, wrong));
    }
    let (from, source) = source(args.from, takes_changes_alone);
    let (to, destination) = destination(args.to);
    let written = if takes_changes_alone { CHANGES } else { DESTINATION };
    let name = &args.name;
    out::line(format_args!(
        "# The source, the destination and the streams. `forebay pipeline schema` describes every field.\n\
         version: 1\npipeline: {name}\n\nsource:\n  use: {from}\n  config:\n{source}{FENCE}\
         destination:\n  use: {to}\n  config:\n{destination}{FENCE}{written}\n{REST}"
    ))?;
    Ok(Exit::Ok)
}
