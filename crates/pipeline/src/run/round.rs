//! Rounds: the loads of one run taken together, so that a run which failed somewhere is gone on with and
//! not begun once more.
//!
//! Each load names the round it belongs to and the streams that round copies whole. A round is open as long
//! as one of these has not finished its load. Incremental streams are copied before all others: where one of
//! them fails no round has begun, and what they copied they do not copy again anyway.
//!
//! Invariants:
//! * With `append`, a stream that a round has finished is not copied again in that round: its rows would be
//!   there twice. With `replace` and `upsert` it is, unless the round has a name.
//! * A round with a name that is over is over: a run of that name copies nothing.
//! * Ids of rounds grow, whatever the clock does.

use std::collections::HashMap;

use super::engine::{Options, Pipeline};
use crate::config::{SyncMode, TargetSettings, WriteMode};
use crate::connector::{LedgerEntry, Load, Round};
use crate::error::{ConnectorError, RunError};
use crate::transform::TransformSettings;

/// The last load of a stream and its entries.
pub(super) type LastLoad = (Load, Vec<LedgerEntry>);

/// What the destination knows of earlier runs, and what that means for this one.
pub(super) struct History {
    /// By stream; those that had none are not there.
    loads: HashMap<String, LastLoad>,
    /// The round this run belongs to. Which streams it has is not known yet.
    pub(super) round: Round,
    /// Whether streams the round has finished are left as they are.
    keeps_finished: bool,
}

impl History {
    /// The last load of a stream.
    pub(super) fn last(&self, stream: &str) -> Option<&LastLoad> {
        self.loads.get(stream)
    }

    /// The load of a stream that is not to be copied again.
    pub(super) fn finished(&self, stream: &str) -> Option<&LastLoad> {
        let last = self.last(stream)?;
        (self.keeps_finished && is_done(last, &self.round.id)).then_some(last)
    }
}

fn is_done((load, _): &LastLoad, round: &str) -> bool {
    load.is_finished && load.round.id == round
}

impl Pipeline<'_> {
    /// Asks the destination for the last loads, and finds the round to go on with.
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
        let is_append = self.file.destination.write_mode == WriteMode::Append;
        let goes_on = match (&options.once, options.from_scratch) {
            (_, true) => false,
            (None, false) => is_open,
            (Some(name), false) if newest.name.as_ref() == Some(name) => true,
            (Some(name), false) if is_open && is_append => {
                let other = newest.name.as_deref().unwrap_or("without a name");
                let error = ConnectorError::unsupported(
                    format!("the run before this one, {other}, is not over, and this is {name}"),
                    "run that one until it is done; or `--from-scratch` to give it up",
                );
                return Err(RunError::of("the ledger", error));
            }
            (Some(_), false) => false,
        };
        let keeps_finished = goes_on && (is_append || options.once.is_some());
        let round = if goes_on {
            newest
        } else {
            Round { id: id_after(&newest.id), name: options.once.clone(), streams: Vec::new() }
        };
        Ok(History { loads, round, keeps_finished })
    }

    /// Where streams may go: those of the source, and what transforms make.
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
    fn ids_grow_though_the_clock_was_set_back() {
        let late = uuid::Uuid::from_u128(u128::MAX - 1).simple().to_string();
        assert!(id_after(&late) > late);
        let now = id_after("");
        assert!(id_after(&now) > now);
    }
}
