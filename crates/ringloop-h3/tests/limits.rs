//! How much a peer may send to no effect before its connection ends.
#![allow(clippy::unwrap_used)]

mod common;

use bytes::Bytes;
use common::*;
use ringloop_h3::{Code, Config, Event, Role, StreamId};

#[test]
fn cancelled_requests_are_limited() {
    let config = Config { resets_max: 10, ..Config::default() };
    // Never more than half of the requests: no limit.
    let mut server = connection(Role::Server, config.clone());
    for index in 0..1000 {
        let stream = StreamId(index * 4);
        server.receive(stream, get().into(), true).unwrap();
        if index % 2 == 0 {
            server.receive_stop(stream, Code::H3_REQUEST_CANCELLED).unwrap();
        } else {
            server.send_response(stream, &response_parts(200), true).unwrap();
        }
        transmits(&mut server);
        events(&mut server);
    }
    assert_eq!(server.request_count(), 0);
    // Reset at once, reset before anything arrived, or malformed.
    for kind in 0..3 {
        let mut server = connection(Role::Server, config.clone());
        let mut attack = |index: u64| {
            let stream = StreamId(index * 4);
            match kind {
                0 => {
                    server.receive(stream, get().into(), false)?;
                    server.receive_reset(stream, Code::H3_REQUEST_CANCELLED)?;
                    server.receive_stop(stream, Code::H3_REQUEST_CANCELLED)
                }
                1 => server.receive_reset(stream, Code::H3_REQUEST_CANCELLED),
                _ => server.receive(stream, headers(&[("x", "y")]).into(), true),
            }
        };
        let failed = (0..1000).find(|index| attack(*index).is_err());
        assert_eq!(failed, Some(10), "{kind}");
    }
}

#[test]
fn frames_without_effect_are_limited() {
    let config = Config { idle_frames_max: 100, ..full_config() };
    let id = |id| frame(MAX_PUSH_ID, &[id]);
    for (stream, start, idle) in [
        (2, control(&[]), id(0)),
        (2, control(&[]), frame(0x21, b"")),
        (2, control(&[]), frame(GOAWAY, &[0])),
        (2, control(&[]), frame(PRIORITY_UPDATE, b"\0u=1")),
        (0, get(), frame(DATA, b"")),
        (0, get(), frame(0x21, b"")),
    ] {
        let mut server = connection(Role::Server, config.clone());
        server.receive(StreamId(stream), start.into(), false).unwrap();
        let idle = Bytes::from(idle);
        let mut send = || server.receive(StreamId(stream), idle.clone(), false);
        let failed = (0..1000).find_map(|index| send().err().map(|error| (index, error.code)));
        assert_eq!(failed, Some((100, Code::H3_EXCESSIVE_LOAD)));
    }
    // With requests between them there is no limit.
    let mut server = connection(Role::Server, config);
    server.receive(StreamId(2), control(&[]).into(), false).unwrap();
    for index in 0..1000 {
        server.receive(StreamId(index * 4), get().into(), true).unwrap();
        server.receive(StreamId(2), id(0).into(), false).unwrap();
        server.receive(StreamId(2), frame(0x21, b"").into(), false).unwrap();
        events(&mut server);
    }
}

#[test]
fn streams_without_a_type_are_limited() {
    let mut server = connection(Role::Server, Config::default());
    let mut open = |index: u64| server.receive(StreamId(2 + index * 4), Bytes::new(), false);
    let failed = (0..1000).find_map(|index| open(index).err().map(|error| (index, error.code)));
    assert_eq!(failed, Some((256, Code::H3_EXCESSIVE_LOAD)));
}

#[test]
fn header_of_a_unidirectional_stream_is_known_before_what_follows_is_read() {
    let config = Config { raw_streams: true, ..Config::default() };
    let stream = StreamId(2);
    for (header, is_raw) in
        [(&b"\x40\x54\x04"[..], true), (b"\x40\x54\x80\0\0\x04", true), (b"\0", false)]
    {
        let mut server = connection(Role::Server, config.clone());
        let mut rest = header;
        while let Some(missing) = server.header_bytes_missing(stream) {
            if is_raw {
                assert!(missing <= rest.len(), "{missing} of {rest:?}");
            }
            let (now, later) = rest.split_at(missing.min(rest.len()));
            rest = later;
            server.receive(stream, Bytes::copy_from_slice(now), false).unwrap();
            if !server.is_reading(stream) {
                break;
            }
        }
        assert_eq!(rest, b"");
        assert_eq!(server.is_reading(stream), !is_raw);
        let is_handed_out =
            matches!(server.poll_event(), Some(Event::Raw { data, .. }) if data.is_empty());
        assert_eq!(is_handed_out, is_raw);
    }
}

#[test]
fn refused_streams_are_not_to_be_read_any_further() {
    let mut server = connection(Role::Server, Config::default());
    let (unknown, malformed) = (StreamId(2), StreamId(0));
    server.receive(unknown, Bytes::from_static(b"\x21"), false).unwrap();
    assert!(!server.is_reading(unknown));
    server.receive(malformed, Bytes::from_static(b"\x01\x03\0\0\xd9"), false).unwrap();
    assert!(!server.is_reading(malformed));
}
