//! Rewriting of payloads, frame by frame.

use super::*;

/// One frame of each type; [`LAST_FRAMES`] has the others.
const FRAMES: &[&[u8]] = &[
    &[0x00, 0x00],
    &[0x01],
    &[0x02, 0x05, 0x08, 0x01, 0x01, 0x00, 0x02],
    &[0x03, 0x05, 0x08, 0x00, 0x01, 0x40, 0x01, 2, 3],
    &[0x04, 0x04, 0x40, 0x77, 0x09],
    &[0x05, 0x04, 0x09],
    &[0x06, 0x00, 0x02, 1, 2],
    &[0x07, 0x02, 1, 2],
    &[0x0a, 0x04, 0x02, 0x24, 0x24],
    &[0x0b, 0x04, 0x00],
    &[0x0e, 0x04, 0x44, 0x00, 0x01, 0x24],
    &[0x0f, 0x04, 0x05, 0x00],
    &[0x10, 0x09],
    &[0x11, 0x04, 0x09],
    &[0x12, 0x09],
    &[0x13, 0x09],
    &[0x14, 0x09],
    &[0x15, 0x04, 0x09],
    &[0x16, 0x09],
    &[0x17, 0x09],
    &[0x18, 0x01, 0x00, 0x02, 7, 7, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    &[0x19, 0x00],
    &[0x1a, 1, 2, 3, 4, 5, 6, 7, 8],
    &[0x1b, 1, 2, 3, 4, 5, 6, 7, 8],
    &[0x1c, 0x05, 0x04, 0x01, b'a'],
    &[0x1d, 0x05, 0x01, b'a'],
    &[0x1e],
    &[0x1f],
    &[0x31, 0x02, 0x24, 0x24],
    &[0x40, 0xaf, 1, 2, 3, 4],
];

/// Frames that reach to the packet's end.
const LAST_FRAMES: &[&[u8]] =
    &[&[0x08, 0x04, 0x24, 1], &[0x0c, 0x04, 0x05, 0x24], &[0x30, 0x24, 0x24]];

/// Stream 6, code 0x777, final size 9, reliable size 5.
const RESET: &[u8] = &[0x24, 0x06, 0x47, 0x77, 0x09, 0x05];
const AS_STREAM: &[u8] = &[0x0f, 0x06, 0x09, 0x00, 0x00, 0x00];

fn opened(state: &mut State, payload: &[u8]) -> Vec<u8> {
    let mut payload = payload.to_vec();
    state.on_opened(Side::Server, &mut payload);
    payload
}

fn expanded(state: &State, frames: &[u8], room: usize) -> Vec<u8> {
    let mut payload = frames.to_vec();
    payload.resize(frames.len() + room, 0);
    state.expand(&mut payload, room);
    payload
}

#[test]
fn reset_is_rewritten_behind_and_before_every_frame() {
    for frame in FRAMES {
        let mut state = State::default();
        let payload = opened(&mut state, &[frame, RESET, frame, RESET].concat());
        assert_eq!(payload, [frame, AS_STREAM, frame, AS_STREAM].concat(), "{frame:02x?}");
        assert_eq!(state.received[&6], Received { code: 0x777, reliable_size: 5 });
    }
    for frame in LAST_FRAMES {
        let mut state = State::default();
        let payload = opened(&mut state, &[RESET, frame].concat());
        assert_eq!(payload, [AS_STREAM, frame].concat());
    }
}

#[test]
fn nothing_behind_a_frame_that_does_not_parse_is_rewritten() {
    let mut stopping = vec![vec![0x21], vec![0x40, 0x21], vec![0x3f, 0x00]];
    for frame in FRAMES.iter().chain(&[RESET]) {
        // A truncated frame reads the following bytes as its own: it must be the last.
        let cut = frame.len() - 1;
        if cut > 0 && frame[0] != 0 {
            let mut state = State::default();
            let whole = [FRAMES[1], &frame[..cut]].concat();
            assert_eq!(opened(&mut state, &whole), whole, "{frame:02x?}");
        }
    }
    stopping.push([&[0x0e, 0x04, 0x00, 0x7f, 0xff][..], RESET].concat());
    for first in stopping {
        let mut state = State::default();
        let whole = [&first[..], RESET].concat();
        assert_eq!(opened(&mut state, &whole), whole, "{first:02x?}");
        assert!(state.received.is_empty());
    }
}

#[test]
fn reliable_size_beyond_final_size_is_left_to_the_engine() {
    let mut state = State::default();
    let wrong = [0x24, 0x06, 0x07, 0x05, 0x06];
    let whole = [&wrong[..], RESET].concat();
    assert_eq!(opened(&mut state, &whole), whole);
    assert!(state.received.is_empty() && state.arrived.is_empty());
}

#[test]
fn long_encodings_are_replaced_by_shorter_frames() {
    let mut state = State::default();
    let large = (0x1234_5678u64 | 3 << 62).to_be_bytes();
    let frame = [&[0x40, 0x24][..], &large, &[0x07], &large, &[0x05]].concat();
    let payload = opened(&mut state, &[&frame[..], RESET].concat());
    let expected = [&[0x0f][..], &large, &large, &[0; 3], AS_STREAM].concat();
    assert_eq!(payload, expected);
    assert_eq!(state.received.len(), 2);
}

#[test]
fn smallest_reliable_size_counts_and_another_code_is_refused() {
    let mut state = State::default();
    for (reliable_size, smallest) in [(5, 5), (3, 3), (4, 3), (0, 0), (9, 0)] {
        opened(&mut state, &[0x24, 0x06, 0x07, 0x09, reliable_size]);
        assert_eq!(state.received[&6], Received { code: 7, reliable_size: smallest });
    }
    for other in [&[0x24, 0x06, 0x08, 0x09, 0x03][..], &[0x04, 0x06, 0x08, 0x09]] {
        let mut payload = other.to_vec();
        state.on_opened(Side::Client, &mut payload);
        assert_eq!(payload[..3], [0x0a, 0x02, 0x00]);
        assert_eq!(opened(&mut state, other)[..3], [0x0a, 0x03, 0x00]);
        assert_eq!(state.received[&6].code, 7);
    }
    let plain = [0x04, 0x06, 0x07, 0x09];
    assert_eq!(opened(&mut state, &plain), plain);
}

#[test]
fn head_is_acknowledged_once_all_its_bytes_are() {
    let shared = Shared::new(Side::Client);
    shared.keep_head(6, 5);
    let mut state = shared.state();
    // Bytes 0 to 2, a packet of another stream, 2 to 9, and 0 to 2 again.
    state.note_heads(10, &[0x0a, 0x06, 0x02, 1, 2]);
    state.note_heads(11, &[0x0a, 0x04, 0x01, 1]);
    state.note_heads(12, &[0x01, 0x0c, 0x06, 0x02, 3, 4, 5, 6, 7, 8, 9]);
    state.note_heads(13, &[0x0e, 0x06, 0x00, 0x02, 1, 2]);
    state.note_heads(14, &[0x0e, 0x06, 0x05, 0x01, 6]);
    assert_eq!(state.packets.len(), 3);
    opened(&mut state, &[0x02, 0x0b, 0x00, 0x00, 0x00]);
    opened(&mut state, &[0x02, 0x0c, 0x00, 0x00, 0x00]);
    assert!(!state.heads[&6].is_acknowledged());
    // 13 and 10.
    opened(&mut state, &[0x03, 0x0d, 0x00, 0x01, 0x00, 0x01, 0x00, 1, 2, 3]);
    assert!(state.heads[&6].is_acknowledged() && state.packets.is_empty());
    state.note_heads(15, &[0x0a, 0x06, 0x02, 1, 2]);
    assert!(state.packets.is_empty());
}

#[test]
fn copies_of_heads_that_are_never_acknowledged_are_bounded() {
    let shared = Shared::new(Side::Client);
    let streams = [2, 6, 10];
    for stream in streams {
        shared.keep_head(stream, 2);
    }
    let mut state = shared.state();
    let frames = streams.map(|stream| [0x0a, stream as u8, 0x02, 1, 2]).concat();
    for number in 0..10_000 {
        state.note_heads(number, &frames);
    }
    assert_eq!(state.packets.len(), 3 * usize::from(COPIES_MAX));
    // The acknowledged number was never noted.
    opened(&mut state, &[0x02, 0x67, 0x10, 0x00, 0x00, 0x00]);
    assert!(!state.heads[&2].is_acknowledged());
    // 9999, and 9990: 0x270f with its prefix, a gap of 7.
    opened(&mut state, &[0x02, 0x67, 0x0f, 0x00, 0x01, 0x00, 0x07, 0x00]);
    assert!(streams.iter().all(|stream| state.heads[stream].is_acknowledged()));
    assert!(state.packets.is_empty());
}

#[test]
fn longest_head_has_a_bit_for_each_byte() {
    let head = Head { len: RELIABLE_MAX as u8, acknowledged: 0, copies: 0 };
    assert_eq!(head.bits(0, u64::MAX), u64::MAX >> 1);
    assert_eq!(head.bits(62, 9), 1 << 62);
    assert_eq!(head.bits(63, 9), 0);
    assert_eq!(head.bits(1, 2), 0b110);
}

#[test]
fn resets_are_expanded_within_the_room() {
    let mut state = State::default();
    state.resetting.extend([(2, 5), (6, 9)]);
    let frames = [&[0x01][..], &[0x04, 0x02, 0x07, 0x40, 0x99], &[0x04, 0x0a, 0x07, 0x09]].concat();
    let last = [0x0c, 0x0e, 0x05, 0x04, 0x02, 0x07, 0x09];
    let frames = [&frames[..], &[0x04, 0x06, 0x01, 0x0b], &last].concat();
    let long = [
        &[0x00, 0x01, 0x24, 0x02, 0x07, 0x40, 0x99, 5, 0x04, 0x0a, 0x07, 0x09][..],
        &[0x24, 0x06, 0x01, 0x0b, 9],
        &last,
    ]
    .concat();
    assert_eq!(expanded(&state, &frames, 3), long);
    assert_eq!(expanded(&state, &frames, 2), long[1..]);
    // A late reset that has no room stays plain.
    let one = expanded(&state, &frames, 1);
    assert_eq!(one[..8], long[1..9]);
    assert!(one.ends_with(&[&[0x04, 0x06, 0x01, 0x0b][..], &last].concat()));
    let unknown = [&[0x21][..], &frames].concat();
    assert_eq!(expanded(&state, &unknown, 2), [&[0, 0][..], &unknown].concat());
}

#[test]
fn parameter_is_announced_under_both_numbers_and_read_under_either() {
    let mut bytes = vec![0x04, 0x01, 0x09];
    announce(&mut bytes);
    let expected =
        [&[0x04, 0x01, 0x09, 0x1d, 0x00][..], &[0xc0, 0x17, 0xf7, 0x58, 0x6d, 0x2c, 0xb5, 0x71, 0]];
    assert_eq!(bytes, expected.concat());
    for parameter in [&bytes[3..5], &bytes[5..]] {
        let shared = Shared::new(Side::Client);
        shared.read_parameters(&bytes[..3]).unwrap();
        assert!(!shared.is_taken_by_peer());
        shared.read_parameters(&[&bytes[..3], parameter].concat()).unwrap();
        assert!(shared.is_taken_by_peer());
    }
    let error = Shared::new(Side::Client).read_parameters(&[0x1d, 0x01, 0x00]).unwrap_err();
    assert_eq!(error.code, TransportErrorCode::TRANSPORT_PARAMETER_ERROR);
}
