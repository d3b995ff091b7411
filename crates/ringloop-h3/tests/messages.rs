//! What a connection makes of good messages, and how it answers the application.
#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::*;
use http::{HeaderMap, HeaderValue, header};
use ringloop_h3::{
    Code, Config, Event, Priority, Protocol, Role, Settings, StreamError, StreamId, Transmit,
};

fn text(events: &[Event]) -> String {
    let of_one = |event: &Event| match event {
        Event::Request { parts, .. } => format!("{} {}", parts.method, parts.uri),
        Event::Informational { parts, .. } | Event::Response { parts, .. } => {
            format!("{} {:?}", parts.status.as_u16(), parts.headers)
        }
        Event::Data { data, .. } => format!("data {}", data.len()),
        Event::Trailers { trailers, .. } => format!("trailers {trailers:?}"),
        Event::End { .. } => "end".to_owned(),
        Event::Reset { stream, code } => format!("reset {stream} {code}"),
        Event::Stopped { code, .. } => format!("stopped {code}"),
        Event::Failed { code, .. } => format!("failed {code}"),
        Event::GoAway { id } => format!("goaway {id}"),
        Event::PriorityUpdate { priority, .. } => format!("priority {priority}"),
        Event::Datagram { stream, data } => format!("datagram {stream} {data:?}"),
        other => format!("{other:?}"),
    };
    events.iter().map(of_one).collect::<Vec<_>>().join("; ")
}

#[test]
fn request_and_response_with_everything() {
    let mut pair = Pair::full();
    let mut parts = request_parts("POST", "https://user@example.org:8443/a?b=c");
    for (name, value) in [
        (header::CONNECTION, "close"),
        (header::TRANSFER_ENCODING, "chunked"),
        (header::TE, "trailers"),
        (header::HOST, "ignored"),
        (header::ACCEPT, "*/*"),
    ] {
        parts.headers.insert(name, HeaderValue::from_static(value));
    }
    let received = pair.request(&parts, false);
    assert_eq!(received.uri, "https://example.org:8443/a?b=c");
    assert_eq!(received.method, "POST");
    let names: Vec<&str> = received.headers.keys().map(header::HeaderName::as_str).collect();
    assert_eq!(names, ["te", "accept"]);

    let body = Bytes::from(vec![7; 100_000]);
    pair.client.send_data(STREAM, body.clone(), false).unwrap();
    pair.client.send_data(STREAM, Bytes::from_static(b"rest"), false).unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("digest", HeaderValue::from_static("1"));
    pair.client.send_trailers(STREAM, &trailers).unwrap();
    let sent = transmits(&mut pair.client);
    // The long body is not copied, the rest is sent in one piece.
    assert!(sent.iter().any(|transmit| matches!(
        transmit,
        Transmit::Stream { data, .. } if data.as_ptr() == body.as_ptr()
    )));
    assert_eq!(sent.len(), 3);
    deliver(&mut pair.server, sent);
    assert_eq!(
        text(&events(&mut pair.server)),
        "data 100000; data 4; trailers {\"digest\": \"1\"}; end"
    );

    pair.server.send_response(STREAM, &response_parts(103), false).unwrap();
    pair.server.send_response(STREAM, &response_parts(200), false).unwrap();
    pair.server.send_data(STREAM, Bytes::new(), false).unwrap();
    pair.server.send_data(STREAM, Bytes::from_static(b"hello"), true).unwrap();
    let (events, _) = pair.exchange();
    assert_eq!(text(&events), "103 {}; 200 {}; data 5; end");
    assert_eq!((pair.client.request_count(), pair.server.request_count()), (0, 0));
}

#[test]
fn forms_of_targets() {
    for (method, uri, protocol, expected) in [
        ("GET", "https://a", None, "GET https://a/"),
        ("GET", "https://a?q", None, "GET https://a/?q"),
        ("OPTIONS", "https://a/x", None, "OPTIONS https://a/x"),
        ("CONNECT", "a:443", None, "CONNECT a:443"),
        ("CONNECT", "https://a/chat", Some("websocket"), "CONNECT https://a/chat"),
    ] {
        let mut pair = Pair::full();
        let mut parts = request_parts(method, uri);
        if let Some(name) = protocol {
            parts.extensions.insert(Protocol::new(name));
        }
        let received = pair.request(&parts, false);
        assert_eq!(format!("{} {}", received.method, received.uri), expected);
        let received = received.extensions.get::<Protocol>();
        assert_eq!(received.map(Protocol::as_str), protocol);
    }
}

#[test]
fn cookies_are_joined_and_secrets_stay_secret() {
    let mut server = connection(Role::Server, Config::default());
    let crumbs = get_with(&[("cookie", "a=1"), ("x", "y"), ("cookie", "b=2"), ("cookie", "c=3")]);
    server.receive(STREAM, crumbs.into(), true).unwrap();
    let events = events(&mut server);
    let Event::Request { parts, .. } = &events[0] else {
        panic!("{events:?}");
    };
    assert_eq!(parts.headers[header::COOKIE], "a=1; b=2; c=3");
    assert_eq!(parts.version, http::Version::HTTP_3);

    let mut pair = Pair::full();
    let mut parts = request_parts("GET", "https://a/");
    let mut secret = HeaderValue::from_static("Bearer x");
    secret.set_sensitive(true);
    parts.headers.insert(header::AUTHORIZATION, secret);
    let received = pair.request(&parts, true);
    assert!(received.headers[header::AUTHORIZATION].is_sensitive());
}

#[test]
fn a_request_that_is_too_long_is_answered_with_431() {
    let small = Config {
        settings: Settings { field_section_bytes_max: Some(1000), ..Config::default().settings },
        fields_max: 20,
        ..Config::default()
    };
    let many: Vec<_> = (0..20).map(|_| ("a", "b")).collect();
    for fields in [&[("x", &*"y".repeat(5000))][..], &[("x", &*"y".repeat(900))], &many] {
        for len in [usize::MAX, 1] {
            let mut server = connection(Role::Server, small.clone());
            transmits(&mut server);
            let mut input = Bytes::from(get_with(fields));
            while !input.is_empty() && server.request_count() < 2 {
                let piece = input.split_to(len.min(input.len()));
                server.receive(STREAM, piece, false).unwrap();
                let sent = transmits(&mut server);
                if sent.is_empty() {
                    continue;
                }
                let [
                    Transmit::Stream { data, fin: true, .. },
                    Transmit::Stop { code: Code::H3_NO_ERROR, .. },
                ] = &sent[..2]
                else {
                    panic!("{sent:?}");
                };
                assert_eq!(data, &headers(&[(":status", "431")]));
                break;
            }
            assert_eq!(text(&events(&mut server)), "failed H3_NO_ERROR");
            assert_eq!(server.request_count(), 0);
        }
    }
    // A client that knows the limit sends nothing.
    let mut pair = Pair::new(Config::default(), small);
    let mut parts = request_parts("GET", "https://a/");
    let long = HeaderValue::from_str(&"y".repeat(900)).unwrap();
    parts.headers.insert("x", long);
    let sent = pair.client.send_request(STREAM, &parts, true);
    assert_eq!(sent, Err(StreamError::SectionTooLong));
    assert_eq!(pair.client.request_count(), 0);
}

#[test]
fn shutdown_of_a_server() {
    let mut pair = Pair::full();
    let parts = request_parts("GET", "https://a/");
    for id in [0, 4, 8] {
        pair.client.send_request(StreamId(id), &parts, true).unwrap();
    }
    let sent = transmits(&mut pair.client);
    // The last request is still on its way.
    let is_last =
        |transmit: &Transmit| matches!(transmit, Transmit::Stream { stream: StreamId(8), .. });
    let (late, early): (Vec<_>, Vec<_>) = sent.into_iter().partition(is_last);
    deliver(&mut pair.server, early);
    pair.server.announce_go_away();
    pair.server.go_away();
    pair.server.go_away();
    let announced = transmits(&mut pair.server);
    deliver(&mut pair.client, announced);
    assert_eq!(
        text(&events(&mut pair.client)),
        "goaway 4611686018427387900; goaway 8; reset 8 H3_REQUEST_REJECTED"
    );
    let sent = pair.client.send_request(StreamId(12), &parts, true);
    assert_eq!(sent, Err(StreamError::GoingAway));
    events(&mut pair.server);
    deliver(&mut pair.server, late);
    assert!(events(&mut pair.server).is_empty());
    let code = Code::H3_REQUEST_REJECTED;
    let stream = StreamId(8);
    assert_eq!(
        transmits(&mut pair.server)[..2],
        [Transmit::Reset { stream, code }, Transmit::Stop { stream, code }]
    );
    for id in [0, 4] {
        pair.server.send_response(StreamId(id), &response_parts(204), true).unwrap();
    }
    let (events, _) = pair.exchange();
    assert_eq!(text(&events), "204 {}; end; 204 {}; end");
    assert_eq!((pair.client.request_count(), pair.server.request_count()), (0, 0));
}

#[test]
fn shutdown_of_a_client() {
    let mut pair = Pair::full();
    pair.client.go_away();
    let (_, events) = pair.exchange();
    assert_eq!(text(&events), "goaway 0");
}

#[test]
fn priorities() {
    let mut pair = Pair::full();
    let mut parts = request_parts("GET", "https://a/");
    parts.headers.insert("priority", HeaderValue::from_static("u=1, i"));
    pair.request(&parts, false);
    let urgency = |pair: &Pair| pair.server.priority(STREAM).map(|priority| priority.urgency);
    assert_eq!(urgency(&pair), Some(1));
    let later = Priority { urgency: 6, incremental: false };
    pair.client.send_priority(STREAM, later).unwrap();
    let (_, events) = pair.exchange();
    assert_eq!(text(&events), "priority u=6");
    assert_eq!(urgency(&pair), Some(6));

    // One that arrives before its request takes precedence over the field.
    let mut server = connection(Role::Server, Config::default());
    let early = [control(&[]), frame(PRIORITY_UPDATE, b"\0u=7")].concat();
    server.receive(StreamId(2), early.into(), false).unwrap();
    let request = get_with(&[("priority", "u=2")]);
    server.receive(STREAM, request.into(), false).unwrap();
    assert_eq!(server.priority(STREAM).unwrap().urgency, 7);
}

#[test]
fn datagrams_need_both_ends() {
    let mut pair = Pair::full();
    let parts = request_parts("GET", "https://a/");
    pair.request(&parts, false);
    let data = Bytes::from_static(b"ping");
    pair.client.send_datagram(STREAM, data.clone()).unwrap();
    pair.server.send_datagram(STREAM, data.clone()).unwrap();
    let (client, server) = pair.exchange();
    assert_eq!(text(&client), "datagram 0 b\"ping\"");
    assert_eq!(text(&server), "datagram 0 b\"ping\"");
    let sent = pair.client.send_datagram(StreamId(4), data.clone());
    assert_eq!(sent, Err(StreamError::Unknown));

    for (client, server) in [(full_config(), Config::default()), (Config::default(), full_config())]
    {
        let mut pair = Pair::new(client, server);
        pair.request(&parts, false);
        let sent = pair.client.send_datagram(STREAM, data.clone());
        assert_eq!(sent, Err(StreamError::NotSupported("datagrams")));
    }
    let mut server = connection(Role::Server, Config::default());
    server.receive_datagram(data).unwrap();
    assert!(events(&mut server).is_empty());
}

#[test]
fn cancellation() {
    let mut pair = Pair::full();
    let parts = request_parts("POST", "https://a/");
    pair.request(&parts, false);
    pair.client.cancel(STREAM, Code::H3_REQUEST_CANCELLED).unwrap();
    let again = pair.client.cancel(STREAM, Code::H3_REQUEST_CANCELLED);
    assert_eq!(again, Err(StreamError::Unknown));
    let (_, events) = pair.exchange();
    assert_eq!(text(&events), "reset 0 H3_REQUEST_CANCELLED; stopped H3_REQUEST_CANCELLED");
    assert_eq!(pair.server.request_count(), 0);

    // A server that needs no more of the body.
    let mut pair = Pair::full();
    pair.request(&parts, false);
    pair.server.send_response(STREAM, &response_parts(200), true).unwrap();
    pair.server.stop(STREAM, Code::H3_NO_ERROR).unwrap();
    assert_eq!(pair.server.request_count(), 0);
    let sent = transmits(&mut pair.server);
    deliver(&mut pair.client, sent);
    assert_eq!(text(&common::events(&mut pair.client)), "200 {}; end; stopped H3_NO_ERROR");
    assert_eq!(pair.client.request_count(), 0);
    let reset = transmits(&mut pair.client);
    assert!(reset.contains(&Transmit::Reset { stream: STREAM, code: Code::H3_NO_ERROR }));
}

#[test]
fn misuse_changes_nothing() {
    let mut pair = Pair::full();
    let parts = request_parts("GET", "https://a/");
    let unexpected = |result| assert!(matches!(result, Err(StreamError::Unexpected(_))));
    let invalid = |result| assert!(matches!(result, Err(StreamError::Invalid(_))));
    let ok = response_parts(200);
    unexpected(pair.server.send_request(StreamId(1), &parts, true));
    unexpected(pair.client.send_request(StreamId(2), &parts, true));
    unexpected(pair.client.send_response(STREAM, &ok, true));
    invalid(pair.client.send_request(STREAM, &request_parts("GET", "/a"), true));
    let empty = HeaderMap::new();
    assert_eq!(pair.client.send_trailers(STREAM, &empty), Err(StreamError::Unknown));
    let data = Bytes::from_static(b"x");
    assert_eq!(pair.client.send_data(STREAM, data.clone(), true), Err(StreamError::Unknown));
    let sent = pair.exchange();
    assert!(sent.0.is_empty() && sent.1.is_empty());

    pair.request(&parts, true);
    unexpected(pair.client.send_request(STREAM, &parts, true));
    assert_eq!(pair.client.send_data(STREAM, data.clone(), true), Err(StreamError::Closed));
    unexpected(pair.server.send_data(STREAM, data.clone(), false));
    invalid(pair.server.send_response(STREAM, &response_parts(101), false));
    invalid(pair.server.send_response(STREAM, &response_parts(100), true));
    pair.server.send_response(STREAM, &ok, false).unwrap();
    unexpected(pair.server.send_response(STREAM, &ok, false));
    pair.server.send_data(STREAM, data, true).unwrap();
    let (events, _) = pair.exchange();
    assert_eq!(text(&events), "200 {}; data 1; end");

    let mut pair = Pair::new(Config::default(), Config::default());
    let mut parts = request_parts("CONNECT", "https://a/");
    parts.extensions.insert(Protocol::new("websocket"));
    let sent = pair.client.send_request(STREAM, &parts, false);
    assert_eq!(sent, Err(StreamError::NotSupported("extended CONNECT")));
}

#[test]
fn early_requests_use_remembered_settings() {
    let server = full_config().settings;
    let config = Config { remembered: Some(server), ..full_config() };
    let mut client = connection(Role::Client, config);
    let mut parts = request_parts("CONNECT", "https://a/");
    parts.extensions.insert(Protocol::new("websocket"));
    client.send_request(STREAM, &parts, false).unwrap();
    client.send_datagram(STREAM, Bytes::from_static(b"x")).unwrap();
    assert_eq!(client.peer_settings(), None);
    let mut server = connection(Role::Server, full_config());
    deliver(&mut server, transmits(&mut client));
    deliver(&mut client, transmits(&mut server));
    assert!(client.peer_settings().is_some());
}

#[test]
fn streams_of_webtransport_are_handed_out() {
    let config = Config { raw_streams: true, ..full_config() };
    for (role, ids) in [(Role::Server, [4, 6]), (Role::Client, [1, 7])] {
        for len in [1, 2, 100] {
            for (id, signal) in ids.into_iter().zip([0x41, 0x54]) {
                let mut connection = connection(role, config.clone());
                let sent = integers(&[signal, 1 << 20]);
                let mut sent = Bytes::from([&sent[..], b"rest"].concat());
                let mut found = Vec::new();
                while found.is_empty() {
                    let piece = sent.split_to(len.min(sent.len()));
                    let fin = sent.is_empty();
                    connection.receive(StreamId(id), piece, fin).unwrap();
                    found = events(&mut connection);
                }
                let [Event::Raw { stream, session, data, fin }] = &found[..] else {
                    panic!("{found:?}");
                };
                assert_eq!((*stream, *session), (StreamId(id), StreamId(1 << 20)));
                assert_eq!([&data[..], &sent[..]].concat(), b"rest");
                assert_eq!(*fin, sent.is_empty());
                assert_eq!(connection.request_count(), 0);
            }
        }
    }
}

#[test]
fn response_is_reset_while_the_request_is_read() {
    let mut pair = Pair::full();
    pair.request(&request_parts("POST", "https://a/"), false);
    let server = &mut pair.server;
    server.reset(STREAM, Code::H3_INTERNAL_ERROR).unwrap();
    server.reset(STREAM, Code::H3_INTERNAL_ERROR).unwrap();
    assert_eq!(server.send_response(STREAM, &response_parts(200), true), Err(StreamError::Closed));
    let (found, _) = pair.exchange();
    assert!(
        matches!(found[..], [Event::Reset { stream: STREAM, code: Code::H3_INTERNAL_ERROR }]),
        "{found:?}"
    );
    let client = &mut pair.client;
    client.send_data(STREAM, Bytes::from_static(b"x"), true).unwrap();
    let (_, found) = pair.exchange();
    assert!(matches!(&found[..], [Event::Data { .. }, Event::End { .. }]), "{found:?}");
    assert_eq!(pair.client.request_count(), 0);
    assert_eq!(pair.server.request_count(), 0);
}

/// A section that refers to the first insertion of `x: y`, and the insertion.
fn blocked_request() -> (Vec<u8>, Vec<u8>) {
    let mut section = vec![2, 0];
    // GET, https, /; :authority literal; the entry of the dynamic table.
    section.extend_from_slice(&[0xd1, 0xd7, 0xc1, 0x50, 1, b'a', 0x80]);
    // Capacity 100, and the insertion.
    (frame(HEADERS, &section), vec![2, 0x3f, 69, 0x41, b'x', 1, b'y'])
}

#[test]
fn blocked_streams_are_continued_in_order() {
    let (request, insertion) = blocked_request();
    let trailers = headers(&[("t", "u")]);
    let rest = [frame(DATA, b"abc"), trailers].concat();
    let mut server = connection(Role::Server, Config::default());
    let all = [request, rest].concat();
    server.receive(STREAM, all.into(), false).unwrap();
    assert!(server.is_blocked(STREAM));
    assert!(events(&mut server).is_empty());
    server.receive(STREAM, Bytes::new(), true).unwrap();
    server.receive(StreamId(6), insertion.into(), false).unwrap();
    assert!(!server.is_blocked(STREAM));
    assert_eq!(text(&events(&mut server)), "GET https://a/; data 3; trailers {\"t\": \"u\"}; end");
    // What the decoder stream carries: Section Acknowledgment of stream 0.
    let sent = transmits(&mut server);
    let decoder = StreamId(11);
    assert!(sent.iter().any(|transmit| matches!(
        transmit,
        Transmit::Stream { stream, data, .. } if *stream == decoder && data[..] == [0x80]
    )));
}

#[test]
fn blocked_streams_can_be_reset_and_hold_little() {
    let (request, insertion) = blocked_request();
    let mut server = connection(Role::Server, Config::default());
    server.receive(STREAM, request.clone().into(), false).unwrap();
    server.receive_reset(STREAM, Code::H3_REQUEST_CANCELLED).unwrap();
    assert_eq!(server.request_count(), 0);
    server.receive(StreamId(6), insertion.into(), false).unwrap();
    assert!(events(&mut server).is_empty());

    let mut server = connection(Role::Server, Config::default());
    server.receive(STREAM, request.into(), false).unwrap();
    let piece = Bytes::from(vec![0; 64 << 10]);
    let mut send = || server.receive(STREAM, piece.clone(), false);
    let failed = (0..100).find_map(|index| send().err().map(|error| (index, error.code)));
    assert_eq!(failed, Some((4, Code::H3_EXCESSIVE_LOAD)));
}
