//! INFO: the server's state, in the sections and under the names that monitoring tools read.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use super::{CommandError, Context, Flags, Keys, Spec};
use crate::engine::Engine;
use crate::store::DATABASES;

/// The family's rows.
pub(super) const COMMANDS: &[Spec] = &[Spec {
    name: "info",
    arity: -1,
    flags: Flags(0),
    keys: Keys::None,
    group: "server",
    summary: "Returns information about the server, by section.",
    run: info,
}];

type Section = (&'static str, fn(&Engine, &mut String));

const SECTIONS: &[Section] = &[
    ("server", server),
    ("clients", clients),
    ("memory", memory),
    ("persistence", persistence),
    ("stats", stats),
    ("replication", replication),
    ("cpu", cpu),
    ("cluster", cluster),
    ("keyspace", keyspace),
];

fn info(cx: &mut Context<'_, '_>, args: &[&[u8]]) -> Result<(), CommandError> {
    let wanted: Vec<Vec<u8>> = args[1..].iter().map(|word| word.to_ascii_lowercase()).collect();
    let all = wanted.is_empty()
        || wanted.iter().any(|word| matches!(word.as_slice(), b"all" | b"default" | b"everything"));
    let mut text = String::with_capacity(4_096);
    for (name, write) in SECTIONS {
        if all || wanted.iter().any(|word| word == name.as_bytes()) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let (first, rest) = name.split_at(1);
            line(&mut text, format_args!("# {}{rest}", first.to_ascii_uppercase()));
            write(cx.engine, &mut text);
        }
    }
    cx.out.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("writing to a string never fails");
    text.push_str("\r\n");
}

fn server(engine: &Engine, text: &mut String) {
    line(text, format_args!("redis_version:{}", super::connection::REDIS_VERSION));
    line(text, format_args!("forebay_version:{}", env!("CARGO_PKG_VERSION")));
    line(text, format_args!("redis_mode:standalone"));
    line(text, format_args!("os:{}", std::env::consts::OS));
    line(text, format_args!("arch_bits:{}", usize::BITS));
    line(text, format_args!("process_id:{}", std::process::id()));
    line(text, format_args!("run_id:{}", engine.run_id()));
    let uptime = engine.uptime().as_secs();
    line(text, format_args!("uptime_in_seconds:{uptime}"));
    line(text, format_args!("uptime_in_days:{}", uptime / 86_400));
    let statistics = engine.statistics();
    line(text, format_args!("threads:{}", statistics.threads.load(Ordering::Relaxed)));
    line(text, format_args!("pool_workers:{}", statistics.workers.load(Ordering::Relaxed)));
    line(text, format_args!("pool_busy:{}", statistics.workers_busy.load(Ordering::Relaxed)));
    line(text, format_args!("pool_queue:{}", statistics.workers_queue.load(Ordering::Relaxed)));
}

fn clients(engine: &Engine, text: &mut String) {
    let statistics = engine.statistics();
    line(text, format_args!("connected_clients:{}", statistics.clients.load(Ordering::Relaxed)));
    let max = engine.config().clients_max.load(Ordering::Relaxed);
    line(text, format_args!("maxclients:{max}"));
    line(text, format_args!("blocked_clients:{}", engine.blocked()));
}

fn memory(engine: &Engine, text: &mut String) {
    let rules = engine.keyspace().rules();
    let used = engine.used_memory();
    line(text, format_args!("used_memory:{used}"));
    line(text, format_args!("used_memory_human:{}", human(used)));
    line(text, format_args!("used_memory_dataset:{}", engine.keyspace().used()));
    let clients = engine.clients_memory();
    line(text, format_args!("used_memory_buffers:{clients}"));
    line(text, format_args!("mem_clients_normal:{clients}"));
    line(text, format_args!("mem_clients_slaves:0"));
    let clients_max = engine.config().clients_memory_max.load(Ordering::Relaxed);
    line(text, format_args!("maxmemory_clients:{clients_max}"));
    line(text, format_args!("maxmemory:{}", rules.max_memory()));
    line(text, format_args!("maxmemory_human:{}", human(rules.max_memory())));
    line(text, format_args!("maxmemory_policy:{}", rules.policy().as_str()));
    line(text, format_args!("mem_allocator:system"));
    line(text, format_args!("compression:{}", rules.codec().as_str()));
}

fn human(bytes: usize) -> String {
    const UNITS: [(&str, u32); 3] = [("G", 30), ("M", 20), ("K", 10)];
    for (unit, shift) in UNITS {
        if bytes >> shift > 0 {
            let hundredths = (bytes as u128 * 100) >> shift;
            return format!("{}.{:02}{unit}", hundredths / 100, hundredths % 100);
        }
    }
    format!("{bytes}B")
}

fn persistence(engine: &Engine, text: &mut String) {
    line(text, format_args!("loading:0"));
    let Some(journal) = engine.journal() else {
        line(text, format_args!("aof_enabled:0"));
        line(text, format_args!("rdb_bgsave_in_progress:0"));
        line(text, format_args!("rdb_last_save_time:0"));
        line(text, format_args!("rdb_last_bgsave_status:ok"));
        return;
    };
    let log = journal.log();
    line(text, format_args!("aof_enabled:1"));
    let failed = engine.log_failure().is_some() || log.usable().is_err();
    line(text, format_args!("aof_last_write_status:{}", if failed { "err" } else { "ok" }));
    line(text, format_args!("log_start:{}", log.start().0));
    line(text, format_args!("log_end:{}", log.end().0));
    line(text, format_args!("log_synced:{}", log.synced().0));
    let saving = u8::from(engine.is_saving());
    line(text, format_args!("rdb_bgsave_in_progress:{saving}"));
    line(text, format_args!("rdb_last_save_time:{}", engine.last_save_s()));
    let failed = if engine.last_save_failed() { "err" } else { "ok" };
    line(text, format_args!("rdb_last_bgsave_status:{failed}"));
}

fn stats(engine: &Engine, text: &mut String) {
    let counted = engine.statistics();
    for (name, count) in [
        ("total_connections_received", &counted.connections),
        ("total_commands_processed", &counted.commands),
        ("total_net_input_bytes", &counted.bytes_in),
        ("total_net_output_bytes", &counted.bytes_out),
        ("rejected_connections", &counted.connections_refused),
        ("keyspace_hits", &counted.hits),
        ("keyspace_misses", &counted.misses),
        ("evicted_keys", &counted.evicted),
        ("evicted_clients", &counted.evicted_clients),
        ("total_error_replies", &counted.errors),
        ("client_output_buffer_limit_disconnections", &counted.slow_consumers),
        ("acl_access_denied_auth", &counted.auth_failures),
        ("acl_access_denied_cmd", &counted.denied),
    ] {
        line(text, format_args!("{name}:{}", count.load(Ordering::Relaxed)));
    }
    line(text, format_args!("expired_keys:{}", engine.keyspace().expired()));
    use crate::engine::Scope;
    line(text, format_args!("pubsub_channels:{}", engine.pubsub().names(Scope::Channel)));
    line(text, format_args!("pubsub_patterns:{}", engine.pubsub().names(Scope::Pattern)));
    line(text, format_args!("pubsubshard_channels:{}", engine.pubsub().names(Scope::Shard)));
}

fn replication(engine: &Engine, text: &mut String) {
    line(text, format_args!("role:master"));
    line(text, format_args!("connected_slaves:0"));
    line(text, format_args!("master_failover_state:no-failover"));
    line(text, format_args!("master_replid:{}", engine.run_id()));
    line(text, format_args!("master_repl_offset:0"));
}

fn cpu(_engine: &Engine, text: &mut String) {
    // utime and stime, in ticks of 10 ms, are the 14th and 15th fields.
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return };
    let Some((_, rest)) = stat.rsplit_once(')') else { return };
    let ticks: Vec<u64> =
        rest.split_whitespace().skip(11).take(2).filter_map(|n| n.parse().ok()).collect();
    if let [user, system] = ticks.as_slice() {
        line(text, format_args!("used_cpu_sys:{}.{:02}", system / 100, system % 100));
        line(text, format_args!("used_cpu_user:{}.{:02}", user / 100, user % 100));
    }
}

fn cluster(_engine: &Engine, text: &mut String) {
    line(text, format_args!("cluster_enabled:0"));
}

fn keyspace(engine: &Engine, text: &mut String) {
    for database in 0..DATABASES {
        let (keys, expiring) = engine.keyspace().count(database);
        if keys > 0 {
            line(text, format_args!("db{database}:keys={keys},expires={expiring},avg_ttl=0"));
        }
    }
}
