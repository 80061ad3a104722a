//! The replication slot of a feed: its name, its state, and whether it has what follows.
//!
//! Invariant: a slot that another client made is neither read nor dropped.

use forebay_sdk::changes::feed::FeedOrigin;
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::platform;
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::super::connect::refused;
use crate::replication::Lsn;

/// Maximum length of a name.
const NAME_MAX: usize = 63;

/// What can be known of a slot.
pub(super) struct Slot {
    pub(super) plugin: Option<String>,
    pub(super) database: Option<String>,
    pub(super) active_pid: Option<i32>,
    pub(super) confirmed: Option<Lsn>,
    pub(super) status: Option<String>,
    pub(super) lag: Option<i64>,
    pub(super) kept: Option<i64>,
}

const SLOT: &str = "
select plugin::text, database::text, active_pid, confirmed_flush_lsn::text, wal_status,
       pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::int8,
       pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)::int8
from pg_replication_slots where slot_name = $1";

impl Slot {
    /// Whether a feed made it.
    pub(super) fn is_of(&self, origin: &FeedOrigin) -> bool {
        self.plugin.as_deref() == Some("pgoutput")
            && self.database.as_deref() == Some(origin.database.as_str())
    }

    pub(super) fn is_lost(&self) -> bool {
        self.status.as_deref() == Some("lost")
    }
}

/// The name of what a pipeline creates at its source.
pub(super) fn own_name(pipeline: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
    let mut name: String = "forebay_".chars().chain(pipeline.chars().map(plain)).collect();
    if name.len() > NAME_MAX || !pipeline.chars().all(|c| plain(c) == c) {
        let hash = xxhash_rust::xxh3::xxh3_64(pipeline.as_bytes());
        name.truncate(NAME_MAX - 17);
        name.push_str(&format!("_{hash:016x}"));
    }
    name
}

/// The name of a temporary slot, which no other has: that of a process which was killed may still be there, and
/// processes in containers have the same numbers.
pub(super) fn temporary_name() -> String {
    format!("forebay_copy_{:016x}", platform::random())
}

pub(super) async fn slot(client: &Client, name: &str) -> Result<Option<Slot>> {
    let found = client.query_typed_opt(SLOT, &[(&name, Type::TEXT)]).await;
    let found = found.map_err(|error| refused("look up the replication slot", error))?;
    Ok(found.map(|row| Slot {
        plugin: row.get(0),
        database: row.get(1),
        active_pid: row.get(2),
        confirmed: row.get::<_, Option<String>>(3).and_then(|at| at.parse().ok()),
        status: row.get(4),
        lag: row.get(5),
        kept: row.get(6),
    }))
}

/// Why changes after a position are missing; `None` if all are there.
///
/// # Errors
/// Another client reads them.
pub(super) fn lost(found: Option<&Slot>, origin: &FeedOrigin, from: Lsn) -> Result<Option<String>> {
    let name = &origin.slot;
    let Some(slot) = found else {
        return Ok(Some(format!("the replication slot {name:?} does not exist any more")));
    };
    if !slot.is_of(origin) {
        return Ok(Some(format!("the replication slot {name:?} is another one than before")));
    }
    if slot.is_lost() {
        return Ok(Some(format!(
            "the server has removed changes of the replication slot {name:?}"
        )));
    }
    if let Some(pid) = slot.active_pid {
        return Err(in_use(origin, pid));
    }
    Ok(match slot.confirmed {
        Some(confirmed) if confirmed <= from => None,
        confirmed => {
            let confirmed = confirmed.map_or_else(|| "nowhere".to_owned(), |at| at.to_string());
            Some(format!(
                "changes are applied up to {from}, and the replication slot {name:?} begins at {confirmed}: \
                 it was moved or made again"
            ))
        }
    })
}

pub(super) fn in_use(origin: &FeedOrigin, pid: i32) -> ConnectorError {
    ConnectorError::Busy {
        act: format!("use the replication slot {:?}", origin.slot),
        source: format!("process {pid} of the server is sending its changes to another client")
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_at_the_source_are_valid_and_differ() {
        assert_eq!(own_name("orders_2"), "forebay_orders_2");
        let long = "a".repeat(80);
        let names = [own_name("a-b"), own_name("a.b"), own_name("A_b"), own_name(&long)];
        assert_ne!(temporary_name(), temporary_name());
        for (at, name) in names.iter().enumerate() {
            assert!(name.len() <= NAME_MAX, "{name}");
            let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
            assert!(name.bytes().all(is_valid), "{name}");
            assert!(!names[..at].contains(name), "{name}");
        }
    }

    #[test]
    fn a_slot_is_read_only_if_nothing_after_the_position_is_missing() {
        let origin = FeedOrigin { database: "d".into(), slot: "s".into(), ..FeedOrigin::default() };
        let slot = |confirmed: u64| Slot {
            plugin: Some("pgoutput".into()),
            database: Some("d".into()),
            active_pid: None,
            confirmed: Some(Lsn(confirmed)),
            status: Some("reserved".into()),
            lag: None,
            kept: None,
        };
        let check = |slot: Option<&Slot>| lost(slot, &origin, Lsn(7));
        let is_lost = |slot: Option<&Slot>| check(slot).unwrap().is_some();
        assert!(!is_lost(Some(&slot(7))));
        assert!(!is_lost(Some(&slot(6))));
        assert!(is_lost(None));
        assert!(is_lost(Some(&slot(8))));
        assert!(is_lost(Some(&Slot { confirmed: None, ..slot(7) })));
        assert!(is_lost(Some(&Slot { status: Some("lost".into()), ..slot(7) })));
        assert!(is_lost(Some(&Slot { database: Some("e".into()), ..slot(7) })));
        assert!(is_lost(Some(&Slot { plugin: Some("test_decoding".into()), ..slot(7) })));
        let active = check(Some(&Slot { active_pid: Some(9), ..slot(7) })).unwrap_err();
        assert!(active.is_retryable(), "{active:?}");
    }
}
