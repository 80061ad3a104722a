//! Casts between texts and other types that the engine writes in another form than PostgreSQL.
//!
//! | cast | the engine | here |
//! |---|---|---|
//! | a timestamp to text | `2024-02-29T12:34:56` | `2024-02-29 12:34:56`, with `+00` for a time zone |
//! | text to `timestamp` | in the time zone of the text | the time zone is ignored |
//! | `bytea`, arrays and intervals to text | the bytes, other forms | refused |

use std::sync::Arc;

use datafusion::arrow::array::{Array as _, ArrayRef, AsArray as _, StringArray};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::of_one;
use crate::transform::sql::syntax::zoneless;

/// A cast as a function.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TextCast {
    to: DataType,
    signature: Signature,
}

impl TextCast {
    /// The function for a cast, if it needs one.
    ///
    /// # Errors
    /// The cast is refused.
    pub(super) fn of(from: &DataType, to: &DataType, is_try: bool) -> Result<Option<ScalarUDF>> {
        let is_needed = match (from, to) {
            (from, to) if from.is_binary() && to.is_string() => {
                return plan_err!("bytea would become text byte by byte; use encode(..., 'hex')");
            }
            (DataType::List(_), to) if to.is_string() => {
                return plan_err!("an array has another form as text; use array_to_string");
            }
            (DataType::Interval(_) | DataType::Duration(_), to) if to.is_string() => {
                return plan_err!(
                    "an interval has another form as text; use extract(epoch from ...)"
                );
            }
            (DataType::Timestamp(..), DataType::Utf8) => true,
            (from, DataType::Timestamp(TimeUnit::Microsecond, None)) => from.is_string() && !is_try,
            _ => false,
        };
        let signature = Signature::any(1, Volatility::Immutable);
        Ok(is_needed.then(|| ScalarUDF::from(Self { to: to.clone(), signature })))
    }

    fn cast(&self, array: &ArrayRef) -> Result<ArrayRef> {
        let options = CastOptions { safe: false, ..CastOptions::default() };
        if self.to == DataType::Utf8 {
            let is_zoned = matches!(array.data_type(), DataType::Timestamp(_, Some(_)));
            let plain = DataType::Timestamp(TimeUnit::Microsecond, None);
            // In UTC, the time zone of queries.
            let texts = cast_with_options(
                &cast_with_options(&in_utc(array)?, &plain, &options)?,
                &self.to,
                &options,
            )?;
            let texts = texts.as_string::<i32>().iter().map(|text| Some(shown(text?, is_zoned)));
            return Ok(Arc::new(texts.collect::<StringArray>()));
        }
        let texts = cast_with_options(array, &DataType::Utf8, &options)?;
        let texts = texts.as_string::<i32>().iter().map(|text| text.map(zoneless));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        Ok(cast_with_options(&texts, &self.to, &options)?)
    }
}

/// Timestamps of any time zone with that of UTC.
fn in_utc(array: &ArrayRef) -> Result<ArrayRef> {
    let to = match array.data_type() {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some("UTC".into())),
        other => other.clone(),
    };
    Ok(cast_with_options(array, &to, &CastOptions::default())?)
}

/// A timestamp as PostgreSQL writes it.
fn shown(text: &str, is_zoned: bool) -> String {
    let text = text.replacen('T', " ", 1);
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text.as_str(),
    };
    format!("{text}{}", if is_zoned { "+00" } else { "" })
}

impl ScalarUDFImpl for TextCast {
    fn name(&self) -> &'static str {
        "text_cast"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        of_one(&args, |array| self.cast(array))
    }
}
