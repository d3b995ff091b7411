//! Parses frames from a stream's bytes, split at arbitrary points.

use crate::varint::Partial;
use bytes::{Buf, Bytes, BytesMut};

/// An item returned by [`Reader::next`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A frame begins. Choose [`Reader::pass`] or [`Reader::gather`] before the next call, or it is skipped.
    Head { kind: u64, len: u64 },
    /// A part of a passed frame's payload; never empty.
    Part(Bytes),
    /// A gathered frame's whole payload.
    Whole { kind: u64, payload: Bytes },
}

/// Reads the frames of one stream.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    state: State,
    integer: Partial,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Kind,
    Len {
        kind: u64,
    },
    Skip {
        left: u64,
    },
    Pass {
        left: u64,
    },
    Gather {
        kind: u64,
        left: u64,
        gathered: BytesMut,
    },
}

impl Reader {
    /// Takes the next item off the front of `input`; `None` once `input` is empty.
    pub(crate) fn next(&mut self, input: &mut Bytes) -> Option<Item> {
        loop {
            match &mut self.state {
                State::Kind => {
                    let kind = self.integer.read(input)?;
                    self.state = State::Len { kind };
                }
                State::Len { kind } => {
                    let kind = *kind;
                    let len = self.integer.read(input)?;
                    self.state = State::Skip { left: len };
                    return Some(Item::Head { kind, len });
                }
                State::Skip { left: 0 } | State::Pass { left: 0 } => self.state = State::Kind,
                State::Gather { kind, left: 0, gathered } => {
                    let kind = *kind;
                    let payload = std::mem::take(gathered).freeze();
                    self.state = State::Kind;
                    return Some(Item::Whole { kind, payload });
                }
                _ if input.is_empty() => return None,
                State::Skip { left } => {
                    let len = within(*left, input);
                    input.advance(len);
                    *left -= len as u64;
                }
                State::Pass { left } => {
                    let len = within(*left, input);
                    *left -= len as u64;
                    return Some(Item::Part(input.split_to(len)));
                }
                State::Gather { kind, left, gathered } => {
                    let len = within(*left, input);
                    if gathered.is_empty() && len as u64 == *left {
                        let kind = *kind;
                        self.state = State::Kind;
                        let payload = input.split_to(len);
                        return Some(Item::Whole { kind, payload });
                    }
                    gathered.extend_from_slice(&input.split_to(len));
                    *left -= len as u64;
                }
            }
        }
    }

    /// Returns the current frame's payload in parts, as it arrives.
    pub(crate) fn pass(&mut self) {
        if let State::Skip { left } = self.state {
            self.state = State::Pass { left };
        }
    }

    /// Buffers the payload of the current frame, of type `kind`, until it is complete.
    pub(crate) fn gather(&mut self, kind: u64) {
        if let State::Skip { left } = self.state {
            self.state = State::Gather { kind, left, gathered: BytesMut::new() };
        }
    }

    /// True between two frames: a stream may end here.
    pub(crate) fn is_between_frames(&self) -> bool {
        match self.state {
            State::Kind => self.integer.is_empty(),
            State::Skip { left } | State::Pass { left } => left == 0,
            State::Len { .. } | State::Gather { .. } => false,
        }
    }
}

/// The length of `input`, or `left` if that is less.
fn within(left: u64, input: &Bytes) -> usize {
    usize::try_from(left).map_or(input.len(), |left| left.min(input.len()))
}

#[cfg(test)]
mod tests {
    use super::super::{DATA, HEADERS, write_head};
    use super::*;

    /// Kind, and payload unless skipped.
    type Frames = Vec<(u64, Option<Vec<u8>>)>;

    fn read(reader: &mut Reader, pieces: &[&[u8]]) -> Frames {
        let mut frames = Frames::new();
        for piece in pieces {
            let mut input = Bytes::copy_from_slice(piece);
            while let Some(item) = reader.next(&mut input) {
                match item {
                    Item::Head { kind: DATA, .. } => {
                        reader.pass();
                        frames.push((DATA, Some(Vec::new())));
                    }
                    Item::Head { kind: HEADERS, .. } => reader.gather(HEADERS),
                    Item::Head { kind, .. } => frames.push((kind, None)),
                    Item::Part(part) => {
                        let payload = frames.last_mut().unwrap().1.as_mut().unwrap();
                        payload.extend_from_slice(&part);
                    }
                    Item::Whole { kind, payload } => frames.push((kind, Some(payload.to_vec()))),
                }
            }
            assert!(input.is_empty());
        }
        frames
    }

    #[test]
    fn frames_are_the_same_wherever_they_are_cut() {
        let mut sent = Vec::new();
        let mut expected = Frames::new();
        for (kind, len) in
            [(DATA, 0), (HEADERS, 5), (0x21, 70), (DATA, 66), (HEADERS, 0), (0x40, 0)]
        {
            write_head(&mut sent, kind, len);
            let payload: Vec<u8> = (0..len as u8).collect();
            sent.extend_from_slice(&payload);
            expected.push((kind, matches!(kind, DATA | HEADERS).then_some(payload)));
        }
        for first in 0..=sent.len() {
            for second in first..=sent.len() {
                let pieces = [&sent[..first], &sent[first..second], &sent[second..]];
                let mut reader = Reader::default();
                assert_eq!(read(&mut reader, &pieces), expected);
                assert!(reader.is_between_frames());
            }
        }
    }

    #[test]
    fn data_is_not_copied() {
        let mut input = Bytes::from_static(b"\x00\x05hello");
        let payload = input.slice(2..);
        let mut reader = Reader::default();
        assert_eq!(reader.next(&mut input), Some(Item::Head { kind: DATA, len: 5 }));
        reader.pass();
        let Some(Item::Part(part)) = reader.next(&mut input) else {
            panic!("no payload");
        };
        assert_eq!(part.as_ptr(), payload.as_ptr());
    }

    #[test]
    fn a_stream_may_end_between_frames_only() {
        let sent = b"\x40\x00\x40\x02ab\x01\x01c";
        let ends: Vec<usize> = (0..=sent.len())
            .filter(|end| {
                let mut reader = Reader::default();
                read(&mut reader, &[&sent[..*end]]);
                reader.is_between_frames()
            })
            .collect();
        assert_eq!(ends, [0, 6, 9]);
    }
}
