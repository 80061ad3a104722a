//! Starting and stopping the process.

use std::io::{Read as _, Write as _};

use crate::support::{Answer, Server, run, stderr};

#[test]
fn both_signals_stop_an_idle_server_cleanly() {
    for name in ["INT", "TERM"] {
        let dir = tempfile::tempdir().unwrap();
        let server = Server::start(&dir, &[]);
        let mut idle = server.connect();
        server.signal(name);
        let mut rest = Vec::new();
        idle.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"", "an idle connection is closed");
        assert_eq!(server.wait(), Some(0), "SIG{name}");
    }
}

#[test]
fn a_request_in_flight_at_the_stop_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    // Half a head is a request in progress: the server owes it a response, though it accepts no new
    // work.
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n").unwrap();
    server.until_read(&stream);
    server.signal("TERM");
    server.until_not_listening();
    stream.write_all(b"\r\n").unwrap();
    let answer = Answer::read(&mut stream);
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("connection: close"), "{}", answer.head);
    assert_eq!(server.wait(), Some(0));
}

#[test]
fn an_upload_in_flight_at_the_stop_is_finished_and_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    let path = "/v1/files/notes/hello.txt";
    let head = format!("PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n");
    // The server asks for the body once it has accepted the request.
    stream.write_all(format!("{head}expect: 100-continue\r\n\r\n").as_bytes()).unwrap();
    let mut asked = [0; b"HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut asked).unwrap();
    assert!(asked.starts_with(b"HTTP/1.1 100 "), "{}", asked.escape_ascii());
    server.signal("TERM");
    server.until_not_listening();
    stream.write_all(b"helloworld").unwrap();
    let answer = Answer::read(&mut stream);
    assert!((200..300).contains(&answer.status), "{answer:?}");
    assert_eq!(server.wait(), Some(0));
    let server = Server::start(&dir, &[]);
    assert_eq!(server.get(path).body, "helloworld");
}

#[test]
fn a_request_that_does_not_finish_is_cut_at_the_limit_and_the_exit_code_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--set", "server.shutdown_limit=100ms"]);
    let mut stream = server.connect();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    server.until_read(&stream);
    server.signal("TERM");
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap_or_default();
    assert_eq!(server.wait(), Some(4));
}

#[test]
fn a_second_signal_stops_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let mut stream = server.connect();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost:").unwrap();
    server.until_read(&stream);
    server.signal("TERM");
    server.until_not_listening();
    server.signal("INT");
    assert_eq!(server.wait(), Some(130));
}

#[test]
fn an_address_in_use_is_a_start_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &[]);
    let address = server.address.to_string();
    let output = run(&dir, &["serve", "--data", "other", "--listen", &address]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains(&address), "{}", stderr(&output));
}

#[test]
fn logs_off_a_terminal_are_json_lines_and_carry_client_text_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&dir, &["--log", "debug"]);
    server.get("/v1/%0a\u{202e}");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().any(|line| line["message"] == "ready"));
    assert!(lines.iter().any(|line| line["message"] == "stopped"));
}

/// Every file and directory below `dir` that another user may access, with its mode.
fn open_to_others(dir: &std::path::Path) -> Vec<String> {
    use std::os::unix::fs::PermissionsExt as _;
    let entries = walkdir::WalkDir::new(dir).into_iter().map(Result::unwrap);
    entries
        .filter_map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            let expected = if entry.file_type().is_dir() { 0o700 } else { 0o600 };
            (mode != expected).then(|| format!("{mode:o} {}", entry.path().display()))
        })
        .collect()
}

#[test]
fn no_other_user_can_read_the_data_whatever_the_umask() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start_with(
        &dir,
        &["--set", "cache.resp=127.0.0.1:0", "--set", "cache.text="],
        |command| {
            use std::os::unix::process::CommandExt as _;
            let program = command.get_program().to_owned();
            let args: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", "umask 000; exec \"$0\" \"$@\""]).arg(program).args(args);
            shell.current_dir(dir.path()).arg0("sh");
            for (name, value) in command.get_envs() {
                match value {
                    Some(value) => shell.env(name, value),
                    None => shell.env_remove(name),
                };
            }
            shell.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
            shell.stderr(std::fs::File::create(dir.path().join("log")).unwrap());
            *command = shell;
        },
    );
    let large = "x".repeat(200_000);
    for (method, path, body) in [
        ("PUT", "/v1/files/n/small", "hello"),
        ("PUT", "/v1/files/n/large", &*large),
        ("POST", "/v1/documents/n", "{\"a\":1}"),
        ("POST", "/v1/events", "{\"a\":1}"),
        ("POST", "/v1/inventories/own", "{\"from\":\"forebay:blobs\"}"),
    ] {
        let mut stream = server.connect();
        let length = format!("content-length: {}\r\n", body.len());
        crate::support::send(&mut stream, method, path, &length);
        stream.write_all(body.as_bytes()).unwrap();
        let answer = Answer::read(&mut stream);
        assert!(answer.status < 300, "{path}: {answer:?}");
    }
    assert_eq!(server.get("/v1/files").status, 200);
    crate::support::run_ok(&dir, &["key", "new", "--name", "k"]);
    let data = dir.path().join("forebay-data");
    assert_eq!(open_to_others(&data), Vec::<String>::new());
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    assert_eq!(open_to_others(&data), Vec::<String>::new());
}

#[test]
fn a_used_port_is_reported_with_its_setting_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap().to_string();
    for setting in ["server.listen", "cache.resp", "cache.text"] {
        let mut args = vec!["serve".to_owned()];
        for listener in ["server.listen", "cache.resp", "cache.text"] {
            let address = if listener == setting { &*taken } else { "127.0.0.1:0" };
            args.extend(["--set".to_owned(), format!("{listener}={address}")]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let output = run(&dir, &args);
        assert_eq!(output.status.code(), Some(3));
        let text = stderr(&output);
        let id = format!("process {}", std::process::id());
        for part in [setting, "is in use", &id, &format!("--set {setting}=")] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!dir.path().join("forebay-data").exists(), "nothing was created");
    }
}
