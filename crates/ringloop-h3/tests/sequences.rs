//! An encoder and a decoder over a network that cuts, delays and reorders: what is decoded is what was sent.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use ringloop_h3::qpack::{Decoded, Decoder, Encoder, Field};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Marsaglia's xorshift: the same numbers everywhere.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }

    fn bytes(&mut self, len_max: u64) -> Bytes {
        (0..self.below(len_max)).map(|_| self.below(256) as u8).collect()
    }

    fn field(&mut self) -> Field {
        let name = match self.below(6) {
            0 => Bytes::from_static(b":path"),
            1 => Bytes::from_static(b"cookie"),
            2 => Bytes::from_static(b":method"),
            3 => self.bytes(40),
            _ => Bytes::from(format!("x-{}", self.below(5))),
        };
        let value = match self.below(8) {
            0 => self.bytes(300),
            1 => Bytes::from_static(b"GET"),
            _ => Bytes::from(format!("value {}", self.below(12))),
        };
        let field = Field::new(name, value);
        if self.below(12) == 0 { field.sensitive() } else { field }
    }
}

/// Both ends of one direction, and what is on its way between them.
struct Pair {
    numbers: Numbers,
    encoder: Encoder,
    decoder: Decoder,
    blocked_streams_max: usize,
    instructions: Vec<u8>,
    answers: Vec<u8>,
    /// Sections that were sent and not decoded, by stream; a blocked one is still in front.
    sections: BTreeMap<u64, VecDeque<(Vec<Field>, Bytes)>>,
    blocked: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
    next_stream: u64,
    decoded_count: usize,
    blocked_count: usize,
}

impl Pair {
    fn new(seed: u64, capacity_max: u64, blocked_streams_max: u64) -> Self {
        let mut encoder = Encoder::new();
        encoder.set_peer_limits(capacity_max, blocked_streams_max);
        Self {
            numbers: Numbers(seed * 2 + 1),
            encoder,
            decoder: Decoder::new(capacity_max, blocked_streams_max, 1 << 20),
            blocked_streams_max: blocked_streams_max as usize,
            instructions: Vec::new(),
            answers: Vec::new(),
            sections: BTreeMap::new(),
            blocked: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            next_stream: 0,
            decoded_count: 0,
            blocked_count: 0,
        }
    }

    fn send(&mut self) {
        // Sometimes trailers, on a stream that has a section already.
        let stream = self.numbers.below(self.next_stream + 4);
        self.next_stream = self.next_stream.max(stream + 1);
        if self.cancelled.contains(&stream) {
            return;
        }
        let fields: Vec<Field> =
            (0..self.numbers.below(10)).map(|_| self.numbers.field()).collect();
        let mut section = Vec::new();
        self.encoder.encode(stream, &fields, &mut section);
        self.instructions.extend(self.encoder.take_instructions());
        let waiting = self.sections.entry(stream).or_default();
        waiting.push_back((fields, section.into()));
    }

    fn deliver_instructions(&mut self) {
        let len = self.numbers.below(self.instructions.len() as u64 + 1) as usize;
        let part: Vec<u8> = self.instructions.drain(..len).collect();
        self.decoder.receive(&part).unwrap();
        while let Some((stream, fields)) = self.decoder.next_unblocked() {
            assert!(self.blocked.remove(&stream));
            self.check(stream, fields.unwrap());
        }
    }

    fn deliver_answers(&mut self) {
        self.answers.extend(self.decoder.take_instructions());
        let len = self.numbers.below(self.answers.len() as u64 + 1) as usize;
        let part: Vec<u8> = self.answers.drain(..len).collect();
        self.encoder.receive(&part).unwrap();
    }

    fn deliver_section(&mut self) {
        let mut streams = self.sections.keys().filter(|stream| !self.blocked.contains(stream));
        let count = streams.clone().count() as u64;
        if count == 0 {
            return;
        }
        let stream = *streams.nth(self.numbers.below(count) as usize).unwrap();
        let section = self.sections[&stream][0].1.clone();
        match self.decoder.decode(stream, section).unwrap() {
            Decoded::Fields(fields) => self.check(stream, fields),
            Decoded::Blocked => {
                self.blocked.insert(stream);
                self.blocked_count += 1;
                assert!(self.blocked.len() <= self.blocked_streams_max);
            }
        }
    }

    fn cancel(&mut self) {
        let stream = self.numbers.below(self.next_stream + 1);
        if self.sections.remove(&stream).is_some() {
            self.blocked.remove(&stream);
            self.cancelled.insert(stream);
            self.decoder.cancel(stream);
        }
    }

    fn check(&mut self, stream: u64, fields: Vec<Field>) {
        let waiting = self.sections.get_mut(&stream).unwrap();
        let (sent, _) = waiting.pop_front().unwrap();
        assert_eq!(fields, sent);
        if waiting.is_empty() {
            self.sections.remove(&stream);
        }
        self.decoded_count += 1;
    }
}

#[test]
fn what_is_decoded_is_what_was_sent() {
    let mut blocked_count = 0;
    for (seed, capacity_max, blocked_streams_max) in (0..60).flat_map(|seed| {
        [(seed, 0, 0), (seed, 64, 1), (seed, 300, 2), (seed, 4096, 0), (seed, 9000, 16)]
    }) {
        let mut pair = Pair::new(seed, capacity_max, blocked_streams_max);
        for _ in 0..400 {
            match pair.numbers.below(20) {
                0..6 => pair.send(),
                6..10 => pair.deliver_instructions(),
                10..13 => pair.deliver_answers(),
                13..19 => pair.deliver_section(),
                _ => pair.cancel(),
            }
        }
        for _ in 0..1000 {
            pair.deliver_instructions();
            pair.deliver_section();
            pair.deliver_answers();
        }
        assert!(pair.sections.is_empty() && pair.blocked.is_empty(), "seed {seed}");
        assert!(pair.decoded_count > 50, "seed {seed}: {}", pair.decoded_count);
        blocked_count += pair.blocked_count;
    }
    assert!(blocked_count > 500, "{blocked_count}");
}

#[test]
fn bytes_of_a_hostile_peer_are_decoded_or_refused() {
    let mut numbers = Numbers(77);
    for _ in 0..3000 {
        let mut pair = Pair::new(numbers.below(1 << 40), 500, 4);
        for _ in 0..8 {
            pair.send();
        }
        let mut damaged = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            for _ in 0..numbers.below(4) {
                if !bytes.is_empty() {
                    let at = numbers.below(bytes.len() as u64) as usize;
                    bytes[at] = numbers.below(256) as u8;
                }
            }
            bytes
        };
        let _ = pair.decoder.receive(&damaged(&pair.instructions));
        for (stream, sections) in &pair.sections {
            for (_, section) in sections {
                drop(pair.decoder.decode(*stream, damaged(section).into()));
            }
        }
        while let Some((_, fields)) = pair.decoder.next_unblocked() {
            drop(fields);
        }
        let answers = damaged(&pair.decoder.take_instructions());
        let _ = pair.encoder.receive(&answers);
        let mut section = Vec::new();
        pair.encoder.encode(9999, &[Field::new("a", "b")], &mut section);
    }
}
