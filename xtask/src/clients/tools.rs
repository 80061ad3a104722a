//! redis-cli and redis-benchmark, and the text protocol over a plain socket and `nc`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::server::{Server, limited};
use super::{Outcome, Stage, fetch};

/// Command lines of redis-cli, and the expected output.
const CLI: &[(&[&str], &str)] = &[
    (&["PING"], "PONG"),
    (&["SET", "k", "v"], "OK"),
    (&["GET", "k"], "v"),
    (&["-3", "HSET", "h", "f", "v"], "1"),
    (&["-3", "--json", "HGETALL", "h"], r#"{"f":"v"}"#),
    (&["RPUSH", "l", "a", "b"], "2"),
    (&["LRANGE", "l", "0", "-1"], "a\nb"),
    (&["-r", "3", "INCR", "n"], "1\n2\n3"),
    (&["-n", "5", "DBSIZE"], "0"),
    (&["--scan", "--pattern", "[kn]"], "k\nn"),
    (
        &["--no-raw", "LPUSH", "k", "x"],
        "(error) WRONGTYPE Operation against a key holding the wrong kind of value",
    ),
    (&["--csv", "LRANGE", "l", "0", "-1"], "\"a\",\"b\""),
    (&["CONFIG", "GET", "databases"], "databases\n16"),
    (
        &["--no-raw", "COMMAND", "COUNT", "x"],
        "(error) ERR wrong number of arguments for 'command|count' command",
    ),
];

pub(super) fn redis_cli(_stage: &Stage, server: &Server) -> anyhow::Result<Outcome> {
    fetch::need("redis-cli")?;
    let mut outcome = Outcome::default();
    let cli = |args: &[&str]| {
        let mut cli = Command::new("redis-cli");
        cli.args(["-h", "127.0.0.1", "-p", &server.resp.port().to_string()]).args(args);
        limited(&cli, 20)
    };
    for (args, expected) in CLI {
        let (_, said) = cli(args)?;
        let mut lines: Vec<&str> = said.lines().map(str::trim_end).collect();
        if args.contains(&"--scan") {
            lines.sort_unstable();
        }
        let said = lines.join("\n").trim().to_owned();
        let right = if expected.starts_with("(error)") {
            said.starts_with(expected)
        } else {
            said == *expected
        };
        outcome.note(&format!("{}: {said:?}", args.join(" ")), right);
    }
    for (args, part) in [
        (&["INFO", "server"][..], "redis_version:"),
        (&["--bigkeys"], "Biggest"),
        (&["--memkeys"], "keys in the keyspace"),
        (&["HELP", "SET"], "SET"),
    ] {
        let (ended_well, said) = cli(args)?;
        outcome.note(&args.join(" "), ended_well && said.contains(part));
    }
    pipe(server, &mut outcome)?;
    outcome.note("PING after all commands", cli(&["PING"])?.1.trim() == "PONG");
    Ok(outcome)
}

/// `redis-cli --pipe`: mass insertion.
fn pipe(server: &Server, outcome: &mut Outcome) -> anyhow::Result<()> {
    let mut pipe = Command::new("redis-cli")
        .args(["-p", &server.resp.port().to_string(), "--pipe"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start redis-cli")?;
    if let Some(mut input) = pipe.stdin.take() {
        for n in 0..10_000 {
            let (key, value) = (format!("pipe:{n}"), format!("value {n}"));
            let (key_len, len) = (key.len(), value.len());
            write!(input, "*3\r\n$3\r\nSET\r\n${key_len}\r\n{key}\r\n${len}\r\n{value}\r\n")
                .context("cannot write to redis-cli")?;
        }
    }
    let ended = pipe.wait_with_output().context("cannot wait for redis-cli")?;
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    outcome.note("--pipe", said.contains("errors: 0, replies: 10000"));
    Ok(())
}

pub(super) fn redis_benchmark(stage: &Stage, server: &Server) -> anyhow::Result<Outcome> {
    fetch::need("redis-benchmark")?;
    let mut outcome = Outcome::default();
    let port = server.resp.port().to_string();
    for options in [
        &["-c", "50"][..],
        &["-c", "20", "-P", "16", "-r", "1000"],
        &["-c", "20", "--threads", "2", "-d", "4000"],
        &["-c", "20", "-3"],
    ] {
        let mut benchmark = Command::new("redis-benchmark");
        benchmark.args(["-p", &port, "-n", "2000", "-q"]).args(options);
        let (ended_well, said) = limited(&benchmark, 60)?;
        std::fs::write(stage.output.join("redis-benchmark.log"), &said)?;
        // Each test prints its rate; an error ends the program.
        let rates = said.matches("requests per second").count();
        let clean = !said.contains("Error") && !said.contains("WARN");
        outcome.note(&format!("redis-benchmark {}", options.join(" ")), {
            ended_well && clean && rates >= 15
        });
    }
    Ok(outcome)
}

/// Lines of the text protocol, and the replies.
const TEXT: &[(&str, &str)] = &[
    ("SET greeting \"hello world\"", "OK"),
    ("GET greeting", "hello world"),
    ("GET nothing", "NULL"),
    ("SETS fruits apple banana", "OK"),
    ("GET fruits", "[apple banana]"),
    ("SETX user name Ann age 7", "OK"),
    ("SETNX greeting other", "NOT_SET"),
    ("SET short -t 1h x", "OK"),
    ("DEL short", "OK"),
    ("DEL short", "NOT_FOUND"),
    ("SETX user name Ann age", "ERROR SETX requires even number of arguments for key-value pairs"),
    ("NONSENSE", "ERROR unknown command"),
];

pub(super) fn text(_stage: &Stage, server: &Server) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut stream =
        TcpStream::connect(server.text).context("cannot connect to the text protocol")?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    let mut replies = BufReader::new(stream.try_clone().context("cannot duplicate a socket")?);
    for (line, expected) in TEXT {
        writeln!(stream, "{line}").context("cannot write to the server")?;
        let mut reply = String::new();
        if replies.read_line(&mut reply).context("cannot read from the server")? == 0 {
            bail!("the server closed the connection after {line}");
        }
        outcome.note(&format!("{line}: {reply:?}"), reply.trim_end() == *expected);
    }
    // Values of one protocol are visible in the other.
    if fetch::need("redis-cli").is_ok() {
        let mut cli = Command::new("redis-cli");
        cli.args(["-p", &server.resp.port().to_string(), "LRANGE", "fruits", "0", "-1"]);
        outcome.note("RESP sees a text list", limited(&cli, 20)?.1 == "apple\nbanana\n");
    }
    netcat(server, &mut outcome)?;
    Ok(outcome)
}

/// `printf 'GET greeting\n' | nc host port`, where there is an `nc`.
fn netcat(server: &Server, outcome: &mut Outcome) -> anyhow::Result<()> {
    if fetch::need("nc").is_err() {
        outcome.skipped += 1;
        return Ok(());
    }
    let script = format!(
        "printf 'GET greeting\\n' | timeout 10 nc -q 1 {} {}",
        server.text.ip(),
        server.text.port()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]);
    outcome.note("nc", limited(&shell, 20)?.1.trim_end() == "hello world");
    Ok(())
}
