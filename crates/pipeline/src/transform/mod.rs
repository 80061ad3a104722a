//! What is made of rows between source and destination.
//!
//! A transform is a stream around streams: it reads those below it and is read like them. `mask` and
//! `validate` look at rows one after another and keep the units of the stream they stand around; `sql`
//! sees whole streams, so what it makes is one unit.
//!
//! | room | what it does |
//! |---|---|
//! | [`settings`] | `transforms` of the pipeline file |
//! | `step` | what looks at rows one after another, as a stream |
//! | `mask`, `validate`, `sql` | the transforms |
//!
//! Invariants:
//! * Everything that can be wrong with a transform and the columns it is for is found by [`apply`], before
//!   anything is written.
//! * Streams that are transformed are opened for records ([`Form`](crate::connector::Form)).

mod mask;
pub mod settings;
mod sql;
mod step;
mod streams;
#[cfg(test)]
mod testing;
mod validate;

use std::sync::Arc;

use sha2::{Digest, Sha256};

pub use settings::{MaskSettings, SqlSettings, TransformSettings, ValidateSettings};

use self::step::Stepped;
use crate::connector::{Result, SourceStream};
use crate::run::Context;

/// Puts the transforms of a pipeline around its streams, in order.
///
/// * `streams`: each with the name it has at the destination, by which transforms name it too.
/// * `memory`: bytes that a query may take; what it needs beyond goes to files for the time being.
/// * Returns the streams that come out. One that no query names keeps its name and its place; what a query
///   gives stands where the first stream it names stood.
///
/// # Errors
/// [`ConnectorError::Unsupported`](crate::ConnectorError::Unsupported) or
/// [`Refused`](crate::ConnectorError::Refused): a stream or column that is not there, a rule or mask that
/// does not fit its column, a query that cannot be.
pub async fn apply(
    settings: &[TransformSettings],
    mut streams: Vec<(String, Arc<dyn SourceStream>)>,
    memory: usize,
    context: &Context,
) -> Result<Vec<(String, Arc<dyn SourceStream>)>> {
    let mut later = settings;
    while let Some((step, after)) = later.split_first() {
        later = after;
        match step {
            TransformSettings::Sql(settings) => {
                streams = sql::apply(settings, streams, memory, context).await?;
            }
            TransformSettings::Validate(settings) => {
                let at = streams::find(&streams, settings.stream.as_deref(), "validate")?;
                if let Some((name, stream)) = streams.get_mut(at) {
                    let hidden = streams::masked_later(later, name);
                    let validation = validate::Validation::new(
                        name,
                        stream.columns(),
                        stream.units(),
                        settings,
                        hidden,
                    )?;
                    *stream = Arc::new(Stepped::new(Arc::clone(stream), validation));
                }
            }
            TransformSettings::Mask(settings) => {
                let at = streams::find(&streams, settings.stream.as_deref(), "mask")?;
                if let Some((name, stream)) = streams.get_mut(at) {
                    let masks = mask::Masks::new(name, stream.columns(), settings)?;
                    *stream = Arc::new(Stepped::new(Arc::clone(stream), masks));
                }
            }
        }
    }
    Ok(streams)
}

/// What transforms do, salts and all, in one hash: equal only where the same rows come out of the same.
#[must_use]
pub fn fingerprint(settings: &[TransformSettings]) -> String {
    let mut hash = Sha256::new();
    for step in settings {
        // The text of settings is everything they say but for salts, which are not printed.
        hash.update(format!("{step:?}\n"));
        if let TransformSettings::Mask(MaskSettings { salt: Some(salt), .. }) = step {
            hash.update(salt.expose().len().to_le_bytes());
            hash.update(salt.expose());
        }
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::testing::settings;
    use super::*;

    #[test]
    fn the_fingerprint_tells_transforms_apart_salts_too() {
        let yaml = "- mask: { salt: a long enough salt, columns: { a: hash } }";
        let one = fingerprint(&settings(yaml));
        assert_eq!(one, fingerprint(&settings(yaml)));
        for other in [
            "- mask: { salt: another long salt, columns: { a: hash } }",
            "- mask: { salt: a long enough salt, columns: { b: hash } }",
            "- sql: { query: select 1 }",
            "[]",
        ] {
            assert_ne!(one, fingerprint(&settings(other)), "{other}");
        }
    }
}
