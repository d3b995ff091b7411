//! A peer that breaks the rules of RFC 9114, 9204, 9218, 9220 and 9297, one at a time: the right code for each, wherever
//! the bytes are cut.
#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use ringloop_h3::{Code, Config, Event, Role, Settings};

/// How a connection answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    /// It is to be closed.
    Close(Code),
    /// One stream is reset or stopped.
    Fail(Code),
    /// No violation.
    Nothing,
}

use Act::{Datagram, End, Reset, Send, Stop};
use Answer::{Close, Fail, Nothing};

fn answer(role: Role, config: &Config, acts: &[Act], len: usize) -> Answer {
    let mut connection = connection(role, config.clone());
    if role == Role::Client {
        for stream in [0, 4] {
            let method = if stream == 0 { "GET" } else { "HEAD" };
            let parts = request_parts(method, "https://example.org/");
            let sent = connection.send_request(ringloop_h3::StreamId(stream), &parts, true);
            sent.unwrap();
        }
    }
    for act in acts {
        if let Err(error) = perform(&mut connection, act, len) {
            assert_eq!(connection.receive_datagram(vec![0].into()), Err(error));
            return Close(error.code);
        }
    }
    for event in events(&mut connection) {
        if let Event::Failed { code, .. } = event {
            return Fail(code);
        }
    }
    Nothing
}

fn check(role: Role, cases: Vec<(&str, Vec<Act>, Answer)>) {
    check_with(role, &full_config(), cases);
}

fn check_with(role: Role, config: &Config, cases: Vec<(&str, Vec<Act>, Answer)>) {
    for (name, acts, expected) in cases {
        for len in [usize::MAX, 1, 2, 3, 7] {
            assert_eq!(answer(role, config, &acts, len), expected, "{name}, by {len}");
        }
    }
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

fn with_settings(rest: &[u8]) -> Vec<u8> {
    joined(&[&control(&[]), rest])
}

#[test]
#[rustfmt::skip]
fn frames_of_a_request_stream() {
    let unexpected = Close(Code::H3_FRAME_UNEXPECTED);
    let data = frame(DATA, b"x");
    let trailers = headers(&[("x", "y")]);
    let request = |more: &[&[u8]]| joined(&[&get(), &more.concat()]);
    let mut cases = vec![
        ("DATA before HEADERS", vec![Send(0, data.clone())], unexpected),
        ("DATA after trailers", vec![Send(0, request(&[&trailers, &data]))], unexpected),
        ("HEADERS after trailers", vec![Send(0, request(&[&trailers, &trailers]))], unexpected),
        ("a frame of unknown type before HEADERS", vec![End(0, joined(&[&frame(0x21, b"abc"), &get()]))], Nothing),
        ("HEADERS is truncated", vec![End(0, vec![1, 5, 0, 0])], Close(Code::H3_FRAME_ERROR)),
        ("a length is truncated", vec![End(0, vec![1, 0x40])], Close(Code::H3_FRAME_ERROR)),
        ("DATA is truncated", vec![End(0, request(&[&[0, 2, 0]]))], Close(Code::H3_FRAME_ERROR)),
        ("an unknown frame is truncated", vec![End(0, request(&[&[0x21, 2, 0]]))], Close(Code::H3_FRAME_ERROR)),
        ("a stream without anything", vec![End(0, vec![])], Fail(Code::H3_REQUEST_INCOMPLETE)),
        ("a stream with an unknown frame alone", vec![End(0, frame(0x21, b""))], Fail(Code::H3_REQUEST_INCOMPLETE)),
        ("HEADERS after CONNECT",
            vec![Send(0, joined(&[&headers(&[(":method", "CONNECT"), (":authority", "a:1")]), &trailers]))], unexpected),
    ];
    for (name, kind) in [
        ("CANCEL_PUSH", CANCEL_PUSH),
        ("SETTINGS", SETTINGS),
        ("GOAWAY", GOAWAY),
        ("MAX_PUSH_ID", MAX_PUSH_ID),
        ("PUSH_PROMISE of a client", PUSH_PROMISE),
        ("PRIORITY_UPDATE", PRIORITY_UPDATE),
        ("PRIORITY_UPDATE of a push", PRIORITY_UPDATE + 1),
        ("HTTP/2's PRIORITY", 0x2),
        ("HTTP/2's PING", 0x6),
        ("HTTP/2's WINDOW_UPDATE", 0x8),
        ("HTTP/2's CONTINUATION", 0x9),
    ] {
        cases.push((
            name,
            vec![Send(0, request(&[&frame(kind, &[0])]))],
            unexpected,
        ));
    }
    check(Role::Server, cases);
}

#[test]
#[rustfmt::skip]
fn control_stream() {
    let unexpected = Close(Code::H3_FRAME_UNEXPECTED);
    let id_error = Close(Code::H3_ID_ERROR);
    let frame_error = Close(Code::H3_FRAME_ERROR);
    let mut cases = vec![
        ("no SETTINGS", vec![Send(2, joined(&[&[0], &frame(MAX_PUSH_ID, &[0])]))], Close(Code::H3_MISSING_SETTINGS)),
        ("an unknown frame before SETTINGS", vec![Send(2, joined(&[&[0], &frame(0x21, &[0])]))], Close(Code::H3_MISSING_SETTINGS)),
        ("DATA before SETTINGS", vec![Send(2, joined(&[&[0], &frame(DATA, &[0])]))], Close(Code::H3_MISSING_SETTINGS)),
        ("an unknown frame", vec![Send(2, with_settings(&frame(0x21, &[0; 99])))], Nothing),
        ("a second control stream", vec![Send(2, vec![0]), Send(6, vec![0])], Close(Code::H3_STREAM_CREATION_ERROR)),
        ("the control stream ends", vec![End(2, control(&[]))], Close(Code::H3_CLOSED_CRITICAL_STREAM)),
        ("the control stream is reset", vec![Send(2, control(&[])), Reset(2)], Close(Code::H3_CLOSED_CRITICAL_STREAM)),
        ("our control stream is stopped", vec![Stop(3)], Close(Code::H3_CLOSED_CRITICAL_STREAM)),
        ("MAX_PUSH_ID is reduced",
            vec![Send(2, with_settings(&joined(&[&frame(MAX_PUSH_ID, &[5]), &frame(MAX_PUSH_ID, &[4])])))], id_error),
        ("MAX_PUSH_ID twice", vec![Send(2, with_settings(&joined(&[&frame(MAX_PUSH_ID, &[5]), &frame(MAX_PUSH_ID, &[5])])))], Nothing),
        ("CANCEL_PUSH of an unknown push", vec![Send(2, with_settings(&frame(CANCEL_PUSH, &[0])))], id_error),
        ("GOAWAY with a larger push id", vec![Send(2, with_settings(&joined(&[&frame(GOAWAY, &[1]), &frame(GOAWAY, &[2])])))], id_error),
        ("an empty GOAWAY", vec![Send(2, with_settings(&frame(GOAWAY, &[])))], frame_error),
        ("GOAWAY with a rest", vec![Send(2, with_settings(&frame(GOAWAY, &[0, 0])))], frame_error),
        ("GOAWAY of nine bytes", vec![Send(2, with_settings(&frame(GOAWAY, &[0; 9])))], frame_error),
        ("MAX_PUSH_ID that is truncated", vec![Send(2, with_settings(&frame(MAX_PUSH_ID, &[0x40])))], frame_error),
        ("a priority of a server's stream", vec![Send(2, with_settings(&frame(PRIORITY_UPDATE, &[1])))], id_error),
        ("a priority of a unidirectional stream", vec![Send(2, with_settings(&frame(PRIORITY_UPDATE, &[2])))], id_error),
        ("a priority of a push", vec![Send(2, with_settings(&frame(PRIORITY_UPDATE + 1, &[0])))], id_error),
        ("a priority of nothing", vec![Send(2, with_settings(&frame(PRIORITY_UPDATE, &[])))], frame_error),
        ("a priority of a later request", vec![Send(2, with_settings(&frame(PRIORITY_UPDATE, b"\x08u=0")))], Nothing),
        ("a long PRIORITY_UPDATE", vec![Send(2, with_settings(&frame(PRIORITY_UPDATE, &[0; 5000])))], Close(Code::H3_EXCESSIVE_LOAD)),
        ("a push stream of a client", vec![Send(6, vec![1, 0])], Close(Code::H3_STREAM_CREATION_ERROR)),
        ("a stream of unknown type", vec![Send(6, vec![0x21, 0, 0])], Nothing),
        ("a stream that ends before its type", vec![End(6, vec![0x40]), Reset(10)], Nothing),
    ];
    for (name, kind) in [
        ("SETTINGS twice", SETTINGS),
        ("DATA", DATA),
        ("HEADERS", HEADERS),
        ("PUSH_PROMISE", PUSH_PROMISE),
        ("HTTP/2's PRIORITY", 0x2),
        ("HTTP/2's PING", 0x6),
        ("HTTP/2's WINDOW_UPDATE", 0x8),
        ("HTTP/2's CONTINUATION", 0x9),
    ] {
        cases.push((
            name,
            vec![Send(2, with_settings(&frame(kind, &[])))],
            unexpected,
        ));
    }
    check(Role::Server, cases);
}

#[test]
#[rustfmt::skip]
fn settings() {
    let wrong = Close(Code::H3_SETTINGS_ERROR);
    let mut cases = vec![
        ("a setting twice", vec![Send(2, control(&[6, 1, 6, 1]))], wrong),
        ("an unknown setting twice", vec![Send(2, control(&[0x21, 1, 0x21, 2]))], wrong),
        ("an unknown setting", vec![Send(2, control(&[0x21, 1]))], Nothing),
        ("ENABLE_CONNECT_PROTOCOL is 2", vec![Send(2, control(&[8, 2]))], wrong),
        ("H3_DATAGRAM is 2", vec![Send(2, control(&[0x33, 2]))], wrong),
        ("SETTINGS is truncated", vec![Send(2, control(&[6]))], Close(Code::H3_FRAME_ERROR)),
        ("a value is truncated", vec![Send(2, joined(&[&[0], &frame(SETTINGS, &[6, 0x40])]))], Close(Code::H3_FRAME_ERROR)),
        ("long SETTINGS", vec![Send(2, joined(&[&[0], &frame(SETTINGS, &[0; 5000])]))], Close(Code::H3_EXCESSIVE_LOAD)),
    ];
    let many: Vec<u64> = (0..65).flat_map(|index| [0x1000 + index, 0]).collect();
    cases.push((
        "many settings",
        vec![Send(2, control(&many))],
        Close(Code::H3_EXCESSIVE_LOAD),
    ));
    for (name, id) in [("0x0", 0), ("0x2", 2), ("0x3", 3), ("0x4", 4), ("0x5", 5)] {
        cases.push((name, vec![Send(2, control(&[id, 0]))], wrong));
    }
    check(Role::Server, cases);
}

#[test]
#[rustfmt::skip]
fn messages_of_a_client() {
    let request = |fields: &[(&str, &str)]| vec![Send(0, headers(fields))];
    let with = |name, value| vec![Send(0, get_with(&[(name, value)]))];
    let (method, scheme) = ((":method", "GET"), (":scheme", "https"));
    let (authority, path) = ((":authority", "a"), (":path", "/"));
    let (connect, protocol) = ((":method", "CONNECT"), (":protocol", "websocket"));
    let body = |len: &str, data: &[u8]| {
        let more = [("content-length", len)];
        vec![End(0, joined(&[&get_with(&more), &frame(DATA, data)]))]
    };
    let malformed: Vec<(&str, Vec<Act>)> = vec![
        ("no fields", request(&[])),
        ("no :method", request(&[scheme, authority, path])),
        ("no :scheme", request(&[method, authority, path])),
        ("no :path", request(&[method, scheme, authority])),
        ("no :authority", request(&[method, scheme, path])),
        ("an empty :path", request(&[method, scheme, authority, (":path", "")])),
        ("an empty :authority", request(&[method, scheme, (":authority", ""), path])),
        ("a :path without slash", request(&[method, scheme, authority, (":path", "a")])),
        ("a :path of * for GET", request(&[method, scheme, authority, (":path", "*")])),
        ("a fragment", request(&[method, scheme, authority, (":path", "/a#b")])),
        ("user information", request(&[method, scheme, (":authority", "u:p@a"), path])),
        ("a :method that is no token", request(&[(":method", "G T"), scheme, authority, path])),
        ("an empty :scheme", request(&[method, (":scheme", ""), authority, path])),
        (":method twice", request(&[method, method, scheme, authority, path])),
        (":path twice", request(&[method, scheme, authority, path, path])),
        (":status in a request", request(&[method, scheme, authority, path, (":status", "200")])),
        ("an unknown pseudo-header field", request(&[method, scheme, authority, path, (":x", "y")])),
        ("a pseudo-header field after regular fields", request(&[method, scheme, authority, ("x", "y"), path])),
        ("a field name in upper case", with("X-Upper", "y")),
        ("an empty field name", with("", "y")),
        ("a field name with a space", with("x y", "y")),
        ("a line feed in a value", with("x", "a\nb")),
        ("a carriage return in a value", with("x", "a\rb")),
        ("NUL in a value", with("x", "a\0b")),
        ("a space before a value", with("x", " a")),
        ("a tab behind a value", with("x", "a\t")),
        ("connection", with("connection", "close")),
        ("keep-alive", with("keep-alive", "1")),
        ("proxy-connection", with("proxy-connection", "close")),
        ("transfer-encoding", with("transfer-encoding", "chunked")),
        ("upgrade", with("upgrade", "h2c")),
        ("te that is not trailers", with("te", "gzip")),
        ("host that is not :authority", with("host", "other")),
        ("host twice", vec![Send(0, get_with(&[("host", "example.org"), ("host", "example.org")]))]),
        ("content-length that is no number", with("content-length", "1x")),
        ("an empty content-length", with("content-length", "")),
        ("a signed content-length", with("content-length", "+1")),
        ("a huge content-length", with("content-length", "99999999999999999999")),
        ("two values of content-length", vec![Send(0, get_with(&[("content-length", "1"), ("content-length", "2")]))]),
        ("more DATA than content-length", body("2", b"abc")),
        ("less DATA than content-length", body("4", b"abc")),
        ("no DATA, and content-length", vec![End(0, get_with(&[("content-length", "1")]))]),
        ("CONNECT with :path", request(&[connect, authority, path])),
        ("CONNECT with :scheme", request(&[connect, authority, scheme])),
        ("CONNECT without :authority", request(&[connect])),
        ("extended CONNECT without :path", request(&[connect, protocol, scheme, authority])),
        ("extended CONNECT without :scheme", request(&[connect, protocol, authority, path])),
        (":protocol of GET", request(&[method, protocol, scheme, authority, path])),
        (":protocol that is no token", request(&[connect, (":protocol", "a b"), scheme, authority, path])),
        ("a pseudo-header field in trailers", vec![Send(0, joined(&[&get(), &headers(&[path])]))]),
        ("connection in trailers", vec![Send(0, joined(&[&get(), &headers(&[("connection", "x")])]))]),
    ];
    let malformed = malformed.into_iter();
    let malformed = malformed.map(|(name, acts)| (name, acts, Fail(Code::H3_MESSAGE_ERROR)));
    check(Role::Server, malformed.collect());

    let good: Vec<(&str, Vec<Act>)> = vec![
        ("GET", vec![End(0, get())]),
        ("te: trailers", with("te", "trailers")),
        ("host that is :authority", with("host", "EXAMPLE.org")),
        ("host alone", request(&[method, scheme, path, ("host", "a")])),
        ("OPTIONS *", request(&[(":method", "OPTIONS"), scheme, authority, (":path", "*")])),
        ("CONNECT", request(&[connect, (":authority", "a:443")])),
        ("extended CONNECT", request(&[connect, protocol, scheme, authority, path])),
        ("content-length twice",
            vec![End(0, joined(&[&get_with(&[("content-length", "3"), ("content-length", "3")]), &frame(DATA, b"abc")]))]),
        ("content-length of several DATA",
            vec![End(0, joined(&[&get_with(&[("content-length", "3")]), &frame(DATA, b"ab"), &frame(DATA, b""), &frame(0x21, b"xy"), &frame(DATA, b"c"), &headers(&[("x", "y")])]))]),
        ("another scheme without :authority", request(&[method, (":scheme", "coap"), (":path", "/a")])),
    ];
    let good = good.into_iter();
    check(
        Role::Server,
        good.map(|(name, acts)| (name, acts, Nothing)).collect(),
    );
}

#[test]
fn protocol_is_malformed_unless_announced() {
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
    ];
    let case = ("extended CONNECT", vec![Send(0, headers(&fields))], Fail(Code::H3_MESSAGE_ERROR));
    check_with(Role::Server, &Config::default(), vec![case]);
}

#[test]
#[rustfmt::skip]
fn messages_of_a_server() {
    let malformed = Fail(Code::H3_MESSAGE_ERROR);
    let ok: &[(&str, &str)] = &[(":status", "200")];
    let response = |fields: &[(&str, &str)]| vec![Send(0, headers(fields))];
    let with = |name, value| vec![Send(0, headers(&[(":status", "200"), (name, value)]))];
    let status = |status| vec![Send(0, headers(&[(":status", status)]))];
    let then = |fields: &[(&str, &str)], more: &[u8]| joined(&[&headers(fields), more]);
    check(
        Role::Client,
        vec![
            ("no :status", response(&[("x", "y")]), malformed),
            (":status twice", response(&[(":status", "200"), (":status", "200")]), malformed),
            (":path in a response", response(&[(":status", "200"), (":path", "/")]), malformed),
            (":status after regular fields", response(&[("x", "y"), (":status", "200")]), malformed),
            (":status of two digits", status("20"), malformed),
            (":status of letters", status("abc"), malformed),
            ("status 101", status("101"), malformed),
            ("connection", with("connection", "close"), malformed),
            ("a field name in upper case", with("X", "y"), malformed),
            ("an end without a response", vec![End(0, vec![])], malformed),
            ("an end after an interim response", vec![End(0, headers(&[(":status", "103")]))], malformed),
            ("DATA after an interim response",
                vec![Send(0, then(&[(":status", "103")], &frame(DATA, b"x")))], Close(Code::H3_FRAME_UNEXPECTED)),
            ("more DATA than content-length",
                vec![Send(0, then(&[(":status", "200"), ("content-length", "1")], &frame(DATA, b"xy")))], malformed),
            ("less DATA than content-length",
                vec![End(0, then(&[(":status", "200"), ("content-length", "3")], &frame(DATA, b"xy")))], malformed),
            ("DATA with status 204", vec![Send(0, then(&[(":status", "204")], &frame(DATA, b"xy")))], malformed),
            ("DATA with status 304", vec![Send(0, then(&[(":status", "304")], &frame(DATA, b"xy")))], malformed),
            ("DATA of a response to HEAD", vec![Send(4, then(ok, &frame(DATA, b"xy")))], malformed),
            ("content-length of a response to HEAD", vec![End(4, headers(&[(":status", "200"), ("content-length", "5")]))], Nothing),
            ("interim responses",
                vec![End(0, joined(&[&headers(&[(":status", "100")]), &headers(&[(":status", "103")]), &headers(ok), &frame(DATA, b"x")]))], Nothing),
        ],
    );
}

#[test]
#[rustfmt::skip]
fn streams_of_a_server() {
    let id_error = Close(Code::H3_ID_ERROR);
    let unexpected = Close(Code::H3_FRAME_UNEXPECTED);
    let goaway = |ids: &[u64]| {
        let frames: Vec<u8> = ids
            .iter()
            .flat_map(|id| frame(GOAWAY, &integers(&[*id])))
            .collect();
        vec![Send(3, with_settings(&frames))]
    };
    check(
        Role::Client,
        vec![
            ("a bidirectional stream opened by a server", vec![Send(1, vec![0])], Close(Code::H3_STREAM_CREATION_ERROR)),
            ("a push stream", vec![Send(7, vec![1])], id_error),
            ("PUSH_PROMISE", vec![Send(0, frame(PUSH_PROMISE, &[0, 0, 0]))], id_error),
            ("CANCEL_PUSH", vec![Send(3, with_settings(&frame(CANCEL_PUSH, &[0])))], id_error),
            ("MAX_PUSH_ID of a server", vec![Send(3, with_settings(&frame(MAX_PUSH_ID, &[0])))], unexpected),
            ("PRIORITY_UPDATE of a server", vec![Send(3, with_settings(&frame(PRIORITY_UPDATE, &[0])))], unexpected),
            ("GOAWAY with a server's stream", goaway(&[1]), id_error),
            ("GOAWAY with a unidirectional stream", goaway(&[2]), id_error),
            ("GOAWAY with a larger id", goaway(&[8, 12]), id_error),
            ("GOAWAY with a smaller id", goaway(&[12, 8, 8]), Nothing),
            ("a second control stream", vec![Send(3, vec![0]), Send(7, vec![0])], Close(Code::H3_STREAM_CREATION_ERROR)),
            ("the control stream ends", vec![End(3, control(&[]))], Close(Code::H3_CLOSED_CRITICAL_STREAM)),
            ("no SETTINGS", vec![Send(3, joined(&[&[0], &frame(GOAWAY, &[0])]))], Close(Code::H3_MISSING_SETTINGS)),
        ],
    );
}

#[test]
#[rustfmt::skip]
fn header_compression() {
    let critical = Close(Code::H3_CLOSED_CRITICAL_STREAM);
    let section = |bytes: &[u8]| vec![Send(0, frame(HEADERS, bytes))];
    let failed = Close(Code::QPACK_DECOMPRESSION_FAILED);
    let encoder = |bytes: &[u8]| vec![Send(6, joined(&[&[2], bytes]))];
    let decoder = |bytes: &[u8]| vec![Send(10, joined(&[&[3], bytes]))];
    let encoder_error = Close(Code::QPACK_ENCODER_STREAM_ERROR);
    let decoder_error = Close(Code::QPACK_DECODER_STREAM_ERROR);
    // Seventeen streams that wait for the first insertion, where sixteen may.
    let blocked = (0..17).map(|index| Send(index * 4, frame(HEADERS, &[2, 0, 0x80])));
    check(
        Role::Server,
        vec![
            ("an index beyond the static table", section(&[0, 0, 0xff, 36]), failed),
            ("a name beyond the static table", section(&[0, 0, 0x5f, 84, 0]), failed),
            ("an index of an empty dynamic table", section(&[0, 0, 0x80]), failed),
            ("an impossible Required Insert Count", section(&[0xff, 0xff, 0x7f, 0]), failed),
            ("a negative Base", section(&[2, 0x81, 0]), failed),
            ("a section of one byte", section(&[0]), failed),
            ("an empty section", section(&[]), failed),
            ("a section that ends in a string", section(&[0, 0, 0x23, b'a']), failed),
            ("wrong padding of a Huffman string", section(&[0, 0, 0x29, 0x00, 0]), failed),
            ("more blocked streams than allowed", blocked.collect(), failed),
            ("a capacity above the limit", encoder(&[0x3f, 0xe2, 0x1f]), encoder_error),
            ("an insertion before a capacity", encoder(&[0x41, b'a', 0]), encoder_error),
            ("an insertion that names no static entry", encoder(&[0x3f, 0x45, 0xff, 36, 0]), encoder_error),
            ("an insertion that names no dynamic entry", encoder(&[0x3f, 0x45, 0x80, 0]), encoder_error),
            ("a duplicate of nothing", encoder(&[0x3f, 0x45, 0]), encoder_error),
            ("an entry larger than the table", encoder(&[0x21, 0x41, b'a', 0]), encoder_error),
            ("an Insert Count Increment of 0", decoder(&[0]), decoder_error),
            ("an Insert Count Increment beyond what was sent", decoder(&[1]), decoder_error),
            ("an acknowledgement of nothing", decoder(&[0x80]), decoder_error),
            ("a cancellation of nothing", decoder(&[0x40]), Nothing),
            ("a second encoder stream", vec![Send(6, vec![2]), Send(10, vec![2])], Close(Code::H3_STREAM_CREATION_ERROR)),
            ("a second decoder stream", vec![Send(6, vec![3]), Send(10, vec![3])], Close(Code::H3_STREAM_CREATION_ERROR)),
            ("the encoder stream ends", vec![End(6, vec![2])], critical),
            ("the decoder stream ends", vec![End(10, vec![3])], critical),
            ("the encoder stream is reset", vec![Send(6, vec![2]), Reset(6)], critical),
            ("our decoder stream is stopped", vec![Stop(11)], critical),
            ("our encoder stream is stopped", vec![Stop(7)], critical),
        ],
    );
}

#[test]
#[rustfmt::skip]
fn datagrams() {
    let wrong = Close(Code::H3_DATAGRAM_ERROR);
    check(
        Role::Server,
        vec![
            ("an empty datagram", vec![Datagram(vec![])], wrong),
            ("an id that is truncated", vec![Datagram(vec![0x40])], wrong),
            ("an id beyond 2^60 − 1", vec![Datagram(integers(&[1 << 60]))], wrong),
            ("the largest id", vec![Datagram(integers(&[(1 << 60) - 1]))], Nothing),
        ],
    );
}

#[test]
#[rustfmt::skip]
fn streams_of_webtransport() {
    let config = Config {
        raw_streams: true,
        ..full_config()
    };
    let id_error = Close(Code::H3_ID_ERROR);
    let frame_error = Close(Code::H3_FRAME_ERROR);
    check_with(
        Role::Server,
        &config,
        vec![
            ("a session that is no request", vec![Send(0, vec![0x40, 0x41, 1])], id_error),
            ("a unidirectional stream of such a session", vec![Send(6, vec![0x40, 0x54, 2])], id_error),
            ("WT_STREAM within a stream", vec![Send(0, joined(&[&get(), &[0x40, 0x41, 0]]))], frame_error),
            ("WT_STREAM on the control stream", vec![Send(2, with_settings(&[0x40, 0x41, 0]))], frame_error),
        ],
    );
    check_with(
        Role::Client,
        &config,
        vec![
            ("HEADERS on a server's stream", vec![Send(1, get())], Close(Code::H3_STREAM_CREATION_ERROR)),
            ("a server's stream that ends at once", vec![End(1, vec![])], Nothing),
        ],
    );
}

#[test]
#[rustfmt::skip]
fn settings_of_a_server_that_accepted_early_data() {
    let remembered = Settings {
        field_section_bytes_max: Some(1000),
        qpack_table_bytes_max: 200,
        qpack_blocked_streams_max: 3,
        extended_connect: true,
        datagrams: true,
        others: Vec::new(),
    };
    let config = Config {
        remembered: Some(remembered),
        ..full_config()
    };
    let wrong = Close(Code::H3_SETTINGS_ERROR);
    let capacity = Close(Code::QPACK_DECODER_STREAM_ERROR);
    check_with(
        Role::Client,
        &config,
        vec![
            ("the same", vec![Send(3, control(&[1, 200, 6, 1000, 7, 3, 8, 1, 0x33, 1]))], Nothing),
            ("more", vec![Send(3, control(&[1, 200, 7, 4, 8, 1, 0x33, 1]))], Nothing),
            ("another capacity", vec![Send(3, control(&[1, 201, 6, 1000, 7, 3, 8, 1, 0x33, 1]))], capacity),
            ("no capacity", vec![Send(3, control(&[6, 1000, 7, 3, 8, 1, 0x33, 1]))], capacity),
            ("a shorter field section", vec![Send(3, control(&[1, 200, 6, 999, 7, 3, 8, 1, 0x33, 1]))], wrong),
            ("fewer blocked streams", vec![Send(3, control(&[1, 200, 6, 1000, 7, 2, 8, 1, 0x33, 1]))], wrong),
            ("no extended CONNECT", vec![Send(3, control(&[1, 200, 6, 1000, 7, 3, 0x33, 1]))], wrong),
            ("no datagrams", vec![Send(3, control(&[1, 200, 6, 1000, 7, 3, 8, 1]))], wrong),
        ],
    );
}
