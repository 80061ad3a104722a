//! `AT TIME ZONE`, and the beginnings of periods of time.
//!
//! | expression | result |
//! |---|---|
//! | `timestamptz at time zone 'Europe/Berlin'` | the local time there, a `timestamp` |
//! | `timestamp at time zone 'Europe/Berlin'` | the instant at which it is local time there, a `timestamptz` |
//! | `date_trunc('month', ...)` | of a `timestamp` or a date the `timestamp`, of a `timestamptz` the `timestamptz` at which its month begins |
//!
//! Invariants:
//! * Times are microseconds: years are not limited to those of nanoseconds.
//! * A local time that does not exist, or exists twice, is an error.
//! * Only names of the form `Area/City` and `UTC`: PostgreSQL reads offsets (`+02`) with the sign of
//!   POSIX, and abbreviations by a table of the server.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray as _, PrimitiveArray};
use datafusion::arrow::compute::{CastOptions, DatePart, cast_with_options, date_part};
use datafusion::arrow::datatypes::{DataType, Int32Type, TimeUnit, TimestampMicrosecondType};
use datafusion::common::{exec_datafusion_err, exec_err, plan_err};
use datafusion::error::Result;
use datafusion::execution::context::SessionContext;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::scalar::ScalarValue;

const SECOND_US: i64 = 1_000_000;
const DAY_US: i64 = 86_400 * SECOND_US;

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Kind {
    Zone,
    Trunc,
}

/// A function of times.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Zones {
    kind: Kind,
    signature: Signature,
}

/// Replaces these functions of a session.
pub(super) fn register(session: &SessionContext) {
    for kind in [Kind::Zone, Kind::Trunc] {
        let signature = Signature::user_defined(Volatility::Immutable);
        session.register_udf(ScalarUDF::from(Zones { kind, signature }));
    }
}

fn timestamp(zone: Option<&str>) -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, zone.map(Into::into))
}

fn is_zoned(of: &DataType) -> bool {
    matches!(of, DataType::Timestamp(_, Some(_)))
}

/// The name of a time zone as the engine has it.
fn zone(name: &str) -> Result<&str> {
    match name {
        "UTC" | "utc" | "GMT" => Ok("UTC"),
        name if name.contains('/') && !name.starts_with("Etc/") => Ok(name),
        _ => plan_err!(
            "the time zone {name:?} is no name such as 'Europe/Berlin' or 'UTC'; offsets and \
             abbreviations would be read in another way"
        ),
    }
}

/// Local times as instants, or instants as local times.
fn moved(times: &ArrayRef, name: &str) -> Result<ArrayRef> {
    let there = timestamp(Some(zone(name)?));
    let options = CastOptions { safe: false, ..CastOptions::default() };
    if !is_zoned(times.data_type()) {
        let made = cast_with_options(times, &there, &options)?;
        return Ok(cast_with_options(&made, &timestamp(Some("UTC")), &options)?);
    }
    let times = cast_with_options(times, &there, &options)?;
    let parts = [DatePart::Year, DatePart::Month, DatePart::Day];
    let parts = [
        date_part(&times, parts[0])?,
        date_part(&times, parts[1])?,
        date_part(&times, parts[2])?,
        date_part(&times, DatePart::Hour)?,
        date_part(&times, DatePart::Minute)?,
        date_part(&times, DatePart::Second)?,
    ];
    let [years, months, days, hours, minutes, seconds] =
        parts.each_ref().map(|part| part.as_primitive::<Int32Type>());
    let times = times.as_primitive::<TimestampMicrosecondType>();
    let made = times.iter().enumerate().map(|(row, time)| {
        let Some(time) = time else { return Ok(None) };
        let day =
            day(years.value(row).into(), months.value(row).into()) + i64::from(days.value(row)) - 1;
        let second = i64::from(hours.value(row)) * 3600
            + i64::from(minutes.value(row)) * 60
            + i64::from(seconds.value(row));
        let made = day.checked_mul(DAY_US).and_then(|it| it.checked_add(second * SECOND_US));
        let made = made.and_then(|it| it.checked_add(time.rem_euclid(SECOND_US)));
        made.map(Some).ok_or_else(|| exec_datafusion_err!("a timestamp is out of range"))
    });
    let made = made.collect::<Result<PrimitiveArray<TimestampMicrosecondType>>>()?;
    Ok(Arc::new(made))
}

/// The number of the first day of a month, from 1970-01-01.
///
/// From Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn day(year: i64, month: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The year and the month of a day, the inverse of [`day`].
fn month_of(day: i64) -> (i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month)
}

/// The beginning of the period in which a time is. `None` if there is no such period.
fn begin(period: &str, time: i64) -> Option<i64> {
    let whole = |unit: i64| time.checked_sub(time.rem_euclid(unit));
    let date = time.div_euclid(DAY_US);
    let (year, month) = month_of(date);
    // There is no year 0: the year before 1 is 0 here, 1 BC there. Centuries begin with 1.
    let years = |count: i64| match year {
        1.. => (year - 1) / count * count + 1,
        _ => -((-year) / count) * count - (count - 1),
    };
    let first = match period {
        "microsecond" | "microseconds" => return Some(time),
        "millisecond" | "milliseconds" => return whole(1000),
        "second" | "seconds" => return whole(SECOND_US),
        "minute" | "minutes" => return whole(60 * SECOND_US),
        "hour" | "hours" => return whole(3600 * SECOND_US),
        "day" | "days" => date,
        // 1970-01-01 was a Thursday.
        "week" | "weeks" => date - (date + 3).rem_euclid(7),
        "month" | "months" => day(year, month),
        "quarter" | "quarters" => day(year, (month - 1) / 3 * 3 + 1),
        "year" | "years" => day(year, 1),
        "decade" | "decades" => day(year.div_euclid(10) * 10, 1),
        "century" | "centuries" => day(years(100), 1),
        "millennium" | "millennia" | "millenniums" => day(years(1000), 1),
        _ => return None,
    };
    first.checked_mul(DAY_US)
}

impl ScalarUDFImpl for Zones {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Zone => "at_time_zone",
            Kind::Trunc => "date_trunc",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let (of, text) = match (self.kind, types) {
            (Kind::Zone, [of, text]) | (Kind::Trunc, [text, of]) => (of, text),
            (Kind::Trunc, [_, _, _]) => {
                return plan_err!(
                    "date_trunc in a time zone is not supported; use date_trunc(..., v at time zone \
                     '...') at time zone '...'"
                );
            }
            _ => return plan_err!("{} has another number of arguments", self.name()),
        };
        if !text.is_string() {
            return plan_err!("{} takes a text, not {text}", self.name());
        }
        let of = match of {
            of if is_zoned(of) => timestamp(Some("UTC")),
            DataType::Timestamp(..) | DataType::Null => timestamp(None),
            // PostgreSQL casts a date to timestamptz, in UTC here.
            DataType::Date32 => timestamp(Some("UTC")),
            of => return plan_err!("{} takes timestamps, not {of}; cast it", self.name()),
        };
        Ok(match self.kind {
            Kind::Zone => vec![of, DataType::Utf8],
            Kind::Trunc => vec![DataType::Utf8, of],
        })
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        Ok(match (self.kind, types) {
            (Kind::Zone, [of, _]) if is_zoned(of) => timestamp(None),
            (Kind::Zone, _) => timestamp(Some("UTC")),
            (Kind::Trunc, [_, of]) => of.clone(),
            _ => return plan_err!("{} has another number of arguments", self.name()),
        })
    }

    fn return_field_from_args(
        &self,
        args: ReturnFieldArgs<'_>,
    ) -> Result<datafusion::arrow::datatypes::FieldRef> {
        let types: Vec<_> = args.arg_fields.iter().map(|it| it.data_type().clone()).collect();
        let text =
            args.scalar_arguments.get(usize::from(self.kind == Kind::Zone)).copied().flatten();
        let Some(text) = text.and_then(|text| text.try_as_str().flatten()) else {
            return plan_err!("the unit or the time zone of {} has to be a constant", self.name());
        };
        match self.kind {
            Kind::Zone => zone(text).map(drop)?,
            Kind::Trunc if begin(&text.to_lowercase(), 0).is_none() => {
                return plan_err!("date_trunc has no unit {text:?}");
            }
            Kind::Trunc => {}
        }
        let field =
            datafusion::arrow::datatypes::Field::new(self.name(), self.return_type(&types)?, true);
        Ok(Arc::new(field))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (of, text) = match (self.kind, args.args.as_slice()) {
            (Kind::Zone, [of, text]) | (Kind::Trunc, [text, of]) => (of, text),
            _ => return exec_err!("{} has two arguments", self.name()),
        };
        let ColumnarValue::Scalar(text) = text else {
            return exec_err!("the unit or the time zone of {} has to be a constant", self.name());
        };
        let text = text.try_as_str().flatten().unwrap_or_default();
        let is_constant = matches!(of, ColumnarValue::Scalar(_));
        let times = of.to_array(if is_constant { 1 } else { args.number_rows })?;
        let made = match self.kind {
            Kind::Zone => moved(&times, text)?,
            Kind::Trunc => {
                let period = text.to_lowercase();
                let refused = || exec_datafusion_err!("a timestamp is out of range");
                let one = |time| match time {
                    // The infinities.
                    i64::MIN | i64::MAX => Ok(time),
                    time => begin(&period, time).ok_or_else(refused),
                };
                let made = times.as_primitive::<TimestampMicrosecondType>();
                let made: PrimitiveArray<TimestampMicrosecondType> = made.try_unary(one)?;
                Arc::new(made.with_data_type(args.return_field.data_type().clone())) as ArrayRef
            }
        };
        Ok(match is_constant {
            true => ColumnarValue::Scalar(ScalarValue::try_from_array(&made, 0)?),
            false => ColumnarValue::Array(made),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_and_days_are_in_them_in_all_years() {
        for year in [-4713, -400, -1, 0, 1, 1582, 1900, 1970, 2000, 2024, 9999, 294_276] {
            for month in 1..=12 {
                let first = day(year, month);
                assert_eq!(month_of(first), (year, month));
                let before = if month == 1 { (year - 1, 12) } else { (year, month - 1) };
                assert_eq!(month_of(first - 1), before);
            }
        }
        assert_eq!((day(1970, 1), day(2000, 3), day(1969, 12)), (0, 11_017, -31));
    }

    #[test]
    fn centuries_begin_with_their_first_year_and_decades_with_zero() {
        let at = |year| day(year, 7) * DAY_US;
        for (period, year, first) in [
            ("century", 2000, 1901),
            ("century", 2001, 2001),
            ("century", 0, -99),
            ("century", -100, -199),
            ("millennium", 2000, 1001),
            ("decade", 2009, 2000),
            ("decade", -1, -10),
        ] {
            assert_eq!(begin(period, at(year)), Some(day(first, 1) * DAY_US), "{period} of {year}");
        }
        assert_eq!(begin("fortnight", 0), None);
        assert_eq!(begin("week", 0), Some(-3 * DAY_US));
    }

    #[test]
    fn names_of_zones_are_areas_and_cities() {
        assert_eq!(zone("Europe/Berlin").unwrap(), "Europe/Berlin");
        for name in ["CET", "+02", "Etc/GMT+2", "", "utc "] {
            assert!(zone(name).is_err(), "{name}");
        }
    }
}
