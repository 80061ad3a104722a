//! Messages of clients on several threads, as subscribers on several threads receive them.

use super::*;

const PUBLISHERS: usize = 4;
const SUBSCRIBERS: usize = 6;
const MESSAGES: usize = 300;
const CHANNELS: [&str; 2] = ["news", "gate"];

/// A message as a subscriber receives it; all have the same length.
fn message(channel: &str, text: &str) -> String {
    format!("*3\r\n$7\r\nmessage\r\n$4\r\n{channel}\r\n$6\r\n{text}\r\n")
}

/// Publishes to both channels in turn, some messages at once and some one by one.
fn publish(server: &Server, publisher: usize) {
    let mut stream = connect(server.resp_address());
    for first in (0..MESSAGES).step_by(10) {
        let lines = |numbers: std::ops::Range<usize>| -> String {
            let lines = numbers.flat_map(|number| {
                CHANNELS.map(|channel| format!("PUBLISH {channel} {publisher}:{number:04}\r\n"))
            });
            lines.collect()
        };
        let answer = format!(":{SUBSCRIBERS}\r\n");
        ask(&mut stream, &lines(first..first + 5), &answer.repeat(10));
        for number in first + 5..first + 10 {
            ask(&mut stream, &lines(number..number + 1), &answer.repeat(2));
        }
    }
}

/// Receives all messages; returns those of each channel in the order of arrival.
fn receive(stream: &mut TcpStream) -> [Vec<String>; 2] {
    let mut received = [Vec::new(), Vec::new()];
    let mut bytes = vec![0; message("news", "0:0000").len()];
    for _ in 0..PUBLISHERS * MESSAGES * CHANNELS.len() {
        stream.read_exact(&mut bytes).unwrap();
        let text = String::from_utf8(bytes.clone()).unwrap();
        let words: Vec<&str> = text.split("\r\n").collect();
        let channel = CHANNELS.iter().position(|channel| *channel == words[4]).unwrap();
        received[channel].push(words[6].to_owned());
    }
    received
}

#[test]
fn every_subscriber_receives_the_messages_of_a_channel_in_one_order() {
    for way in WAYS {
        let server = start_with(way, |options| {
            options.threads = 4;
            options.threads_min = 4;
        });
        let mut subscribers: Vec<TcpStream> = (0..SUBSCRIBERS)
            .map(|_| {
                let mut stream = connect(server.resp_address());
                let confirmed = CHANNELS.iter().zip(1..).map(|(channel, count)| {
                    format!("*3\r\n$9\r\nsubscribe\r\n$4\r\n{channel}\r\n:{count}\r\n")
                });
                let confirmed: String = confirmed.collect();
                ask(&mut stream, "SUBSCRIBE news gate\r\n", &confirmed);
                stream
            })
            .collect();
        let received: Vec<[Vec<String>; 2]> = std::thread::scope(|scope| {
            let readers: Vec<_> =
                subscribers.iter_mut().map(|stream| scope.spawn(move || receive(stream))).collect();
            for publisher in 0..PUBLISHERS {
                let server = &server;
                scope.spawn(move || publish(server, publisher));
            }
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        let [first, others @ ..] = received.as_slice() else { panic!("no subscriber") };
        assert!(others.iter().all(|other| other == first), "the orders differ: {way:?}");
        for messages in first {
            for publisher in 0..PUBLISHERS {
                let own = messages.iter().filter(|text| text.starts_with(&format!("{publisher}:")));
                let expected = (0..MESSAGES).map(|number| format!("{publisher}:{number:04}"));
                assert!(own.cloned().eq(expected), "the messages of publisher {publisher}");
            }
        }
    }
}
