//! Complete and partial requests, and hostile clients.

use proptest::prelude::*;

use super::*;

fn owned(args: &Args, input: &[u8]) -> Vec<Vec<u8>> {
    args.iter(input).map(<[u8]>::to_vec).collect()
}

/// All requests of `input`, and how it ends.
fn all(mut input: &[u8], limits: &Limits) -> (Vec<Vec<Vec<u8>>>, Result<usize, ProtocolError>) {
    let mut args = Args::new();
    let mut requests = Vec::new();
    loop {
        match parse(input, limits, &mut args) {
            Ok(Parsed::Incomplete { .. }) => return (requests, Ok(input.len())),
            Ok(Parsed::Request { consumed }) => {
                requests.push(owned(&args, input));
                input = &input[consumed..];
            }
            Ok(Parsed::Empty { consumed }) => input = &input[consumed..],
            Err(error) => return (requests, Err(error)),
        }
    }
}

/// As [`all`], with `input` arriving in pieces cut at `cuts`.
fn all_in_pieces(
    input: &[u8],
    cuts: &[usize],
    limits: &Limits,
) -> (Vec<Vec<Vec<u8>>>, Result<usize, ProtocolError>) {
    let (mut args, mut requests, mut buffer) = (Args::new(), Vec::new(), Vec::new());
    let mut from = 0;
    for &to in cuts.iter().chain([&input.len()]) {
        buffer.extend_from_slice(&input[from..to]);
        from = to;
        loop {
            match parse(&buffer, limits, &mut args) {
                Ok(Parsed::Incomplete { need }) => {
                    assert!(need == 0 || need > buffer.len(), "needs what it has");
                    break;
                }
                Ok(Parsed::Request { consumed }) => {
                    requests.push(owned(&args, &buffer));
                    buffer.drain(..consumed);
                }
                Ok(Parsed::Empty { consumed }) => drop(buffer.drain(..consumed)),
                Err(error) => return (requests, Err(error)),
            }
        }
    }
    (requests, Ok(buffer.len()))
}

fn encode(request: &[Vec<u8>]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", request.len()).into_bytes();
    for arg in request {
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn words(input: &str) -> Result<Vec<String>, ProtocolError> {
    let mut args = Args::new();
    parse(input.as_bytes(), &Limits::default(), &mut args)?;
    Ok(args.iter(input.as_bytes()).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect())
}

fn fault(input: &[u8]) -> String {
    parse(input, &Limits::default(), &mut Args::new()).unwrap_err().to_string()
}

#[test]
fn arguments_are_ranges_of_the_input() {
    let input = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\na\r\nb\r\n*1\r\n";
    let mut args = Args::new();
    let parsed = parse(input, &Limits::default(), &mut args).unwrap();
    assert_eq!(parsed, Parsed::Request { consumed: input.len() - 4 });
    assert_eq!(owned(&args, input), [b"SET".to_vec(), b"k".to_vec(), b"a\r\nb".to_vec()]);
    assert!(args.get(input, 3).is_empty());
}

#[test]
fn requests_for_nothing_are_passed_over() {
    for input in ["*0\r\n", "*-1\r\n", "\r\n", "\n", "  \t \r\n"] {
        let parsed = parse(input.as_bytes(), &Limits::default(), &mut Args::new()).unwrap();
        assert_eq!(parsed, Parsed::Empty { consumed: input.len() }, "{input:?}");
    }
}

#[test]
fn inline_commands_split_as_in_redis() {
    assert_eq!(words("GET key\r\n").unwrap(), ["GET", "key"]);
    assert_eq!(words("  GET\t key \n").unwrap(), ["GET", "key"]);
    assert_eq!(words("SET k \"a b\\n\\x41\\q\"\n").unwrap(), ["SET", "k", "a b\nAq"]);
    assert_eq!(words("SET k 'a \"\\'\\n'\r\n").unwrap(), ["SET", "k", "a \"'\\n"]);
    assert_eq!(words("SET k \"\" ''\r\n").unwrap(), ["SET", "k", "", ""]);
    assert_eq!(words("a\"b c\"\r\n").unwrap(), ["ab c"]);
    assert_eq!(words("\"\\xzz\"\n").unwrap(), ["xzz"]);
    for bad in ["\"a\n", "'a\n", "\"a\"b\n", "'a'b\n", "\"a\\\n"] {
        assert_eq!(words(bad).unwrap_err(), ProtocolError::UnbalancedQuotes, "{bad:?}");
    }
}

#[test]
fn what_is_refused_is_refused_however_it_is_cut() {
    let small = Limits { inline_size_max: 48, ..Limits::default() };
    let line = |size: usize| [&vec![b'x'; size], &b"\n"[..]].concat();
    // A length that begins with another byte than `$`, found by fuzzing.
    let other: &[u8] = b"*3\r\n$3\r\nSET\n$\r53\r";
    let inputs = [(line(48), false), (line(49), true), (line(90), true), (other.to_vec(), true)];
    for (input, refused) in inputs {
        let whole = all(&input, &small);
        assert_eq!(whole.1.is_err(), refused, "{}", input.escape_ascii());
        let cuts: Vec<usize> = (1..input.len()).collect();
        assert_eq!(all_in_pieces(&input, &cuts, &small), whole, "{}", input.escape_ascii());
    }
}

#[test]
fn faults_have_the_wording_of_redis() {
    let count = "Protocol error: invalid multibulk length";
    for input in ["*x\r\n", "*\r\n", "*+1\r\n", "*01\r\n", "* 1\r\n", "*99999999999999999999\r\n"] {
        assert_eq!(fault(input.as_bytes()), count, "{input:?}");
    }
    assert_eq!(fault(b"*1048577\r\n"), count);
    let length = "Protocol error: invalid bulk length";
    for input in ["$x", "$-1", "$", "$+1", "$536870913", "$00", "$9999999999999999999"] {
        assert_eq!(fault(format!("*1\r\n{input}\r\n").as_bytes()), length, "{input:?}");
    }
    assert_eq!(fault(b"*1\r\nfoo\r\n"), "Protocol error: expected '$', got 'f'");
    assert_eq!(fault(b"*2\r\n$1\r\na\r\n:1\r\n"), "Protocol error: expected '$', got ':'");
    assert_eq!(fault(b"\"\n"), "Protocol error: unbalanced quotes in request");
    let long = |head: &[u8]| [head, &vec![b'1'; 70_000]].concat();
    assert_eq!(fault(&long(b"*")), "Protocol error: too big mbulk count string");
    assert_eq!(fault(&long(b"*1\r\n$")), "Protocol error: too big bulk count string");
    assert_eq!(fault(&long(b"")), "Protocol error: too big inline request");
}

#[test]
fn little_is_taken_from_who_has_not_authenticated() {
    let limits = Limits { unauthenticated: true, ..Limits::default() };
    let fault = |input: &[u8]| parse(input, &limits, &mut Args::new()).unwrap_err().to_string();
    assert_eq!(fault(b"*11\r\n"), "Protocol error: unauthenticated multibulk length");
    assert_eq!(fault(b"*1\r\n$16385\r\n"), "Protocol error: unauthenticated bulk length");
    assert!(parse(b"*10\r\n$16384\r\n", &limits, &mut Args::new()).is_ok());
}

#[test]
fn announced_lengths_cost_no_memory() {
    let mut args = Args::new();
    let parsed = parse(b"*1048576\r\n$536870912\r\nx", &Limits::default(), &mut args).unwrap();
    assert_eq!(parsed, Parsed::Incomplete { need: 22 + 536_870_912 + 2 });
    assert!(args.bytes() < 1024);
}

#[test]
fn a_long_argument_is_not_looked_at_again_with_every_read() {
    let head = b"*2\r\n$3\r\nSET\r\n$1000000\r\n";
    let mut input = head.to_vec();
    let mut args = Args::new();
    let need = head.len() + 1_000_002;
    while input.len() < need {
        let parsed = parse(&input, &Limits::default(), &mut args).unwrap();
        assert_eq!(parsed, Parsed::Incomplete { need });
        input.resize((input.len() + 9_999).min(need), b'x');
    }
    let parsed = parse(&input, &Limits::default(), &mut args).unwrap();
    assert_eq!(parsed, Parsed::Request { consumed: need });
    assert_eq!(args.get(&input, 1).len(), 1_000_000);
}

#[test]
fn every_truncation_of_a_pipeline_is_incomplete() {
    let requests = [
        vec![b"SET".to_vec(), b"key".to_vec(), b"a\r\n*1\r\n".to_vec()],
        vec![b"PING".to_vec()],
        vec![b"MGET".to_vec(), Vec::new(), vec![b'x'; 300]],
    ];
    let input: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
    let mut ends = vec![0];
    for request in &requests {
        ends.push(ends[ends.len() - 1] + encode(request).len());
    }
    for cut in 0..=input.len() {
        let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
        let (found, rest) = all(&input[..cut], &Limits::default());
        assert_eq!(found, requests[..whole], "cut at {cut}");
        assert_eq!(rest, Ok(cut - ends[whole]), "cut at {cut}");
    }
}

/// Bytes that resemble the protocol more often than random bytes do.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        proptest::sample::select(vec![
            "*",
            "$",
            "\r\n",
            "\r",
            "\n",
            "*1\r\n",
            "*2\r\n",
            "$3\r\nfoo\r\n",
            "$0\r\n\r\n",
            "-1",
            "0",
            "\"",
            "'",
            "\\",
            "\\x4",
            " ",
            "GET k\r\n",
            "$5\r\nab",
            "*-1\r\n",
            "99999999999",
            "\"a b\" c\r\n",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic_and_pieces_equal_the_whole(
        input in hostile(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
        limits in prop_oneof![
            Just(Limits::default()),
            Just(Limits { args_max: 1, arg_size_max: 4, inline_size_max: 8, unauthenticated: true }),
        ],
    ) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        let (whole, whole_end) = all(&input, &limits);
        let (pieces, pieces_end) = all_in_pieces(&input, &cuts, &limits);
        if whole_end.is_ok() && pieces_end.is_ok() {
            prop_assert_eq!((whole, whole_end), (pieces, pieces_end));
        } else {
            // A request that is too long is refused when that is known: immediately, or with a
            // later piece.
            let count = whole.len().min(pieces.len());
            prop_assert_eq!(&whole[..count], &pieces[..count]);
        }
    }

    #[test]
    fn pipelines_are_read_back_however_they_arrive(
        requests in proptest::collection::vec(
            proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 1..5), 0..6),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..8),
    ) {
        let input: Vec<u8> = requests.iter().flat_map(|request| encode(request)).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        prop_assert_eq!(all_in_pieces(&input, &cuts, &Limits::default()), (requests, Ok(0)));
    }
}
