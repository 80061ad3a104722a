//! `forebay cache cli`.

use std::io::{BufRead as _, IsTerminal as _};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use forebay_cache::resp::{Args as Words, Limits, Parsed, parse};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use super::cache_tls::TlsArgs;
use crate::cache_client::{Client, Protocol, Reply, password};
use crate::exit::Exit;
use crate::out;

const AFTER_HELP: &str = "\
Examples:
  forebay cache cli                              an editor with history and completion
  forebay cache cli GET key                      one command
  forebay cache cli --text 127.0.0.1:8890        the text protocol
  forebay cache cli --tls --tls-ca ca.pem --resp 10.0.0.7:6390 PING
  generate | forebay cache cli > replies         one command per line, one reply per line

On a terminal replies are printed as by redis-cli; otherwise they are printed unchanged. The exit
code is 1 if the reply to a command was an error.";

/// Commands of the text protocol.
const TEXT_COMMANDS: [&str; 11] =
    ["SET", "SETS", "SETX", "SETNX", "SETSNX", "SETXNX", "GET", "DEL", "KEYS", "FLUSHALL", "AUTH"];
/// Number of commands sent ahead of their replies if they come from a pipe.
const PIPELINE: usize = 1_000;
/// Number of lines kept in the history.
const HISTORY_MAX: usize = 1_000;

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// Address of the RESP listener.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380")]
    resp: SocketAddr,
    /// Speak the text protocol, at this address, instead.
    #[arg(long, value_name = "ADDRESS")]
    text: Option<SocketAddr>,
    /// Use version 3 of RESP.
    #[arg(long, short = '3', conflicts_with = "text")]
    resp3: bool,
    /// File whose first line is the password.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsArgs,
    /// Command to run. Without one, commands are read from standard input.
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let (address, protocol) = match args.text {
        Some(address) => (address, Protocol::Text),
        None => (args.resp, Protocol::Resp),
    };
    let client = Client::connect(address, protocol, args.tls.trust().as_ref())?;
    let shown = std::io::stdout().is_terminal();
    let mut cli = Cli { client, protocol, shown, failed: false };
    if let Some(path) = &args.password_file {
        cli.greet(&["AUTH", &password(path)?])?;
    }
    if args.resp3 {
        cli.greet(&["HELLO", "3"])?;
    }
    if !args.command.is_empty() {
        cli.run_words(&args.command)?;
    } else if std::io::stdin().is_terminal() {
        cli.converse(address)?;
    } else {
        cli.pipe()?;
    }
    Ok(if cli.failed { Exit::Failed } else { Exit::Ok })
}

struct Cli {
    client: Client,
    protocol: Protocol,
    shown: bool,
    failed: bool,
}

impl Cli {
    /// Sends a command whose reply matters only if it is an error.
    fn greet(&mut self, words: &[&str]) -> anyhow::Result<()> {
        let owned: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        self.client.queue(&line_of(words), &owned);
        self.client.send()?;
        match self.client.read()? {
            Reply::Error(text) => anyhow::bail!("{}: {text}", words.first().unwrap_or(&"")),
            _ => Ok(()),
        }
    }

    fn run_words(&mut self, words: &[String]) -> anyhow::Result<()> {
        let owned: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        let text: Vec<&str> = words.iter().map(String::as_str).collect();
        self.client.queue(&line_of(&text), &owned);
        self.client.send()?;
        self.answer()?;
        self.listen_after(&owned)
    }

    /// Reads replies and prints them.
    fn answer(&mut self) -> anyhow::Result<()> {
        loop {
            let reply = self.client.read()?;
            self.failed |= matches!(reply, Reply::Error(_));
            self.print(&reply)?;
            // A message that arrives in between is no reply; the command's reply follows. To a
            // subscription of RESP3 the message is the reply, and `listen_after` continues from
            // there.
            if !matches!(&reply, Reply::Push(items) if is_message(items)) {
                return Ok(());
            }
        }
    }

    fn print(&self, reply: &Reply) -> anyhow::Result<()> {
        if self.shown {
            return out::line(reply.shown());
        }
        let mut bytes = Vec::new();
        reply.raw(&mut bytes);
        out::bytes(&bytes)
    }

    /// Prints messages after a subscription, until the user interrupts.
    fn listen_after(&mut self, words: &[Vec<u8>]) -> anyhow::Result<()> {
        let name = words.first().map(|name| name.to_ascii_lowercase()).unwrap_or_default();
        let subscribes = [&b"subscribe"[..], b"psubscribe", b"ssubscribe"].contains(&&*name);
        while subscribes && !self.failed && self.protocol == Protocol::Resp {
            let reply = self.client.read()?;
            self.print(&reply)?;
        }
        Ok(())
    }

    /// Runs commands from a pipe, sent ahead of their replies.
    fn pipe(&mut self) -> anyhow::Result<()> {
        let mut input = std::io::BufReader::new(std::io::stdin().lock());
        let mut waiting = 0;
        let mut line = String::new();
        loop {
            line.clear();
            let read = input.read_line(&mut line).context("cannot read standard input")?;
            let text = line.trim_end_matches(['\r', '\n']);
            if let Some(words) = self.words(text)? {
                self.client.queue(text, &words);
                waiting += 1;
            }
            // A client that writes a line and waits for its reply must get it.
            if waiting >= PIPELINE || input.buffer().is_empty() || read == 0 {
                self.client.send()?;
                for _ in 0..std::mem::take(&mut waiting) {
                    self.answer()?;
                }
            }
            if read == 0 {
                return Ok(());
            }
        }
    }

    /// Returns the words of a line; none if it is empty or was refused with a message.
    fn words(&mut self, line: &str) -> anyhow::Result<Option<Vec<Vec<u8>>>> {
        if line.trim().is_empty() {
            return Ok(None);
        }
        if self.protocol == Protocol::Text {
            return Ok(Some(vec![]));
        }
        let input = format!("{line}\r\n").into_bytes();
        let limits = Limits { inline_size_max: input.len() + 1, ..Limits::default() };
        let mut words = Words::new();
        match parse(&input, &limits, &mut words) {
            Ok(Parsed::Request { .. }) => {
                Ok(Some(words.iter(&input).map(<[u8]>::to_vec).collect()))
            }
            Ok(_) => Ok(None),
            Err(_) => {
                self.failed = true;
                out::note("Invalid argument(s)");
                Ok(None)
            }
        }
    }

    /// Runs commands that a user types.
    fn converse(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let config = rustyline::Config::builder()
            .max_history_size(HISTORY_MAX)
            .context("cannot set up the history")?
            .history_ignore_space(true)
            .build();
        let mut editor: Editor<Names, DefaultHistory> =
            Editor::with_config(config).context("cannot set up the line editor")?;
        editor.set_helper(Some(Names::new(self.protocol)));
        let history = std::env::home_dir().map(|home| home.join(".forebay_cache_history"));
        if let Some(path) = &history {
            // The first time there is none.
            editor.load_history(path).unwrap_or_default();
        }
        let prompt = format!("{address}> ");
        loop {
            let line = match editor.readline(&prompt) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue,
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(error).context("cannot read a line"),
            };
            let Some(words) = self.words(&line)? else { continue };
            let name = line.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
            // A password must not be written to a file.
            if name != "auth" && !(name == "hello" && line.to_ascii_lowercase().contains("auth")) {
                editor.add_history_entry(&line).context("cannot add the line to the history")?;
            }
            if name == "exit" {
                break;
            }
            self.client.queue(&line, &words);
            self.client.send()?;
            self.answer()?;
            self.listen_after(&words)?;
            if name == "quit" {
                break;
            }
        }
        self.failed = false;
        if let Some(path) = &history
            && let Err(error) = editor.save_history(path)
        {
            out::note(format_args!("cannot write the history to {}: {error}", path.display()));
        }
        Ok(())
    }
}

/// Returns whether these are a published message, and not the reply to a subscription.
fn is_message(items: &[Reply]) -> bool {
    let kind = items.first();
    [&b"message"[..], b"pmessage", b"smessage"]
        .iter()
        .any(|word| kind == Some(&Reply::Bytes(word.to_vec())))
}

/// Returns a line of the text protocol for words of a shell.
fn line_of(words: &[&str]) -> String {
    let quote = |word: &&str| {
        let plain = !word.is_empty()
            && !word.contains(|c: char| c.is_whitespace() || c == '"' || c == '\'' || c == '\\');
        if plain {
            return (*word).to_owned();
        }
        let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("\"{}\"", escaped.replace('\r', "\\r"))
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// Completes the first word of a line.
struct Names(Vec<String>);

impl Names {
    fn new(protocol: Protocol) -> Self {
        let mut names: Vec<String> = match protocol {
            Protocol::Resp => {
                forebay_cache::command::all().map(|row| row.name.to_uppercase()).collect()
            }
            Protocol::Text => TEXT_COMMANDS.iter().map(|&name| name.to_owned()).collect(),
        };
        names.sort_unstable();
        Self(names)
    }
}

impl Completer for Names {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = line.get(..at).unwrap_or_default().to_uppercase();
        let fitting = self.0.iter().filter(|name| name.starts_with(&typed));
        Ok((0, fitting.map(|name| format!("{name} ")).collect()))
    }
}

impl Hinter for Names {
    type Hint = String;
}

impl Highlighter for Names {}
impl Validator for Names {}
impl Helper for Names {}

#[cfg(test)]
mod tests {
    use super::line_of;

    #[test]
    fn words_of_a_shell_become_one_line_of_the_text_protocol() {
        assert_eq!(line_of(&["SET", "k", "a b"]), "SET k \"a b\"");
        assert_eq!(line_of(&["SET", "k", "", "it's", "\n"]), "SET k \"\" \"it's\" \"\\n\"");
    }
}
