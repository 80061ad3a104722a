//! The schedule by which the server runs pipelines.

use std::time::Duration;

use forebay_api::pipelines::Schedule;

use super::error::Fault;
use super::settings::Pipelines;
use super::value::Value;

/// The shortest interval between runs.
const EVERY_MIN: Duration = Duration::from_secs(1);
/// The longest interval between runs: a year.
const EVERY_MAX: Duration = Duration::from_secs(366 * 86_400);

/// All schedules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedules(pub(crate) Vec<Schedule>);

impl Value for Schedules {
    const EXPECTED: &'static str = "pipelines and times such as orders=15m,customers=24h";

    fn parse(text: &str) -> Result<Self, String> {
        let mut schedules: Vec<Schedule> = Vec::new();
        for said in text.split(',').map(str::trim).filter(|said| !said.is_empty()) {
            let (pipeline, every) =
                said.split_once('=').ok_or_else(|| format!("{said:?} is not NAME=TIME"))?;
            let (pipeline, every) = (pipeline.trim(), every.trim());
            let every: forebay_base::duration::HumanDuration =
                every.parse().map_err(|error| format!("{said:?}: {error}"))?;
            let every = every.get();
            if pipeline.is_empty() || !(EVERY_MIN..=EVERY_MAX).contains(&every) {
                return Err(format!("{said:?} is not NAME=TIME with a time of 1s to 366 days"));
            }
            if schedules.iter().any(|other| other.pipeline == pipeline) {
                return Err(format!("{pipeline:?} is named twice"));
            }
            schedules.push(Schedule { pipeline: pipeline.to_owned(), every });
        }
        Ok(Self(schedules))
    }
}

/// Checks the settings of pipelines.
///
/// # Errors
/// The first setting that is not allowed, with what is allowed.
pub(super) fn check(pipelines: &Pipelines) -> Result<(), Fault> {
    if (1..=64).contains(&pipelines.runs_max) {
        Ok(())
    } else {
        Err(Fault::of("pipelines.runs_max", "must be 1 to 64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_names_and_times() {
        let read = |text| Schedules::parse(text).map(|schedules| schedules.0);
        assert_eq!(read(""), Ok(vec![]));
        let schedule = |pipeline: &str, seconds| Schedule {
            pipeline: pipeline.to_owned(),
            every: Duration::from_secs(seconds),
        };
        assert_eq!(
            read("orders=15m, customers = 24h,"),
            Ok(vec![schedule("orders", 900), schedule("customers", 86_400)])
        );
        for wrong in ["orders", "=1m", "a=", "a=0s", "a=1ms", "a=1m,a=2m", "a=soon", "a=99999h"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
