//! Peers with valid keys that break one rule: the connection ends with the code that RFC 9000
//! prescribes, and the endpoint's other connections continue.

use super::*;
use crate::error::ConnectionError;

/// Minimum bytes of frames in a packet of [`send`].
const PACKET_LEN: usize = 1000;

/// A variable-length integer (RFC 9000 §16) of eight bytes.
fn number(value: u64) -> [u8; 8] {
    (value | 3 << 62).to_be_bytes()
}

/// A frame: its type and integers.
pub(super) fn frame(kind: u8, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend(numbers.iter().flat_map(|&value| number(value)));
    bytes
}

/// A STREAM frame with offset and length; `fin` ends the stream.
pub(super) fn stream(id: u64, offset: u64, data: &[u8], fin: bool) -> Vec<u8> {
    let mut bytes = frame(0x0e | u8::from(fin), &[id, offset, data.len() as u64]);
    bytes.extend_from_slice(data);
    bytes
}

/// A `NEW_CONNECTION_ID` frame.
fn new_id(sequence: u64, retire_prior_to: u64) -> Vec<u8> {
    let mut bytes = frame(0x18, &[sequence, retire_prior_to]);
    bytes.push(8);
    bytes.extend_from_slice(&[sequence as u8; 8 + 16]);
    bytes
}

/// Makes an end send these frames in one packet, and the other receive it.
pub(super) fn send(net: &mut Net, from: usize, frames: &[u8]) {
    send_short(net, from, frames, PACKET_LEN);
}

/// The same in a packet with space for `len` bytes of frames.
fn send_short(net: &mut Net, from: usize, frames: &[u8], len: usize) {
    // A packet that is long enough; its contents are replaced.
    let filling = Bytes::from(vec![0; len]);
    net.connection(from).unwrap().send_datagram(filling, true).unwrap();
    tamper::set_frames(Some(frames));
    let mut wire = VecDeque::new();
    net.sent(from, &mut wire);
    tamper::set_frames(None);
    let source = net.ends[from].address;
    for (to, bytes) in wire {
        net.ends[to].receive(net.now, source, &bytes);
    }
}

/// The code with which an end closed its connection.
pub(super) fn verdict(net: &mut Net, end: usize) -> Option<u64> {
    let mut code = None;
    while let Some(event) = net.ends[end].core.next_event() {
        if let Event::Lost(_, ConnectionError::Transport { code: given, .. }) = event {
            code = Some(given);
        }
    }
    code
}

/// The client sends this; the code with which the server ends the connection.
pub(super) fn judged(frames: &[&[u8]]) -> Option<u64> {
    let mut net = Net::new();
    net.connect();
    net.run(|_| {});
    let mut code = None;
    for frames in frames {
        send(&mut net, CLIENT, frames);
        code = code.or(verdict(&mut net, SERVER));
    }
    net.end();
    code
}

pub(super) const FLOW_CONTROL: u64 = 0x3;
pub(super) const STREAM_LIMIT: u64 = 0x4;
pub(super) const STREAM_STATE: u64 = 0x5;
pub(super) const FINAL_SIZE: u64 = 0x6;
pub(super) const FRAME_ENCODING: u64 = 0x7;
const CONNECTION_ID_LIMIT: u64 = 0x9;
const VIOLATION: u64 = 0xa;
const CRYPTO_BUFFER: u64 = 0xd;
/// A TLS alert: `unexpected_message`.
const UNEXPECTED: u64 = 0x10a;

/// The default stream window.
pub(super) const STREAM_WINDOW: u64 = crate::limits::STREAM_RECEIVE_WINDOW;
pub(super) const STREAMS: u64 = crate::limits::STREAMS_MAX;

/// What the client sends, with a name, and the code for it.
type Case<'a> = (&'a str, &'a [&'a [u8]], u64);

fn check(cases: &[Case<'_>]) {
    for (name, frames, code) in cases {
        assert_eq!(judged(frames), Some(*code), "{name}");
    }
}

#[test]
fn stream_limit_violations_close_with_the_rfc_code() {
    let last = STREAM_WINDOW - 1;
    let both = [stream(0, last, b"x", false), stream(4, last, b"x", false)].concat();
    let ended = stream(0, 0, b"ab", true);
    check(&[
        ("a stream past the limit", &[&stream(STREAMS * 4, 0, b"x", false)], STREAM_LIMIT),
        ("a unidirectional one", &[&stream(STREAMS * 4 + 2, 0, b"x", false)], STREAM_LIMIT),
        ("a reset of one past the limit", &[&frame(0x04, &[STREAMS * 4, 0, 0])], STREAM_LIMIT),
        ("bytes past a stream's window", &[&stream(0, STREAM_WINDOW, b"x", false)], FLOW_CONTROL),
        ("bytes past the connection's window", &[&both], FLOW_CONTROL),
        ("a reset past the window", &[&frame(0x04, &[0, 0, STREAM_WINDOW + 1])], FLOW_CONTROL),
        ("bytes past the end", &[&ended, &stream(0, 2, b"c", false)], FINAL_SIZE),
        ("another end", &[&ended, &frame(0x04, &[0, 0, 7])], FINAL_SIZE),
        (
            // The engine does not look at a STREAM frame's end so.
            "a reset before what was sent",
            &[&stream(0, 9, b"x", false), &frame(0x04, &[0, 0, 1])],
            FINAL_SIZE,
        ),
        ("a stream on which only the server sends", &[&stream(3, 0, b"x", false)], STREAM_STATE),
        ("one that the server has not opened", &[&stream(1, 0, b"x", false)], STREAM_STATE),
        ("credit for one on which only the client sends", &[&frame(0x11, &[2, 9])], STREAM_STATE),
        ("a stop of one", &[&frame(0x05, &[2, 9])], STREAM_STATE),
        ("a stop of one that the server has not opened", &[&frame(0x05, &[1, 9])], STREAM_STATE),
        ("credit for one that it has not opened", &[&frame(0x11, &[1, 9])], STREAM_STATE),
        ("a reset of one that it has not opened", &[&frame(0x04, &[1, 0, 0])], STREAM_STATE),
        ("a reset of one on which only it sends", &[&frame(0x04, &[3, 0, 0])], STREAM_STATE),
        ("a lack of credit on such a stream", &[&frame(0x15, &[3, 9])], STREAM_STATE),
        ("credit for a stream past the limit", &[&frame(0x11, &[STREAMS * 4, 9])], STREAM_LIMIT),
        ("another end in an empty frame", &[&ended, &stream(0, 1, b"", true)], FINAL_SIZE),
    ]);
}

#[test]
fn other_violations_close_with_the_rfc_code() {
    check(&[
        ("more streams than there are numbers", &[&frame(0x12, &[(1 << 60) + 1])], FRAME_ENCODING),
        ("more unidirectional ones", &[&frame(0x13, &[(1 << 60) + 1])], FRAME_ENCODING),
        ("a lack of more than there are", &[&frame(0x16, &[(1 << 60) + 1])], FRAME_ENCODING),
        ("a lack of more unidirectional ones", &[&frame(0x17, &[(1 << 60) + 1])], FRAME_ENCODING),
        ("an unknown frame type", &[&[0x40, 0x21]], FRAME_ENCODING),
        ("a frame that is longer than its packet", &[&frame(0x0e, &[0, 0, 9999])], FRAME_ENCODING),
        ("an id that retires later ones", &[&new_id(1, 2)], FRAME_ENCODING),
        ("the retirement of an id that was not issued", &[&frame(0x19, &[1000])], VIOLATION),
        ("a frame that only servers send", &[&[0x1e]], VIOLATION),
        ("a server's token", &[&[&frame(0x07, &[3])[..], b"abc"].concat()], VIOLATION),
        (
            "an acknowledgement of a packet that was not sent",
            &[&frame(0x02, &[1 << 20, 0, 0, 0])],
            VIOLATION,
        ),
        (
            "handshake bytes far ahead",
            &[&[&frame(0x06, &[1 << 20, 1])[..], b"x"].concat()],
            CRYPTO_BUFFER,
        ),
        (
            // RFC 9001 §6.
            "a KeyUpdate of TLS",
            &[&[&frame(0x06, &[0, 5])[..], &[24, 0, 0, 1, 0]].concat()],
            UNEXPECTED,
        ),
    ]);
}

#[test]
fn excess_connection_ids_close_the_connection() {
    let ids: Vec<u8> = (2..12).flat_map(|sequence| new_id(sequence, 0)).collect();
    assert_eq!(judged(&[&ids]), Some(CONNECTION_ID_LIMIT));
}

#[test]
fn client_closes_on_server_violations() {
    for (frames, code) in [
        (stream(0, 0, b"x", false), STREAM_STATE),
        (stream(STREAMS * 4 + 1, 0, b"x", false), STREAM_LIMIT),
        (stream(3, STREAM_WINDOW, b"x", false), FLOW_CONTROL),
        (frame(0x02, &[1 << 20, 0, 0, 0]), VIOLATION),
    ] {
        let mut net = Net::new();
        net.connect();
        net.run(|_| {});
        send(&mut net, SERVER, &frames);
        assert_eq!(verdict(&mut net, CLIENT), Some(code));
        net.end();
    }
}

#[test]
fn violation_leaves_other_connections_open() {
    let mut net = Net::new();
    net.connect();
    net.run(|_| {});
    let first = [CLIENT, SERVER].map(|end| net.ends[end].connection);
    net.connect();
    net.run(|_| {});
    assert_ne!(first[SERVER], net.ends[SERVER].connection);
    send(&mut net, CLIENT, &stream(STREAMS * 4, 0, b"x", false));
    assert_eq!(verdict(&mut net, SERVER), Some(STREAM_LIMIT));
    for end in [CLIENT, SERVER] {
        net.ends[end].connection = first[end];
    }
    let mut connection = net.connection(CLIENT).unwrap();
    let stream = connection.open(Direction::Bi).unwrap();
    connection.write(stream, b"question").unwrap();
    connection.finish(stream).unwrap();
    net.run(|_| {});
    // The server answers streams that it has read to the end.
    assert_eq!(net.connection(CLIENT).unwrap().stats().stream_frames_received, 1);
    assert_eq!(verdict(&mut net, CLIENT), None);
    net.end();
}

#[test]
fn path_challenge_flood_is_answered_within_received_bytes() {
    let mut net = Net::new();
    net.connect();
    net.run(|_| {});
    let challenges: Vec<u8> = (0..100).flat_map(|n| [0x1a, n, 1, 2, 3, 4, 5, 6, 7]).collect();
    let mut sent_len = 0;
    for _ in 0..100 {
        send(&mut net, CLIENT, &challenges);
        let mut wire = VecDeque::new();
        net.sent(SERVER, &mut wire);
        sent_len += wire.iter().map(|(_, bytes)| bytes.len()).sum::<usize>();
    }
    assert_eq!(verdict(&mut net, SERVER), None);
    assert!(sent_len < 100 * PACKET_LEN * 3, "{sent_len} bytes for 100 packets");
    net.end();
}

#[test]
fn flood_of_addresses_is_answered_within_received_bytes() {
    let mut net = Net::new();
    net.connect();
    net.run(|_| {});
    let (mut received_len, mut sent_len) = (0, 0);
    let mut wire = VecDeque::new();
    for n in 0..6000u32 {
        // Only packets with more than probes move a connection.
        net.connection(CLIENT).unwrap().ping();
        net.sent(CLIENT, &mut wire);
        let ip = (0x7f00_0000 + n / 7).to_be_bytes();
        let source = SocketAddr::from((ip, 1000 + n as u16 % 7));
        for (_, bytes) in wire.drain(..) {
            received_len += bytes.len();
            net.ends[SERVER].receive(net.now, source, &bytes);
        }
        net.sent(SERVER, &mut wire);
        let server = net.ends[SERVER].address;
        for (_, bytes) in wire.drain(..) {
            sent_len += bytes.len();
            net.ends[CLIENT].receive(net.now, server, &bytes);
        }
        net.now += Duration::from_micros(10);
    }
    assert_eq!((verdict(&mut net, SERVER), verdict(&mut net, CLIENT)), (None, None));
    assert!(sent_len <= 3 * received_len, "{sent_len} bytes for {received_len}");
    assert!(received_len > 6000 * 20, "the client was stopped: {received_len} bytes");
    net.end();
}

#[test]
fn sparse_chunks_do_not_pin_their_packets() {
    let mut net = Net::new();
    net.connect();
    net.run(|_| {});
    let before = resident_kib();
    // One byte in every thousand, each in a packet whose buffer would otherwise be kept: 16 MiB.
    for piece in 0..STREAM_WINDOW / 1000 {
        send(&mut net, CLIENT, &stream(0, piece * 1000 + 1, b"x", false));
        assert_eq!(verdict(&mut net, SERVER), None);
    }
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 8 << 10, "{grown} KiB for 16 KiB of pieces");
    net.end();
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The client retires ids, `each` in a packet, of a server that may send nothing; how the server ends the
/// connection, and how many packets that took.
fn retired_by(each: u64) -> (Option<u64>, u64) {
    let mut net = Net::new();
    net.connect();
    net.run(|_| {});
    let mut connection = net.connection(SERVER).unwrap();
    let stream = connection.open(Direction::Uni).unwrap();
    connection.write(stream, &vec![0; 100_000]).unwrap();
    net.sent(SERVER, &mut VecDeque::new());
    for packet in 0..90 {
        // It uses that of the handshake.
        let first = 1 + packet * each;
        let frames: Vec<u8> = (first..first + each).flat_map(|id| frame(0x19, &[id])).collect();
        send_short(&mut net, CLIENT, &frames, 100);
        net.sent(SERVER, &mut VecDeque::new());
        if let Some(code) = verdict(&mut net, SERVER) {
            net.end();
            return (Some(code), packet);
        }
    }
    net.end();
    (None, 90)
}

#[test]
fn retirement_of_ids_that_were_not_sent_closes_the_connection() {
    for each in [1, 2, 4] {
        let (code, packets) = retired_by(each);
        assert_eq!(code, Some(VIOLATION), "{each} in a packet");
        assert!(packets * each < 30, "{packets} packets of {each}");
    }
}

#[test]
fn retirement_of_each_id_that_was_sent_is_allowed() {
    let mut net = Net::new();
    net.connect();
    net.run(|_| {});
    for move_count in 0..200 {
        // The client retires the id that it used.
        assert!(net.connection(CLIENT).unwrap().local_address_changed());
        net.run(|_| {});
        assert_eq!(verdict(&mut net, SERVER), None, "after {move_count} moves");
        assert_eq!(net.ends[SERVER].core.connection_count(), 1, "after {move_count} moves");
    }
    net.end();
}
