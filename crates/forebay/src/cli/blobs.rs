//! `forebay blobs`: where a server keeps the bytes of files, and moving them.

use std::io::IsTerminal as _;
use std::time::Duration;

use serde_json::Value;

use super::server::{Server, ServerArgs, parsed};
use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay blobs show
  forebay blobs move
  forebay blobs move --server http://127.0.0.1:8090 --key KEY

To move files to a bucket, set intake.blobs to s3://BUCKET/PREFIX, restart the server, and run
`forebay blobs move`. To move them back, set intake.blobs_from to it and leave intake.blobs empty.
Files are stored and read meanwhile. A move that was interrupted is continued by the next one.

Files of up to 64 KiB that were stored before intake.blobs was set stay in the log, and so do those
of up to intake.blobs_inline_max.

Exit codes: 0 success, and for move: everything is in its place; 1 a file is damaged and was not
moved, there is only one place, the bucket failed, or the server did not answer.";

/// Time between two questions for the progress.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(clap::Subcommand, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) enum Command {
    /// Print where the bytes of files are, and the newest move.
    Show(ServerArgs),
    /// Move the bytes of files to the configured place, and wait until that is done.
    Move(ServerArgs),
}

const PATH: &str = "/v1/blobs";

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Show(from) => {
            let server = Server::new(&from.server, from.key.as_deref(), PATH)?;
            print(from, &status(&server)?).map(|()| Exit::Ok)
        }
        Command::Move(from) => move_all(from),
    }
}

fn status(server: &Server<'_>) -> anyhow::Result<Value> {
    parsed(server, &server.get(PATH, "application/json")?)
}

fn move_all(from: &ServerArgs) -> anyhow::Result<Exit> {
    let target = format!("{PATH}/move");
    let server = Server::new(&from.server, from.key.as_deref(), &target)?;
    let mut now = parsed(&server, &server.post(&target)?)?;
    let bar = indicatif::ProgressBar::new_spinner();
    while now["moving"]["running"].as_bool() == Some(true) {
        if std::io::stderr().is_terminal() {
            bar.set_message(progress(&now["moving"]));
            bar.tick();
        }
        std::thread::park_timeout(PAUSE);
        now = status(&server)?;
    }
    bar.finish_and_clear();
    print(from, &now)?;
    let is_done = now["moving"]["error"].is_null() && now["moving"]["damaged"].as_u64() == Some(0);
    Ok(if is_done { Exit::Ok } else { Exit::Failed })
}

fn progress(moving: &Value) -> String {
    let number = |name: &str| moving[name].as_u64().unwrap_or(0);
    let size = out::size(number("moved_bytes"));
    format!("{} moved, {size}; {} examined", number("moved"), number("examined"))
}

fn print(from: &ServerArgs, status: &Value) -> anyhow::Result<()> {
    if from.json {
        return out::json(status);
    }
    lines(status).iter().try_for_each(out::line)
}

/// The lines about a status.
fn lines(status: &Value) -> Vec<String> {
    let shown = |value: &Value| value.as_str().unwrap_or_default().escape_debug().to_string();
    let mut lines = vec![format!("new files   {}", shown(&status["place"]))];
    if !status["from"].is_null() {
        lines.push(format!("others in   {}", shown(&status["from"])));
    }
    if status["packs"].as_u64().is_some_and(|packs| packs > 0) {
        let bytes = out::size(status["pack_bytes"].as_u64().unwrap_or(0));
        let (blobs, packs) = (&status["blobs"], &status["packs"]);
        lines.push(format!("in bucket   {blobs} contents in {packs} objects, {bytes}"));
    }
    if !status["trouble"].is_null() {
        lines.push(format!("trouble     {}", shown(&status["trouble"])));
    }
    let moving = &status["moving"];
    if moving["examined"].as_u64().is_some_and(|count| count > 0)
        || moving["running"].as_bool() == Some(true)
    {
        lines.push(format!("move        {}", progress(moving)));
    }
    if let Some(damaged) = moving["damaged"].as_u64().filter(|count| *count > 0) {
        lines.push(format!("damaged     {damaged} were not moved; the server's log names them"));
    }
    if !moving["error"].is_null() {
        lines.push(format!("not ended   {}", shown(&moving["error"])));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_names_places_and_what_failed_and_escapes_what_the_server_sends() {
        let moving = json!({
            "running": false, "examined": 5, "moved": 3, "moved_bytes": 3_145_728, "damaged": 1,
            "error": "no connection\u{1b}",
        });
        let status = json!({
            "place": "s3://b/p", "from": null, "trouble": "s3://b/p is not available: x",
            "packs": 2, "pack_bytes": 4_194_304, "blobs": 7, "moving": moving,
        });
        let expected = [
            "new files   s3://b/p",
            "in bucket   7 contents in 2 objects, 4.0MiB",
            "trouble     s3://b/p is not available: x",
            "move        3 moved, 3.0MiB; 5 examined",
            "damaged     1 were not moved; the server's log names them",
            "not ended   no connection\\u{1b}",
        ];
        assert_eq!(lines(&status), expected);
        let idle = json!({"place": "local", "from": null, "trouble": null, "packs": 0,
            "moving": {"running": false, "examined": 0}});
        assert_eq!(lines(&idle), ["new files   local"]);
    }
}
