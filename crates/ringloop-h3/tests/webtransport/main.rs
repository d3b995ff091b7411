//! WebTransport over two connections: both roles, each dialect, and peers that break the rules.
#![allow(clippy::unwrap_used)]

mod hostile;
mod noise;
mod pair;
mod sequences;
mod sizes;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use pair::Pair;
use ringloop_h3::webtransport::{Config, Dialect, Direction, Ending, Error, Event, Limits, codes};
use ringloop_h3::{Code, Protocol, Role, StreamId, Transmit};

const ENABLE_WEBTRANSPORT: u64 = 0x2b60_3742;
const MAX_SESSIONS_07: u64 = 0xc671_706a;
const MAX_SESSIONS_13: u64 = 0x14e9_cd29;
const WT_ENABLED: u64 = 0x2c7c_f000;
const GONE: Code = Code(codes::SESSION_GONE);
const ROLES: [Role; 2] = [Role::Client, Role::Server];
const DIRECTIONS: [Direction; 2] = [Direction::Bidirectional, Direction::Unidirectional];

fn other(role: Role) -> Role {
    match role {
        Role::Client => Role::Server,
        Role::Server => Role::Client,
    }
}

fn with_flow_control(data: u64, streams: u64) -> Config {
    Config {
        flow_control: Some(Limits {
            data,
            bidirectional_streams: streams,
            unidirectional_streams: streams,
        }),
        ..Config::default()
    }
}

fn accept(pair: &mut Pair, session: StreamId) {
    let server = &mut pair.server;
    let headers = HeaderMap::new();
    server.sessions.accept(&mut server.h3, session, headers, None).unwrap();
}

fn ending(pair: &mut Pair, role: Role) -> Ending {
    pair.end(role).find(|event| match event {
        Event::Closed { ending, .. } => Some(ending.clone()),
        _ => None,
    })
}

fn closed(code: u32, reason: &str) -> Ending {
    Ending::Closed { code, reason: reason.to_owned() }
}

#[test]
fn each_dialect_opens_a_session() {
    let config = Config { has_reset_stream_at: true, ..Config::default() };
    for (settings, dialect, token) in [
        (&[ENABLE_WEBTRANSPORT][..], Dialect::Draft02, "webtransport"),
        (&[MAX_SESSIONS_07], Dialect::Draft07, "webtransport"),
        (&[MAX_SESSIONS_13], Dialect::Draft13, "webtransport"),
        (&[WT_ENABLED], Dialect::Draft15, "webtransport-h3"),
        (&[ENABLE_WEBTRANSPORT, MAX_SESSIONS_07], Dialect::Draft07, "webtransport"),
    ] {
        let mut pair = Pair::with_settings(1, &config, &config, Some(settings));
        pair.settle();
        assert_eq!(pair.server.sessions.dialect(), Some(dialect));
        // The server has sent all, so the client speaks the newest: a request of the client's dialect, by hand.
        let mut headers = HeaderMap::new();
        if dialect == Dialect::Draft02 {
            headers.insert("sec-webtransport-http3-draft02", HeaderValue::from_static("1"));
        }
        pair.make_hostile(Role::Client);
        let session = pair.request_by_hand(token, headers);
        pair.settle();
        assert_eq!(pair.server.request(), session);
        accept(&mut pair, session);
        pair.settle();
        let answer = pair.client.others.iter().find_map(|event| match event {
            ringloop_h3::Event::Response { parts, .. } => Some(parts),
            _ => None,
        });
        let answer = answer.unwrap();
        assert_eq!(answer.status, StatusCode::OK);
        let version = answer.headers.get("sec-webtransport-http3-draft");
        assert_eq!(version.is_some_and(|v| v == "draft02"), dialect == Dialect::Draft02);
    }
}

#[test]
fn a_client_speaks_the_servers_dialect() {
    let config = Config { has_reset_stream_at: true, ..Config::default() };
    for (settings, dialect) in [
        (&[ENABLE_WEBTRANSPORT][..], Dialect::Draft02),
        (&[MAX_SESSIONS_07], Dialect::Draft07),
        (&[MAX_SESSIONS_13], Dialect::Draft13),
        (&[WT_ENABLED], Dialect::Draft15),
    ] {
        let mut pair = Pair::with_server_settings(1, &config, settings);
        pair.settle();
        assert_eq!(pair.client.sessions.dialect(), Some(dialect));
        let session = pair.connect(&[]).unwrap();
        pair.settle();
        let (protocol, is_named) = pair.server.find(|event| match event {
            Event::Request { parts, .. } => Some((
                parts.extensions.get::<Protocol>().unwrap().as_str().to_owned(),
                parts.headers.contains_key("sec-webtransport-http3-draft02"),
            )),
            _ => None,
        });
        assert_eq!(protocol, dialect.upgrade_token());
        assert_eq!(is_named, dialect == Dialect::Draft02);
        accept(&mut pair, session);
        pair.settle();
        pair.client.find(|event| matches!(event, Event::Accepted { .. }).then_some(()));
    }
}

#[test]
fn a_client_without_settings_of_webtransport_is_served_all_the_same() {
    let config = Config::default();
    let mut pair = Pair::with_settings(1, &config, &config, Some(&[]));
    pair.settle();
    assert_eq!(pair.server.sessions.dialect(), None);
    let session = pair.connect(&[]).unwrap();
    pair.settle();
    assert_eq!(pair.server.request(), session);
    accept(&mut pair, session);
}

#[test]
fn a_client_does_not_connect_to_a_server_without_webtransport() {
    let config = Config::default();
    let mut pair = Pair::with_server_settings(1, &config, &[]);
    assert_eq!(pair.connect(&[]), Err(Error::NotSupported), "before SETTINGS");
    pair.settle();
    let dialect = pair.client.find(|event| match event {
        Event::Settings { dialect } => Some(*dialect),
        _ => None,
    });
    assert_eq!(dialect, None);
    assert_eq!(pair.connect(&[]), Err(Error::NotSupported));
}

#[test]
fn a_sub_protocol_is_chosen_among_those_offered() {
    let mut pair = Pair::connected(1, &Config::default());
    let session = pair.connect(&["moq-16", "a \"b\""]).unwrap();
    pair.settle();
    let offered = pair.server.find(|event| match event {
        Event::Request { protocols, .. } => Some(protocols.clone()),
        _ => None,
    });
    assert_eq!(offered, ["moq-16", "a \"b\""]);
    let server = &mut pair.server;
    let not_offered =
        server.sessions.accept(&mut server.h3, session, HeaderMap::new(), Some("other"));
    assert!(matches!(not_offered, Err(Error::Invalid(_))));
    server.sessions.accept(&mut server.h3, session, HeaderMap::new(), Some("a \"b\"")).unwrap();
    pair.settle();
    let chosen = pair.client.find(|event| match event {
        Event::Accepted { protocol, .. } => Some(protocol.clone()),
        _ => None,
    });
    assert_eq!(chosen.as_deref(), Some("a \"b\""));
}

#[test]
fn a_rejected_session_is_forgotten_with_its_streams() {
    let mut pair = Pair::connected(1, &Config::default());
    let session = pair.connect(&[]).unwrap();
    let stream = pair.open_stream(Role::Client, session, Direction::Bidirectional).unwrap();
    pair.settle();
    assert_eq!(pair.server.request(), session);
    let server = &mut pair.server;
    let mut headers = HeaderMap::new();
    headers.insert("retry-after", HeaderValue::from_static("3"));
    server
        .sessions
        .reject(&mut server.h3, session, StatusCode::TOO_MANY_REQUESTS, headers)
        .unwrap();
    pair.settle();
    let parts = pair.client.find(|event| match event {
        Event::Rejected { parts, .. } => Some(parts.clone()),
        _ => None,
    });
    assert_eq!(
        (parts.status.as_u16(), &parts.headers["retry-after"]),
        (429, &"3".parse().unwrap())
    );
    assert_eq!((pair.client.sessions.count(), pair.server.sessions.count()), (0, 0));
    assert_eq!(pair.client.streams[&stream].reset, Some(GONE));
    assert_eq!(pair.client.h3.request_count(), 0);
    assert_eq!(pair.server.h3.request_count(), 0);
}

#[test]
fn streams_of_both_kinds_and_both_ends_carry_bytes() {
    for seed in 0..20 {
        let (mut pair, session) = Pair::open(seed, &Config::default());
        let mut sent = Vec::new();
        for from in ROLES {
            for direction in DIRECTIONS {
                let stream = pair.open_stream(from, session, direction).unwrap();
                let data = pair.numbers.bytes(3000);
                pair.write(from, stream, data.clone(), true);
                sent.push((other(from), stream, data));
                if direction == Direction::Bidirectional {
                    pair.settle();
                    let answer = pair.numbers.bytes(3000);
                    pair.write(other(from), stream, answer.clone(), true);
                    sent.push((from, stream, answer));
                }
            }
        }
        pair.settle();
        for (to, stream, data) in sent {
            let received = &pair.end(to).streams[&stream];
            assert_eq!((&received.bytes[..], received.fin), (&data[..], true), "seed {seed}");
        }
    }
}

#[test]
fn datagrams_reach_their_session() {
    let config = with_flow_control(1 << 20, 100);
    let (mut pair, first) = Pair::open(3, &config);
    let second = pair.open_session();
    for (from, session, text) in [
        (Role::Client, first, "a"),
        (Role::Server, second, "b"),
        (Role::Server, first, ""),
        (Role::Client, second, "d"),
    ] {
        let end = pair.end(from);
        end.sessions.send_datagram(&mut end.h3, session, Bytes::from(text)).unwrap();
        pair.settle();
        let received = pair.end(other(from)).find(|event| match event {
            Event::Datagram { session, data } => Some((*session, data.clone())),
            _ => None,
        });
        assert_eq!(received, (session, Bytes::from(text)));
    }
}

#[test]
fn a_close_carries_code_and_reason_and_resets_all_streams() {
    for from in ROLES {
        let (mut pair, session) = Pair::open(1, &Config::default());
        let mut streams = Vec::new();
        for opener in ROLES {
            for direction in DIRECTIONS {
                let stream = pair.open_stream(opener, session, direction).unwrap();
                streams.push((opener, stream));
            }
        }
        pair.settle();
        let end = pair.end(from);
        end.sessions.close(&mut end.h3, session, 0xdead_beef, "enough").unwrap();
        pair.settle();
        assert_eq!(ending(&mut pair, other(from)), closed(0xdead_beef, "enough"));
        for (opener, stream) in streams {
            for end in ROLES {
                let has_output = end == opener || stream.is_bidirectional();
                let has_input = end != opener || stream.is_bidirectional();
                let received = pair.end(end).streams.get(&stream);
                if has_input {
                    assert_eq!(received.unwrap().reset, Some(GONE));
                }
                if has_output {
                    assert_eq!(received.unwrap().stop, Some(GONE));
                }
            }
        }
        for end in ROLES {
            assert_eq!(pair.end(end).sessions.count(), 0);
            assert_eq!(pair.end(end).h3.request_count(), 0);
            assert!(
                !pair.end(end).events.iter().any(|event| matches!(event, Event::Closed { .. }))
            );
        }
    }
}

#[test]
fn a_fin_is_a_close_without_code_and_a_reset_is_told() {
    for from in ROLES {
        let (mut pair, session) = Pair::open(1, &Config::default());
        pair.end(from).h3.send_data(session, Bytes::new(), true).unwrap();
        pair.settle();
        assert_eq!(ending(&mut pair, other(from)), closed(0, ""));
        // The other end has ended its side too.
        assert_eq!(ending(&mut pair, from), closed(0, ""));

        let (mut pair, session) = Pair::open(1, &Config::default());
        let end = pair.end(from);
        end.sessions.abort(&mut end.h3, session, Code::H3_INTERNAL_ERROR).unwrap();
        pair.settle();
        let code = Code::H3_INTERNAL_ERROR;
        assert_eq!(ending(&mut pair, other(from)), Ending::Reset { code });
        assert_eq!(pair.client.h3.request_count() + pair.server.h3.request_count(), 0);
    }
}

#[test]
fn a_close_may_be_overtaken_by_a_stop() {
    for from in ROLES {
        let (mut pair, session) = Pair::open(1, &Config::default());
        pair.hold(from, session);
        let end = pair.end(from);
        end.sessions.close(&mut end.h3, session, 5, "late").unwrap();
        pair.flush();
        let receiver = pair.end(other(from));
        receiver.h3.receive_stop(session, GONE).unwrap();
        pair.settle();
        pair.deliver_all();
        assert_eq!(ending(&mut pair, other(from)), closed(5, "late"));
        assert_eq!(pair.client.h3.request_count() + pair.server.h3.request_count(), 0);
    }
}

#[test]
fn a_drain_is_told_once_and_ends_nothing() {
    for from in ROLES {
        let (mut pair, session) = Pair::open(1, &Config::default());
        for _ in 0..3 {
            let end = pair.end(from);
            end.sessions.drain(&mut end.h3, session).unwrap();
        }
        pair.settle();
        let told = &pair.end(other(from)).events;
        let drains = told.iter().filter(|event| matches!(event, Event::Draining { .. }));
        assert_eq!(drains.count(), 1);
        pair.open_stream(other(from), session, Direction::Unidirectional).unwrap();
    }
}

#[test]
fn go_away_drains_every_session_and_stops_new_ones() {
    let (mut pair, first) = Pair::open(1, &with_flow_control(1000, 10));
    let second = pair.open_session();
    pair.server.h3.go_away();
    pair.settle();
    for expected in [first, second] {
        let draining = pair.client.find(|event| match event {
            Event::Draining { session } => Some(*session),
            _ => None,
        });
        assert_eq!(draining, expected);
    }
    assert!(matches!(pair.connect(&[]), Err(Error::Stream(_))));
    assert_eq!(pair.client.sessions.count(), 2);
}

#[test]
fn requests_wait_for_the_clients_settings() {
    let config = Config::default();
    let mut pair = Pair::new(1, &config, &config);
    pair.hold(Role::Client, StreamId(2));
    pair.settle();
    let session = pair.connect(&[]).unwrap();
    let stream = pair.open_stream(Role::Client, session, Direction::Unidirectional).unwrap();
    pair.write(Role::Client, stream, Bytes::from("early"), true);
    pair.settle();
    assert!(pair.server.events.is_empty());
    pair.deliver_all();
    assert_eq!(pair.server.request(), session);
    accept(&mut pair, session);
    pair.settle();
    assert_eq!(pair.server.streams[&stream].bytes, b"early");
}

#[test]
fn what_is_here_before_its_session_waits() {
    for seed in 0..10 {
        let mut pair = Pair::connected(seed, &Config::default());
        let session = pair.connect(&[]).unwrap();
        pair.hold(Role::Client, session);
        let stream = pair.open_stream(Role::Client, session, Direction::Bidirectional).unwrap();
        let data = pair.numbers.bytes(500);
        pair.write(Role::Client, stream, data.clone(), true);
        let client = &mut pair.client;
        client.sessions.send_datagram(&mut client.h3, session, Bytes::from("early")).unwrap();
        pair.settle();
        assert!(!pair.server.events.iter().any(|event| !matches!(event, Event::Settings { .. })));
        pair.deliver_all();
        assert_eq!(pair.server.request(), session);
        assert_eq!(pair.server.events.len(), 0, "until it is accepted");
        accept(&mut pair, session);
        pair.flush();
        let opened = pair.server.find(|event| match event {
            Event::Stream { stream, .. } => Some(*stream),
            _ => None,
        });
        assert_eq!(opened, stream);
        pair.server.find(|event| matches!(event, Event::Datagram { .. }).then_some(()));
        pair.settle();
        let received = &pair.server.streams[&stream];
        assert_eq!(received.bytes.len(), data.len());
        assert!(received.fin);
    }
}

#[test]
fn a_servers_streams_may_overtake_its_answer() {
    let mut pair = Pair::connected(1, &Config::default());
    let session = pair.connect(&[]).unwrap();
    pair.settle();
    accept(&mut pair, session);
    pair.flush();
    pair.hold(Role::Server, session);
    let stream = pair.open_stream(Role::Server, session, Direction::Bidirectional).unwrap();
    pair.settle();
    pair.client.events.clear();
    pair.deliver_all();
    pair.client.find(|event| matches!(event, Event::Accepted { .. }).then_some(()));
    let opened = pair.client.find(|event| match event {
        Event::Stream { stream, .. } => Some(*stream),
        _ => None,
    });
    assert_eq!(opened, stream);
}

#[test]
fn application_codes_pass_through_resets() {
    let (mut pair, session) = Pair::open(1, &Config::default());
    let stream = pair.open_stream(Role::Client, session, Direction::Bidirectional).unwrap();
    pair.settle();
    let code = Code(codes::to_http_code(0xffff_0001));
    pair.signal(Role::Client, Transmit::Reset { stream, code });
    pair.signal(Role::Client, Transmit::Stop { stream, code });
    pair.settle();
    let received = &pair.server.streams[&stream];
    let codes =
        [received.reset, received.stop].map(|code| codes::to_application_code(code.unwrap().0));
    assert_eq!(codes, [Some(0xffff_0001); 2]);
}

#[test]
fn several_sessions_are_independent() {
    let config = with_flow_control(1 << 20, 10);
    let (mut pair, first) = Pair::open(1, &config);
    let second = pair.open_session();
    let kept = pair.open_stream(Role::Server, second, Direction::Bidirectional).unwrap();
    let gone = pair.open_stream(Role::Server, first, Direction::Bidirectional).unwrap();
    pair.settle();
    let client = &mut pair.client;
    client.sessions.close(&mut client.h3, first, 1, "").unwrap();
    pair.settle();
    assert_eq!(pair.client.streams[&gone].stop, Some(GONE));
    assert_eq!(pair.client.streams[&kept].stop, None);
    assert_eq!(pair.client.sessions.ids().collect::<Vec<_>>(), [second]);
}

#[test]
fn the_number_of_sessions_is_limited_at_both_ends() {
    let config = Config { sessions_max: 3, ..with_flow_control(1000, 10) };
    let mut pair = Pair::connected(1, &config);
    for _ in 0..3 {
        pair.connect(&[]).unwrap();
    }
    assert_eq!(pair.connect(&[]), Err(Error::TooManySessions));
    pair.settle();
    pair.make_hostile(Role::Client);
    let fourth = pair.request_by_hand("webtransport", HeaderMap::new());
    pair.settle();
    assert_eq!(pair.server.sessions.count(), 3);
    assert!(pair.client.others.iter().any(|event| matches!(
        event,
        ringloop_h3::Event::Reset { stream, code: Code::H3_REQUEST_REJECTED } if *stream == fourth
    )));
}

#[test]
fn without_flow_control_draft_13_has_one_session() {
    let mut pair = Pair::connected(1, &Config::default());
    assert_eq!(pair.server.sessions.dialect(), Some(Dialect::Draft13));
    let session = pair.open_session();
    assert_eq!(pair.connect(&[]), Err(Error::TooManySessions));
    let client = &mut pair.client;
    client.sessions.close(&mut client.h3, session, 0, "").unwrap();
    pair.settle();
    pair.open_session();
}

#[test]
fn stream_limits_hold_and_are_raised() {
    for from in ROLES {
        for direction in DIRECTIONS {
            let (mut pair, session) = Pair::open(1, &with_flow_control(1000, 2));
            let streams = [(); 2].map(|()| pair.open_stream(from, session, direction).unwrap());
            assert_eq!(pair.open_stream(from, session, direction), Err(Error::Blocked));
            pair.settle();
            let peer = pair.end(other(from));
            peer.sessions.stream_ended(&mut peer.h3, session, streams[0], None);
            pair.settle();
            let unblocked = pair.end(from).find(|event| match event {
                Event::StreamsUnblocked { direction, .. } => Some(*direction),
                _ => None,
            });
            assert_eq!(unblocked, direction);
            pair.open_stream(from, session, direction).unwrap();
            assert_eq!(pair.open_stream(from, session, direction), Err(Error::Blocked));
            pair.settle();
        }
    }
}

#[test]
fn data_limits_hold_and_are_raised_as_data_is_read() {
    let (mut pair, session) = Pair::open(1, &with_flow_control(100, 10));
    let stream = pair.open_stream(Role::Client, session, Direction::Unidirectional).unwrap();
    let client = &mut pair.client;
    let mut reserve = |wanted| client.sessions.reserve(&mut client.h3, session, wanted).unwrap();
    assert_eq!(reserve(60), 60);
    assert_eq!(reserve(60), 40);
    client.sessions.unreserve(session, 10);
    pair.write(Role::Client, stream, Bytes::from(vec![0; 90]), false);
    pair.settle();
    let server = &mut pair.server;
    let first = server.find(|event| match event {
        Event::Stream { data, .. } => Some(data.len() as u64),
        _ => None,
    });
    server.sessions.received(&mut server.h3, session, stream, 90 - first);
    server.sessions.read(&mut server.h3, session, stream, 70);
    pair.settle();
    pair.client.find(|event| matches!(event, Event::DataUnblocked { .. }).then_some(()));
    let client = &mut pair.client;
    assert_eq!(client.sessions.reserve(&mut client.h3, session, 1000), Ok(80));
}

#[test]
fn calls_in_the_wrong_state_change_nothing() {
    let (mut pair, session) = Pair::open(1, &Config::default());
    let server = &mut pair.server;
    let unknown = StreamId(400);
    let headers = HeaderMap::new;
    let again = server.sessions.accept(&mut server.h3, session, headers(), None);
    assert!(matches!(again, Err(Error::Unexpected(_))));
    let late = server.sessions.reject(&mut server.h3, session, StatusCode::NOT_FOUND, headers());
    assert!(matches!(late, Err(Error::Unexpected(_))));
    let not_ours = server.sessions.open(&mut server.h3, session, StreamId(0));
    assert!(matches!(not_ours, Err(Error::Unexpected(_))));
    let datagram = server.sessions.send_datagram(&mut server.h3, unknown, Bytes::new());
    assert_eq!(datagram, Err(Error::UnknownSession));
    assert_eq!(server.sessions.close(&mut server.h3, unknown, 0, ""), Err(Error::UnknownSession));
    assert_eq!(server.sessions.abort(&mut server.h3, unknown, GONE), Err(Error::UnknownSession));
    assert_eq!(server.sessions.drain(&mut server.h3, unknown), Err(Error::UnknownSession));
    let uri = http::Uri::from_static("https://example.org/");
    let connect = server.sessions.connect(&mut server.h3, StreamId(9), &uri, headers(), &[]);
    assert!(matches!(connect, Err(Error::Unexpected(_))));
    server.sessions.close(&mut server.h3, session, 0, "").unwrap();
    assert_eq!(server.sessions.close(&mut server.h3, session, 0, ""), Err(Error::UnknownSession));
    pair.settle();

    let mut pair = Pair::connected(1, &Config::default());
    let client = &mut pair.client;
    for uri in ["http://example.org/", "/path"] {
        let uri = http::Uri::from_static(uri);
        let connect = client.sessions.connect(&mut client.h3, StreamId(0), &uri, headers(), &[]);
        assert!(matches!(connect, Err(Error::Invalid(_))));
    }
    let uri = http::Uri::from_static("https://example.org/");
    let connect = client.sessions.connect(&mut client.h3, StreamId(0), &uri, headers(), &["ä"]);
    assert!(matches!(connect, Err(Error::Invalid(_))));
    assert_eq!(client.sessions.count(), 0);
    let session = pair.connect(&[]).unwrap();
    pair.settle();
    let server = &mut pair.server;
    let early = server.sessions.open(&mut server.h3, session, StreamId(1));
    assert!(matches!(early, Err(Error::Unexpected(_))));
    let ok = server.sessions.reject(&mut server.h3, session, StatusCode::OK, headers());
    assert!(matches!(ok, Err(Error::Invalid(_))));
}

#[test]
fn plain_requests_pass_by() {
    let mut pair = Pair::connected(1, &Config::default());
    let client = &mut pair.client;
    let stream = client.quic_stream(Direction::Bidirectional);
    let (mut parts, ()) = http::Request::get("https://example.org/").body(()).unwrap().into_parts();
    parts.headers.insert("x", HeaderValue::from_static("y"));
    client.h3.send_request(stream, &parts, true).unwrap();
    pair.settle();
    assert!(pair.server.others.iter().any(
        |event| matches!(event, ringloop_h3::Event::Request { stream: id, .. } if *id == stream)
    ));
    assert!(
        pair.server
            .others
            .iter()
            .any(|event| matches!(event, ringloop_h3::Event::End { stream: id } if *id == stream))
    );
}
