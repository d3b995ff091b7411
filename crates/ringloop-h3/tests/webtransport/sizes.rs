//! Credit of streams that were not read to their end: both ends count final sizes.

use crate::pair::Pair;
use crate::{DIRECTIONS, ROLES, ending, other, with_flow_control};
use bytes::Bytes;
use ringloop_h3::webtransport::{Direction, Ending, Event, codes};
use ringloop_h3::{Code, Role, StreamId, limits};

/// A stream with 40 bytes of a session that allows 100, of which the other end has read nothing.
fn unread(from: Role, direction: Direction) -> (Pair, StreamId, StreamId) {
    let (mut pair, session) = Pair::open(1, &with_flow_control(100, 10));
    let stream = pair.open_stream(from, session, direction).unwrap();
    let sender = pair.end(from);
    assert_eq!(sender.sessions.reserve(&mut sender.h3, session, 40), Ok(40));
    pair.write(from, stream, Bytes::from(vec![0; 40]), false);
    pair.settle();
    pair.end(other(from)).find(|event| matches!(event, Event::Stream { .. }).then_some(()));
    (pair, session, stream)
}

fn available(pair: &mut Pair, from: Role, session: StreamId) -> u64 {
    pair.settle();
    let sender = pair.end(from);
    let granted = sender.sessions.reserve(&mut sender.h3, session, 1000).unwrap();
    sender.sessions.unreserve(session, granted);
    granted
}

#[test]
fn credit_of_a_left_stream_comes_with_its_final_size_in_either_order() {
    for from in ROLES {
        for direction in DIRECTIONS {
            for leaves_first in [true, false] {
                let (mut pair, session, stream) = unread(from, direction);
                // 90 bytes in all, 50 of them in flight when the stream was stopped.
                let sender = pair.end(from);
                assert_eq!(sender.sessions.reserve(&mut sender.h3, session, 50), Ok(50));
                assert_eq!(available(&mut pair, from, session), 10);
                let reader = pair.end(other(from));
                let (sessions, h3) = (&mut reader.sessions, &mut reader.h3);
                let size = 3 + 90;
                if leaves_first {
                    sessions.leave_stream(h3, session, stream);
                    assert_eq!(sessions.kept()[1], 1, "its final size is still to come");
                    assert!(sessions.final_size(h3, stream, size));
                } else {
                    assert!(sessions.final_size(h3, stream, size));
                    assert!(sessions.final_size(h3, stream, size), "told twice");
                    sessions.leave_stream(h3, session, stream);
                }
                assert_eq!(sessions.kept()[1], 0);
                assert!(!sessions.final_size(h3, stream, size));
                assert_eq!(available(&mut pair, from, session), 100);
            }
        }
    }
}

#[test]
fn header_does_not_count() {
    let (mut pair, session, stream) = unread(Role::Client, Direction::Unidirectional);
    let server = &mut pair.server;
    server.sessions.leave_stream(&mut server.h3, session, stream);
    // Beyond its limit by the header alone.
    assert!(server.sessions.final_size(&mut server.h3, stream, 3 + 100));
    pair.settle();
    assert_eq!(pair.server.sessions.count(), 1);
}

#[test]
fn final_size_beyond_the_limit_is_a_violation() {
    let (mut pair, session, stream) = unread(Role::Client, Direction::Unidirectional);
    let server = &mut pair.server;
    server.sessions.leave_stream(&mut server.h3, session, stream);
    assert!(server.sessions.final_size(&mut server.h3, stream, 3 + 101));
    pair.settle();
    let code = Code(codes::FLOW_CONTROL_ERROR);
    assert!(
        matches!(ending(&mut pair, Role::Server), Ending::Failed { code: told, .. } if told == code)
    );
}

#[test]
fn stream_of_our_own_that_only_sends_has_no_final_size_to_wait_for() {
    let (mut pair, session, stream) = unread(Role::Client, Direction::Unidirectional);
    let client = &mut pair.client;
    client.sessions.leave_stream(&mut client.h3, session, stream);
    assert_eq!(client.sessions.kept()[1], 0);
}

#[test]
fn without_flow_control_a_left_stream_is_over() {
    let (mut pair, session) = Pair::open(1, &ringloop_h3::webtransport::Config::default());
    let stream = pair.open_stream(Role::Client, session, Direction::Bidirectional).unwrap();
    pair.settle();
    for role in ROLES {
        let end = pair.end(role);
        end.sessions.leave_stream(&mut end.h3, session, stream);
        assert_eq!(end.sessions.kept()[1], 0);
    }
}

#[test]
fn early_streams_are_known_and_counted() {
    let mut pair = Pair::connected(1, &with_flow_control(100, 10));
    let id = StreamId(400);
    let streams: Vec<StreamId> = (0..limits::EARLY_STREAMS_MAX + 5)
        .map(|_| {
            pair.stream_by_hand(Role::Client, Direction::Unidirectional, b"\x40\x54\x41\x90data")
        })
        .collect();
    pair.make_hostile(Role::Client);
    pair.settle();
    assert_eq!(id.0, 0x190);
    let sessions = &pair.server.sessions;
    let kept = streams.iter().filter(|stream| sessions.is_early(**stream)).count();
    assert_eq!(kept, limits::EARLY_STREAMS_MAX);
    assert_eq!(sessions.kept()[2], kept);
}
