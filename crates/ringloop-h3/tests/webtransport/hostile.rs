//! Peers that break the rules, and floods: what is kept stays within limits.

use crate::pair::Pair;
use crate::{DIRECTIONS, GONE, ROLES, closed, ending, other, with_flow_control};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use ringloop_h3::webtransport::{Config, Direction, Ending, Error, Event, codes};
use ringloop_h3::{Code, Event as H3Event, Role, StreamId, capsule, limits, varint};

fn capsule(kind: u64, value: &[u8]) -> Bytes {
    let mut out = Vec::new();
    capsule::write(&mut out, kind, value);
    out.into()
}

fn limit(kind: u64, limit: u64) -> Bytes {
    let mut value = Vec::new();
    varint::write(&mut value, limit);
    capsule(kind, &value)
}

/// The code that the other end gives a session for these capsules.
fn code_for(from: Role, config: &Config, body: &[Bytes], fin: bool) -> Option<Code> {
    let (mut pair, session) = Pair::open(7, config);
    pair.make_hostile(from);
    for (at, piece) in body.iter().enumerate() {
        let is_last = at + 1 == body.len();
        let sender = pair.end(from);
        sender.h3.send_data(session, piece.clone(), fin && is_last).unwrap();
    }
    pair.settle();
    let reset = pair.end(from).others.iter().find_map(|event| match event {
        H3Event::Reset { stream, code } if *stream == session => Some(*code),
        _ => None,
    });
    if let Some(code) = reset {
        assert_eq!(pair.end(other(from)).sessions.count(), 0);
        let told = ending(&mut pair, other(from));
        assert!(
            matches!(told, Ending::Failed { code: told, .. } if told == code)
                || told == closed(0, "")
        );
    }
    reset
}

#[test]
fn malformed_capsules_end_the_session() {
    for from in ROLES {
        for body in [
            capsule(0x2843, &[0, 0, 0]),
            capsule(0x2843, &[0; 4 + 1025]),
            capsule(0x2843, &[0, 0, 0, 1, 0xc3]),
            capsule(0x78ae, &[0]),
        ] {
            let code = code_for(from, &Config::default(), &[body], false);
            assert_eq!(code, Some(Code::H3_MESSAGE_ERROR));
        }
        let cut = capsule(0x1234, b"12345").slice(..4);
        let code = code_for(from, &Config::default(), &[cut], true);
        assert_eq!(code, Some(Code::H3_MESSAGE_ERROR));
    }
}

#[test]
fn nothing_may_follow_a_close() {
    for from in ROLES {
        let close = capsule(0x2843, &[0; 4]);
        let more = Bytes::from("more");
        let code = code_for(from, &Config::default(), &[close.clone(), more.clone()], false);
        assert_eq!(code, None, "its side had ended");
        let (mut pair, session) = Pair::open(1, &Config::default());
        pair.make_hostile(from);
        pair.end(from).h3.send_data(session, close, false).unwrap();
        pair.settle();
        assert_eq!(ending(&mut pair, other(from)), closed(0, ""));
        pair.end(from).h3.send_data(session, more, false).unwrap();
        pair.settle();
        assert!(
            pair.end(from).others.iter().any(|event| matches!(
                event,
                H3Event::Stopped { code: Code::H3_MESSAGE_ERROR, .. }
            ))
        );
        assert_eq!(pair.end(other(from)).h3.request_count(), 0);
    }
}

#[test]
fn limits_that_make_no_sense_end_the_session() {
    let config = with_flow_control(1000, 10);
    let violation = Some(Code(codes::FLOW_CONTROL_ERROR));
    for from in ROLES {
        for body in [
            limit(0x190b_4d3d, 1000),
            limit(0x190b_4d3f, 9),
            limit(0x190b_4d40, (1 << 60) + 1),
            limit(0x190b_4d43, (1 << 60) + 1),
            limit(0x190b_4d3e, 5),
            limit(0x190b_4d42, 5),
        ] {
            assert_eq!(code_for(from, &config, &[body], false), violation);
        }
        let rises = [limit(0x190b_4d3d, 1001), limit(0x190b_4d3f, 1 << 60), limit(0x190b_4d41, 7)];
        assert_eq!(code_for(from, &config, &rises, false), None);
        let malformed = [capsule(0x190b_4d3d, &[1, 2])];
        assert_eq!(code_for(from, &config, &malformed, false), Some(Code::H3_MESSAGE_ERROR));
    }
}

#[test]
fn without_flow_control_its_capsules_are_ignored() {
    for from in ROLES {
        let body =
            [limit(0x190b_4d3d, 0), capsule(0x190b_4d3f, &[7; 3]), limit(0x190b_4d44, 1 << 61)];
        assert_eq!(code_for(from, &Config::default(), &body, false), None);
    }
}

#[test]
fn past_the_limit_on_streams_or_data_the_session_ends() {
    for (streams, bytes) in [(3, 0), (1, 101)] {
        for from in ROLES {
            let (mut pair, session) = Pair::open(1, &with_flow_control(100, 2));
            pair.make_hostile(from);
            for _ in 0..streams {
                let mut header = vec![0x40, 0x54];
                varint::write(&mut header, session.0);
                header.extend(vec![0; bytes]);
                pair.stream_by_hand(from, Direction::Unidirectional, &header);
            }
            pair.settle();
            let receiver = pair.end(other(from));
            let arrived: Vec<(StreamId, usize)> =
                receiver.streams.iter().map(|(id, r)| (*id, r.bytes.len())).collect();
            for (stream, len) in arrived {
                // What is behind the first bytes, the application counts.
                receiver.sessions.received(&mut receiver.h3, session, stream, len as u64);
            }
            pair.settle();
            let code = Code(codes::FLOW_CONTROL_ERROR);
            let told = ending(&mut pair, other(from));
            assert!(matches!(told, Ending::Failed { code: told, .. } if told == code));
        }
    }
}

#[test]
fn a_flood_of_capsules_is_neither_kept_nor_told() {
    let (mut pair, session) = Pair::open(1, &Config::default());
    pair.make_hostile(Role::Client);
    for number in 0..20_000 {
        let body = match number % 3 {
            0 => capsule(0x78ae, &[]),
            1 => capsule(0x4321, &[]),
            _ => limit(0x190b_4d3d, number),
        };
        pair.client.h3.send_data(session, body, false).unwrap();
    }
    pair.settle();
    assert_eq!(pair.server.events.len(), 1, "one drain");
    assert_eq!(pair.server.sessions.count(), 1);
}

#[test]
fn capsules_before_the_answer_are_kept_up_to_a_limit() {
    let mut pair = Pair::connected(1, &Config::default());
    pair.make_hostile(Role::Client);
    let session = pair.request_by_hand("webtransport", HeaderMap::new());
    pair.client.h3.send_data(session, capsule(0x78ae, &[]), false).unwrap();
    pair.settle();
    assert_eq!(pair.server.request(), session);
    assert!(pair.server.events.is_empty());
    crate::accept(&mut pair, session);
    pair.settle();
    pair.server.find(|event| matches!(event, Event::Draining { .. }).then_some(()));
    let server = &mut pair.server;
    server.sessions.abort(&mut server.h3, session, GONE).unwrap();
    pair.settle();

    let session = pair.request_by_hand("webtransport", HeaderMap::new());
    let much = Bytes::from(vec![0; limits::CAPSULE_BYTES_EARLY_MAX + 1]);
    pair.client.h3.send_data(session, much, false).unwrap();
    pair.settle();
    let told = ending(&mut pair, Role::Server);
    assert!(matches!(told, Ending::Failed { code: Code::H3_EXCESSIVE_LOAD, .. }));
}

#[test]
fn streams_without_a_session_are_kept_up_to_a_limit() {
    let config = Config { early_streams_max: 4, ..Config::default() };
    let mut pair = Pair::connected(1, &config);
    pair.make_hostile(Role::Client);
    let streams = [(); 20].map(|()| {
        pair.stream_by_hand(Role::Client, Direction::Bidirectional, &[0x40, 0x41, 0x44, 0])
    });
    pair.settle();
    let rejected = streams.iter().filter(|stream| {
        let received = pair.client.streams.get(stream);
        received
            .is_some_and(|received| received.reset == Some(Code(codes::BUFFERED_STREAM_REJECTED)))
    });
    assert_eq!(rejected.count(), 16);
}

#[test]
fn datagrams_without_a_session_are_dropped_past_a_limit() {
    let config = Config { early_datagrams_max: 4, ..Config::default() };
    let mut pair = Pair::connected(1, &config);
    let session = pair.connect(&[]).unwrap();
    for byte in 0..20 {
        let client = &mut pair.client;
        client.sessions.send_datagram(&mut client.h3, session, vec![byte].into()).unwrap();
    }
    pair.settle();
    crate::accept(&mut pair, session);
    pair.flush();
    let datagrams =
        pair.server.events.iter().filter(|event| matches!(event, Event::Datagram { .. }));
    assert_eq!(datagrams.count(), 4);
}

#[test]
fn late_streams_of_an_ended_session_are_refused() {
    for from in ROLES {
        for direction in DIRECTIONS {
            let (mut pair, session) = Pair::open(1, &Config::default());
            let stream = pair.open_stream(from, session, direction).unwrap();
            let end = pair.end(other(from));
            end.sessions.close(&mut end.h3, session, 0, "").unwrap();
            pair.hold(from, stream);
            pair.settle();
            pair.deliver_all();
            let received = pair.end(other(from)).streams.get(&stream);
            assert!(received.is_none_or(|received| received.bytes.is_empty()));
            assert_eq!(pair.end(from).sessions.count(), 0);
        }
    }
}

#[test]
fn a_session_that_is_no_request_ends_the_connection() {
    for from in ROLES {
        for direction in DIRECTIONS {
            let (mut pair, _) = Pair::open(1, &Config::default());
            pair.make_hostile(from);
            let signal = if direction == Direction::Bidirectional { 0x41 } else { 0x54 };
            pair.stream_by_hand(from, direction, &[0x40, signal, 2]);
            assert_eq!(pair.settle_with_error(other(from)), Code::H3_ID_ERROR);
        }
    }
}

#[test]
fn a_client_refuses_streams_of_sessions_that_it_does_not_have() {
    let (mut pair, _) = Pair::open(1, &Config::default());
    pair.make_hostile(Role::Server);
    let stream =
        pair.stream_by_hand(Role::Server, Direction::Bidirectional, &[0x40, 0x41, 0x44, 0]);
    pair.settle();
    assert_eq!(pair.server.streams[&stream].reset, Some(GONE));
}

#[test]
fn a_peer_that_does_not_end_its_side_is_stopped() {
    let (mut pair, session) = Pair::open(1, &Config::default());
    pair.make_hostile(Role::Client);
    let server = &mut pair.server;
    server.sessions.close(&mut server.h3, session, 0, "").unwrap();
    pair.settle();
    let chunk = Bytes::from(vec![0; 10_000]);
    for _ in 0..limits::BYTES_AFTER_CLOSE_MAX / 10_000 + 2 {
        pair.client.h3.send_data(session, chunk.clone(), false).ok();
        pair.settle();
    }
    assert!(
        pair.client
            .others
            .iter()
            .any(|event| matches!(event, H3Event::Stopped { code, .. } if *code == GONE))
    );
}

#[test]
fn ended_sessions_of_a_lazy_peer_are_bounded() {
    let mut pair = Pair::connected(1, &Config::default());
    pair.make_hostile(Role::Client);
    for _ in 0..limits::SESSIONS_ENDED_MAX * 3 {
        let session = pair.request_by_hand("webtransport", HeaderMap::new());
        pair.settle();
        assert_eq!(pair.server.request(), session);
        crate::accept(&mut pair, session);
        let server = &mut pair.server;
        server.sessions.close(&mut server.h3, session, 0, "").unwrap();
        pair.settle();
        assert!(pair.server.h3.request_count() <= limits::SESSIONS_ENDED_MAX + 1);
    }
}

#[test]
fn a_flood_of_sessions_leaves_nothing_behind() {
    let mut pair = Pair::connected(1, &Config::default());
    pair.make_hostile(Role::Client);
    for _ in 0..500 {
        let session = pair.request_by_hand("webtransport", HeaderMap::new());
        pair.settle();
        pair.client.h3.cancel(session, Code::H3_REQUEST_CANCELLED).unwrap();
        pair.settle();
    }
    assert_eq!((pair.server.sessions.count(), pair.server.h3.request_count()), (0, 0));
}

#[test]
fn half_open_sessions_count() {
    let config = Config { sessions_max: 4, ..with_flow_control(100, 1) };
    let mut pair = Pair::new(1, &config, &config);
    pair.hold(Role::Client, StreamId(2));
    pair.settle();
    pair.make_hostile(Role::Client);
    for _ in 0..50 {
        pair.request_by_hand("webtransport", HeaderMap::new());
    }
    pair.settle();
    assert_eq!((pair.server.sessions.count(), pair.server.h3.request_count()), (4, 4));
}

#[test]
fn requests_before_settings_that_allow_fewer_are_rejected() {
    let config = Config::default();
    let mut pair = Pair::new(1, &config, &config);
    pair.hold(Role::Client, StreamId(2));
    pair.settle();
    pair.make_hostile(Role::Client);
    let sessions = [(); 3].map(|()| pair.request_by_hand("webtransport", HeaderMap::new()));
    pair.settle();
    assert_eq!(pair.server.sessions.count(), 3);
    pair.deliver_all();
    assert_eq!(pair.server.sessions.ids().collect::<Vec<_>>(), sessions[..1]);
}

#[test]
fn a_request_that_is_not_https_is_malformed() {
    let mut pair = Pair::connected(1, &Config::default());
    pair.make_hostile(Role::Client);
    let client = &mut pair.client;
    let stream = client.quic_stream(Direction::Bidirectional);
    let (mut parts, ()) = http::Request::new(()).into_parts();
    parts.method = http::Method::CONNECT;
    parts.uri = http::Uri::from_static("http://example.org/echo");
    parts.extensions.insert(ringloop_h3::Protocol::new("webtransport"));
    client.h3.send_request(stream, &parts, false).unwrap();
    pair.settle();
    assert_eq!(pair.server.sessions.count(), 0);
    assert!(
        pair.client
            .others
            .iter()
            .any(|event| matches!(event, H3Event::Reset { code: Code::H3_MESSAGE_ERROR, .. }))
    );
}

#[test]
fn a_sub_protocol_that_was_not_offered_ends_the_session() {
    for (value, is_refused) in
        [("\"other\"", true), ("\"mine\"", false), ("mine", false), ("7", false)]
    {
        let mut pair = Pair::connected(1, &Config::default());
        pair.make_hostile(Role::Server);
        let session = pair.connect(&["mine"]).unwrap();
        pair.settle();
        let (mut parts, ()) = Response::new(()).into_parts();
        let name = HeaderName::from_static("wt-protocol");
        parts.headers.insert(name, HeaderValue::from_static(value));
        pair.server.h3.send_response(session, &parts, false).unwrap();
        pair.settle();
        if is_refused {
            let code = Code(codes::ALPN_ERROR);
            assert!(
                matches!(ending(&mut pair, Role::Client), Ending::Failed { code: told, .. } if told == code)
            );
        } else {
            let chosen = pair.client.find(|event| match event {
                Event::Accepted { protocol, .. } => Some(protocol.clone()),
                _ => None,
            });
            assert_eq!(chosen.is_some(), value == "\"mine\"");
        }
    }
}

#[test]
fn a_redirection_is_told_and_not_followed() {
    let mut pair = Pair::connected(1, &Config::default());
    pair.make_hostile(Role::Server);
    let session = pair.connect(&[]).unwrap();
    pair.settle();
    let (mut parts, ()) = Response::new(()).into_parts();
    parts.status = StatusCode::PERMANENT_REDIRECT;
    parts.headers.insert("location", HeaderValue::from_static("https://example.com/"));
    pair.server.h3.send_response(session, &parts, false).unwrap();
    pair.settle();
    let status = pair.client.find(|event| match event {
        Event::Rejected { parts, .. } => Some(parts.status),
        _ => None,
    });
    assert_eq!(status, StatusCode::PERMANENT_REDIRECT);
    assert_eq!(pair.client.h3.request_count(), 0);
    let client = &mut pair.client;
    let closed = client.sessions.close(&mut client.h3, session, 0, "");
    assert_eq!(closed, Err(Error::UnknownSession));
}

#[test]
fn datagrams_in_capsules_are_datagrams() {
    let (mut pair, session) = Pair::open(1, &Config::default());
    pair.make_hostile(Role::Client);
    let small = capsule(capsule::DATAGRAM, b"in a capsule");
    let large = capsule(capsule::DATAGRAM, &vec![0; 70_000]);
    for body in [large, small] {
        pair.client.h3.send_data(session, body, false).unwrap();
    }
    pair.settle();
    let data = pair.server.find(|event| match event {
        Event::Datagram { data, .. } => Some(data.clone()),
        _ => None,
    });
    assert_eq!(data, "in a capsule");
}
