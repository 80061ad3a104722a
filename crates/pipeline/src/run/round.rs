//! Rounds: the loads of one run, together, so that a run that failed in some stream is continued
//! and not started again.
//!
//! Each load records the round it belongs to and the streams that the round copies completely. A
//! round is open until each of these has finished its load. Incremental streams are copied before
//! all others: if one of them fails, no round has started, and what they copied is not copied again
//! anyway.
//!
//! Invariants:
//! * With `append`, a stream that a round has finished is not copied again in that round, since its
//!   rows would be duplicated. With `replace` and `upsert` it is, unless the round has a name.
//! * A named round that is complete stays complete: a run with that name copies nothing, also after
//!   rounds with other names, for the last [`NAMES_MAX`] of them.
//! * Ids of rounds increase, whatever the clock does.

use std::collections::HashMap;

use forebay_sdk::ConnectorError;
use forebay_sdk::connector::{LedgerEntry, Load, Round};
use forebay_sdk::settings::{SyncMode, TargetSettings, WriteMode};

use super::engine::{Options, Pipeline};
use crate::error::RunError;
use crate::transform::TransformSettings;

/// Maximum number of names of complete rounds that are remembered.
const NAMES_MAX: usize = 1_000;

/// The last load of a stream and its entries.
pub(super) type LastLoad = (Load, Vec<LedgerEntry>);

/// What the destination knows of earlier runs, and the consequences for this one.
pub(super) struct History {
    /// By stream; streams without a load are absent.
    loads: HashMap<String, LastLoad>,
    /// The round of this run. Its streams are not known yet.
    pub(super) round: Round,
    /// Whether streams that the round has finished are left unchanged.
    keeps_finished: bool,
    /// Whether the round of this name is an earlier one: every stream is left unchanged.
    is_past: bool,
    /// The snapshot in which all streams are read, if it is given.
    pub(super) snapshot: Option<String>,
}

impl History {
    /// The last load of a stream.
    pub(super) fn last(&self, stream: &str) -> Option<&LastLoad> {
        self.loads.get(stream)
    }

    /// The load of a stream that must not be copied again.
    pub(super) fn finished(&self, stream: &str) -> Option<&LastLoad> {
        let last = self.last(stream)?;
        let is_kept = self.is_past && !last.0.round.id.is_empty();
        (is_kept || self.keeps_finished && is_done(last, &self.round.id)).then_some(last)
    }
}

fn is_done((load, _): &LastLoad, round: &str) -> bool {
    load.is_finished && load.round.id == round
}

impl Pipeline<'_> {
    /// Reads the last loads from the destination, and finds the round to continue.
    pub(super) async fn history(&self, options: &Options) -> Result<History, RunError> {
        let mut loads = HashMap::new();
        for target in self.possible_targets() {
            let last = self.destination.last_load(&target).await;
            if let Some(last) = last.map_err(|error| RunError::of(&target.stream, error))? {
                loads.insert(target.stream, last);
            }
        }
        let rounds = loads.values().map(|(load, _)| &load.round);
        let newest = rounds.max_by(|a, b| a.id.cmp(&b.id)).cloned().unwrap_or_default();
        let is_whole = |stream: &str| {
            let settings = self.file.source.streams.iter().find(|settings| settings.name == stream);
            settings.is_none_or(|settings| settings.sync_mode != SyncMode::Incremental)
        };
        let targets = self.possible_targets();
        let is_here = |stream: &String| targets.iter().any(|target| target.stream == *stream);
        let is_open = newest.streams.iter().any(|stream| {
            let is_done = loads.get(stream).is_some_and(|last| is_done(last, &newest.id));
            is_here(stream) && is_whole(stream) && !is_done
        });
        let is_past = !options.from_scratch
            && options.once.as_ref().is_some_and(|name| newest.past.contains(name));
        if is_past {
            let snapshot = None;
            return Ok(History { loads, round: newest, keeps_finished: true, is_past, snapshot });
        }
        let is_append = self.file.destination.write_mode == WriteMode::Append;
        let continues = match (&options.once, options.from_scratch) {
            (_, true) => false,
            (None, false) => is_open,
            (Some(name), false) if newest.name.as_ref() == Some(name) => true,
            (Some(name), false) if is_open && is_append => {
                let other = newest.name.as_deref().unwrap_or("without a name");
                let error = ConnectorError::unsupported(
                    format!("the previous run, {other}, is unfinished, but this run is {name}"),
                    "finish that run first, or use `--from-scratch` to abandon it",
                );
                return Err(RunError::of("the ledger", error));
            }
            (Some(_), false) => false,
        };
        let keeps_finished = continues && (is_append || options.once.is_some());
        let round = if continues {
            newest
        } else {
            let name = options.once.clone();
            Round {
                id: id_after(&newest.id),
                name,
                streams: Vec::new(),
                past: past(newest, is_open),
            }
        };
        Ok(History { loads, round, keeps_finished, is_past, snapshot: None })
    }

    /// Possible targets of streams: those of the source, and the results of transforms.
    pub(super) fn possible_targets(&self) -> Vec<TargetSettings> {
        let streams = self.file.source.streams.iter();
        let mut targets: Vec<TargetSettings> =
            streams.map(|stream| self.target_settings(&stream.name, stream.target())).collect();
        for transform in &self.file.transforms {
            if let TransformSettings::Sql(sql) = transform
                && let Some(into) = &sql.into
                && !targets.iter().any(|target| target.into == *into)
            {
                targets.push(self.target_settings(into, into));
            }
        }
        targets
    }
}

/// The names of complete rounds up to the newest one, which is left out if it is open.
fn past(newest: Round, is_open: bool) -> Vec<String> {
    let mut past = newest.past;
    if let Some(name) = newest.name.filter(|_| !is_open) {
        past.retain(|other| *other != name);
        past.push(name);
    }
    past.split_off(past.len().saturating_sub(NAMES_MAX))
}

/// An id that is greater than another.
fn id_after(newest: &str) -> String {
    let now = uuid::Uuid::now_v7();
    let newest = uuid::Uuid::try_parse(newest).unwrap_or_default();
    let id = if now > newest { now } else { uuid::Uuid::from_u128(newest.as_u128() + 1) };
    id.simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_complete_rounds_are_remembered_up_to_a_limit() {
        let round = |name: &str, past: Vec<String>| Round {
            name: Some(name.to_owned()),
            past,
            ..Round::default()
        };
        assert_eq!(past(Round::default(), false), Vec::<String>::new());
        assert_eq!(past(round("b", vec!["a".into()]), false), ["a", "b"]);
        assert_eq!(past(round("b", vec!["a".into()]), true), ["a"]);
        assert_eq!(past(round("a", vec!["a".into(), "b".into()]), false), ["b", "a"]);
        let many = (0..NAMES_MAX).map(|name| name.to_string()).collect();
        let kept = past(round("new", many), false);
        assert_eq!((kept.len(), kept.first().map(String::as_str)), (NAMES_MAX, Some("1")));
        assert_eq!(kept.last().map(String::as_str), Some("new"));
    }

    #[test]
    fn ids_grow_though_the_clock_was_set_back() {
        let late = uuid::Uuid::from_u128(u128::MAX - 1).simple().to_string();
        assert!(id_after(&late) > late);
        let now = id_after("");
        assert!(id_after(&now) > now);
    }
}
