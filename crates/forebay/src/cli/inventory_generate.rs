//! `forebay inventory generate`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use forebay_inventory::load::{Layout, Load, Shape};
use serde_json::json;

use crate::exit::Exit;
use crate::out;

const HELP: &str = "\
Examples:
  forebay inventory generate s3_realistic --out ./generated
  forebay inventory generate deep_narrow --objects 2M --format csv --out ./narrow
  forebay inventory build --from ./generated/manifest.json --out ./index

Shapes:
  deep_narrow        few prefixes, many levels, a hundred objects in each
  wide_shallow       few objects in each prefix, two levels
  balanced           twenty prefixes below each, four levels
  s3_realistic       a mixture: logs, a data lake, backups, users' media
  wide_single_level  one prefix for each object, on a single level

The same shape, seed and number of objects give the same objects, in any format. The directory holds
what S3 Inventory delivers: data files in data/, manifest.json with their sizes and MD5s, and
manifest.checksum, written last. Without it the directory is not complete.

Exit codes: 0 written; 1 the directory is not empty or could not be written; 2 invalid command
line.";

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Shape of the hierarchy of keys.
    #[arg(value_name = "SHAPE", value_parser = clap::builder::PossibleValuesParser::new(Shape::ALL.map(Shape::name)))]
    shape: String,
    /// Number of objects; the suffixes K, M and G multiply by 10^3, 10^6 and 10^9.
    #[arg(long, value_name = "COUNT", default_value = "100K", value_parser = objects)]
    objects: u64,
    /// Seed of the random generator.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// Format of the data files.
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "parquet")]
    format: FormatArg,
    /// Directory to create; an existing one must be empty.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

#[derive(clap::ValueEnum, Debug, Clone, Copy)]
enum FormatArg {
    /// Parquet, compressed with Snappy.
    Parquet,
    /// CSV, compressed with gzip, keys percent-encoded.
    Csv,
}

/// More than any bucket has, and far below the range of 64 bits.
const OBJECTS_MAX: u64 = 100_000_000_000;

fn objects(text: &str) -> Result<u64, String> {
    let units = [(['K', 'k'], 1_000), (['M', 'm'], 1_000_000), (['G', 'g'], 1_000_000_000)];
    let said = units.iter().find_map(|(unit, times)| Some((text.strip_suffix(unit)?, *times)));
    let (digits, times) = said.unwrap_or((text, 1));
    let count = digits.parse::<u64>().ok().and_then(|count| count.checked_mul(times));
    count
        .filter(|count| *count <= OBJECTS_MAX)
        .ok_or_else(|| format!("{text:?} is not a number of objects; use 100000, 100K or 2M"))
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let shape = Shape::named(&args.shape).context("there is no such shape")?;
    refuse_used(&args.out)?;
    let layout = match args.format {
        FormatArg::Parquet => Layout::parquet(args.objects),
        FormatArg::Csv => Layout::csv(args.objects),
    };
    let manifest = Load { shape, seed: args.seed }.write(&args.out, &layout)?;
    if args.json {
        out::json(&json!({
            "manifest": manifest,
            "shape": shape.name(),
            "seed": args.seed,
            "objects": layout.objects,
            "files": layout.files,
        }))?;
    } else {
        let (count, shape) = (layout.objects, shape.name());
        out::line(format_args!("{count} objects of shape {shape}: {}", manifest.display()))?;
    }
    Ok(Exit::Ok)
}

/// Refuses a directory that is not empty: its content is neither replaced nor mixed with the
/// output.
fn refuse_used(dir: &Path) -> anyhow::Result<()> {
    let failed = || format!("cannot read {}", dir.display());
    match std::fs::read_dir(dir) {
        Ok(mut entries) => {
            if entries.next().transpose().with_context(failed)?.is_some() {
                bail!("{} is not empty; name another directory with --out", dir.display());
            }
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_objects_are_read_with_their_units_and_refused_beyond_the_limit() {
        assert_eq!(objects("7"), Ok(7));
        assert_eq!(objects("100K"), Ok(100_000));
        assert_eq!(objects("2m"), Ok(2_000_000));
        for wrong in
            ["", "K", "-1", "1.5M", "101G", "99999999999999999999", "18446744073709551615K", "5é"]
        {
            assert!(objects(wrong).is_err(), "{wrong}");
        }
    }
}
