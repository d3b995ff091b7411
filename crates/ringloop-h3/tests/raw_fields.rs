//! Field sections that the application takes and gives as they are on the wire, and the declared length of their bodies.
#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::*;
use ringloop_h3::qpack::{Field, Line};
use ringloop_h3::{Code, Config, Event, StreamError};

/// A client and a server that hand out field sections as they came.
fn raw_pair() -> Pair {
    let config = || Config { raw_fields: true, ..full_config() };
    Pair::new(config(), config())
}

fn lines<'a>(fields: &[(&'a str, &'a str)]) -> Vec<Line<'a>> {
    let fields = fields.iter();
    fields.map(|(name, value)| Line::new(name.as_bytes(), value.as_bytes())).collect()
}

fn fields(fields: &[(&'static str, &'static str)]) -> Vec<Field> {
    let fields = fields.iter();
    fields.map(|(name, value)| Field::new(*name, *value)).collect()
}

/// The field sections of events, and whether the message has ended.
fn sections(events: Vec<Event>) -> (Vec<Vec<Field>>, bool) {
    let mut sections = Vec::new();
    let mut is_end = false;
    for event in events {
        match event {
            Event::Fields { stream, fields } => {
                assert_eq!(stream, STREAM);
                sections.push(fields);
            }
            Event::End { .. } => is_end = true,
            other => panic!("{other:?}"),
        }
    }
    (sections, is_end)
}

#[test]
fn raw_fields_keep_their_order_and_duplicates() {
    let mut pair = raw_pair();
    let more = [("cookie", "a=1"), ("x", "1"), ("cookie", "b=2"), ("x", "2")];
    let request = [GET, &more].concat();
    let client = &mut pair.client;
    client.send_request_fields(STREAM, &lines(&request), false).unwrap();
    let trailers = [("sum", "1"), ("sum", "2")];
    // They end the message whatever is said.
    client.send_fields(STREAM, &lines(&trailers), false).unwrap();
    assert_eq!(client.send_fields(STREAM, &lines(&trailers), true), Err(StreamError::Closed));
    assert_eq!(sections(pair.exchange().1), (vec![fields(&request), fields(&trailers)], true));
    let [early, last] = [[(":status", "103")], [(":status", "200")]];
    let server = &mut pair.server;
    assert_eq!(
        server.send_fields(STREAM, &lines(&early), true),
        Err(StreamError::Invalid("an interim response cannot end the message"))
    );
    server.send_fields(STREAM, &lines(&early), false).unwrap();
    server.send_fields(STREAM, &lines(&last), true).unwrap();
    assert_eq!(sections(pair.exchange().0), (vec![fields(&early), fields(&last)], true));
    assert_eq!(pair.client.request_count(), 0);
    assert_eq!(pair.server.request_count(), 0);
}

#[test]
fn raw_fields_are_checked_where_they_arrive() {
    for wrong in [
        [GET, &[("X", "y")]].concat(),
        [GET, &[("connection", "close")]].concat(),
        vec![(":method", "GET")],
    ] {
        let mut pair = raw_pair();
        let client = &mut pair.client;
        client.send_request_fields(STREAM, &lines(&wrong), true).unwrap();
        let (_, found) = pair.exchange();
        let [Event::Failed { code, .. }] = found[..] else {
            panic!("{found:?}");
        };
        assert_eq!(code, Code::H3_MESSAGE_ERROR);
    }
}

#[test]
fn raw_response_to_head_has_no_body() {
    let mut pair = raw_pair();
    let head = [&[(":method", "HEAD")], &GET[1..]].concat();
    let client = &mut pair.client;
    client.send_request_fields(STREAM, &lines(&head), true).unwrap();
    pair.exchange();
    let response = [(":status", "200"), ("content-length", "7")];
    let server = &mut pair.server;
    server.send_fields(STREAM, &lines(&response), true).unwrap();
    assert_eq!(sections(pair.exchange().0), (vec![fields(&response)], true));
}

/// RFC 9110 §6.4.1: HEAD, 204 and 304 have no content, and a client takes DATA as malformed.
#[test]
fn body_of_a_response_without_content_is_not_sent() {
    for (method, status) in [("HEAD", "200"), ("GET", "204"), ("GET", "304")] {
        let mut pair = raw_pair();
        let request = [&[(":method", method)], &GET[1..]].concat();
        pair.client.send_request_fields(STREAM, &lines(&request), true).unwrap();
        pair.exchange();
        let server = &mut pair.server;
        server.send_fields(STREAM, &lines(&[(":status", status)]), false).unwrap();
        server.send_data(STREAM, Bytes::from_static(b"a body"), false).unwrap();
        server.send_data(STREAM, Bytes::from_static(b"and more"), true).unwrap();
        let received = pair.exchange().0;
        assert_eq!(sections(received), (vec![fields(&[(":status", status)])], true));
    }
}

fn is_complete(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::End { stream: STREAM }))
}

/// RFC 9114 §4.1.2: for requests and responses, in one or several parts, with and without trailers.
#[test]
fn body_of_another_length_than_declared_is_refused() {
    let declared = [GET, &[("content-length", "3")]].concat();
    let too_long = |given| Err(StreamError::BodyTooLong { declared: 3, given });
    let too_short = |given| Err(StreamError::BodyTooShort { declared: 3, given });
    let part = |text: &'static str| Bytes::from_static(text.as_bytes());

    let mut pair = raw_pair();
    let client = &mut pair.client;
    assert_eq!(client.send_request_fields(STREAM, &lines(&declared), true), too_short(0));
    client.send_request_fields(STREAM, &lines(&declared), false).unwrap();
    assert_eq!(client.send_data(STREAM, part("abcd"), true), too_long(4));
    client.send_data(STREAM, part("ab"), false).unwrap();
    assert_eq!(client.send_data(STREAM, part("cd"), true), too_long(4));
    assert_eq!(client.send_data(STREAM, part(""), true), too_short(2));
    assert_eq!(client.send_fields(STREAM, &lines(&[("x", "y")]), true), too_short(2));
    client.send_data(STREAM, part("c"), false).unwrap();
    client.send_fields(STREAM, &lines(&[("x", "y")]), true).unwrap();
    let received = pair.exchange().1;
    assert!(is_complete(&received), "{received:?}");

    let response = lines(&[(":status", "200"), ("content-length", "3")]);
    let server = &mut pair.server;
    assert_eq!(server.send_fields(STREAM, &response, true), too_short(0));
    server.send_fields(STREAM, &response, false).unwrap();
    assert_eq!(server.send_data(STREAM, part("abcd"), false), too_long(4));
    assert_eq!(server.send_data(STREAM, part("ab"), true), too_short(2));
    server.send_data(STREAM, part("abc"), true).unwrap();
    assert!(is_complete(&pair.exchange().0));
}

#[test]
fn declared_length_of_a_tunnel_or_of_no_content_does_not_count() {
    let declared = |status| [(":status", status), ("content-length", "3")];
    let connect = [(":method", "CONNECT"), (":authority", "a"), ("content-length", "3")];
    let head = [&[(":method", "HEAD")], &GET[1..]].concat();
    for (request, status) in [(&connect[..], "200"), (&head, "200"), (GET, "204"), (GET, "304")] {
        let mut pair = raw_pair();
        pair.client.send_request_fields(STREAM, &lines(request), false).unwrap();
        pair.client.send_data(STREAM, Bytes::new(), true).unwrap();
        pair.exchange();
        let server = &mut pair.server;
        server.send_fields(STREAM, &lines(&declared(status)), false).unwrap();
        server.send_data(STREAM, Bytes::from_static(b"longer"), true).unwrap();
        assert!(is_complete(&pair.exchange().0), "{status}");
    }
    let mut pair = raw_pair();
    pair.client.send_request_fields(STREAM, &lines(&connect), false).unwrap();
    pair.exchange();
    let refused = pair.server.send_fields(STREAM, &lines(&declared("403")), true);
    assert_eq!(refused, Err(StreamError::BodyTooShort { declared: 3, given: 0 }));
}
