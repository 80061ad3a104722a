//! `forebay restore`.

use forebay_intake::IntakeOptions;
use indicatif::HumanBytes;

use super::backup::{bar, target, unusable};
use super::settings::{DataArgs, wrong};
use crate::backup::restore::{Order, restore};
use crate::backup::store::Store;
use crate::buckets::S3Options;
use crate::exit::Exit;
use crate::interrupt::Interrupt;
use crate::{data_dir, out, wiring};

const AFTER_HELP: &str = "\
Examples:
  forebay restore /backups/forebay --data /srv/restored
  forebay restore /backups/forebay --at 20261125T200000000Z-1a2b3c4d --data /srv/restored
  forebay restore s3://backups/forebay --data /srv/restored --region eu-central-1

Writes the files beside the data directory, compares every byte with its hash, has each subsystem
check its data, and then gives the directory its name. The data directory must be empty or not
exist. If anything fails nothing is left behind.

Jobs that were waiting or running are failed, since the original may have run them; `forebay jobs
requeue` runs one. The configuration file is not part of a backup. Credentials for S3 are read from
the variables AWS_... or a profile. They need the permissions s3:ListBucket and s3:GetObject.

Exit codes: 0 success; 2 invalid command line; 3 the backup cannot be read, or is damaged, or the
data directory cannot be used; 130 interrupted.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Directory of the backups, or s3://BUCKET/PREFIX.
    #[arg(value_name = "TARGET")]
    target: String,
    /// Id of the backup [default: the newest].
    #[arg(long, value_name = "ID")]
    at: Option<String>,
    #[command(flatten)]
    s3: S3Options,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let config = args.data.resolve()?.config().map_err(wrong)?;
    data_dir::keep_private();
    let interrupt = Interrupt::listen()?;
    let restored = || {
        let store = Store::open(target(&args.target, &args.s3)?)?;
        let order = Order {
            id: args.at.as_deref(),
            data: &config.process.data,
            intake: IntakeOptions {
                object_storage: wiring::blobs::options(&config)?,
                ..wiring::intake::options(&config)
            },
        };
        let bar = bar();
        let restored = restore(&store, order, &interrupt, &|done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        restored
    };
    let restored = restored().map_err(unusable("cannot restore"))?;
    if args.json {
        out::json(&serde_json::to_value(&restored)?)?;
        return Ok(Exit::Ok);
    }
    let (files, bytes) = (restored.files, HumanBytes(restored.bytes));
    let (id, data) = (&restored.id, &restored.data);
    out::line(format_args!("restored {id} to {data}: {files} files, {bytes}, no damage found"))?;
    if restored.jobs_failed > 0 {
        out::line(format_args!(
            "{} jobs had not ended; they are failed, and forebay jobs requeue runs one",
            restored.jobs_failed
        ))?;
    }
    Ok(Exit::Ok)
}
