//! Field sections and insertions for the peer's decoder (RFC 9204 §2.1).
//!
//! Owns: our dynamic table, and the unacknowledged sections. Called by: the HTTP/3 layer.
//!
//! A field is inserted into the table when it is seen for the second time within [`FIELDS_REMEMBERED`] others: fields
//! repeated by every request are inserted at once, and unique fields never evict them.

use super::dynamic_table::{DynamicTable, entries_max};
use super::integer::{self, Stop};
use super::static_table::{self, Match};
use super::{Error, Field, Line, string};
use crate::limits::{FIELDS_REMEMBERED, SECTIONS_UNACKNOWLEDGED_MAX, TABLE_BYTES_MAX};
use crate::stream_id::StreamMap;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};

/// Compresses the fields that this end sends; one per connection.
#[derive(Default)]
pub struct Encoder {
    table: DynamicTable,
    /// The peer's `SETTINGS_QPACK_MAX_TABLE_CAPACITY`.
    capacity_max: u64,
    /// The peer's `SETTINGS_QPACK_BLOCKED_STREAMS`.
    blocked_streams_max: u64,
    /// Insertions that the peer is known to have received.
    known_received_count: u64,
    /// Sections with references that are not acknowledged, by stream, the oldest first.
    unacknowledged: StreamMap<u64, VecDeque<Section>>,
    unacknowledged_count: usize,
    /// How many of these refer to no entry before this one.
    lowest_references: BTreeMap<u64, u32>,
    remembered: Remembered,
    instructions: Vec<u8>,
    /// Bytes of an incomplete instruction of the decoder stream.
    partial: Vec<u8>,
    body: Vec<u8>,
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder")
            .field("inserted", &self.table.inserted_count())
            .field("unacknowledged", &self.unacknowledged_count)
            .finish_non_exhaustive()
    }
}

/// The references of a section.
#[derive(Debug, Clone, Copy)]
struct Section {
    /// Its Required Insert Count: one more than the newest entry.
    required_count: u64,
    lowest: u64,
}

/// A section that is being encoded.
struct Draft {
    base: u64,
    /// Whether it may refer to the dynamic table at all.
    may_refer: bool,
    /// Whether it may refer to entries that the peer may not have yet (Q3).
    may_block: bool,
    refers_to: Option<Section>,
}

impl Draft {
    fn refer(&mut self, number: u64) {
        let section = self.refers_to.get_or_insert(Section { required_count: 0, lowest: number });
        section.required_count = section.required_count.max(number + 1);
        section.lowest = section.lowest.min(number);
    }
}

impl Encoder {
    /// Creates an encoder that uses no dynamic table until it knows the peer's limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Set the limits of the peer's SETTINGS, once.
    ///
    /// `capacity_max` is its `SETTINGS_QPACK_MAX_TABLE_CAPACITY` in bytes.
    pub fn set_peer_limits(&mut self, capacity_max: u64, blocked_streams_max: u64) {
        self.capacity_max = capacity_max;
        self.blocked_streams_max = blocked_streams_max;
        let capacity = capacity_max.min(TABLE_BYTES_MAX);
        if capacity > 0 {
            integer::write(&mut self.instructions, 0b0010_0000, 5, capacity);
            self.table.set_capacity(capacity);
        }
    }

    /// Append the field section of `fields` to `out`, for the stream of this number.
    ///
    /// Then send the result of [`Encoder::take_instructions`]. Send the sections of a stream in this order.
    pub fn encode(&mut self, stream: u64, fields: &[Field], out: &mut Vec<u8>) {
        let lines: Vec<Line<'_>> = fields.iter().map(Line::from).collect();
        self.encode_lines(stream, &lines, out);
    }

    /// [`Encoder::encode`] of borrowed fields.
    pub fn encode_lines(&mut self, stream: u64, lines: &[Line<'_>], out: &mut Vec<u8>) {
        let may_refer =
            self.table.capacity() > 0 && self.unacknowledged_count < SECTIONS_UNACKNOWLEDGED_MAX;
        let mut draft = Draft {
            base: self.table.inserted_count(),
            may_refer,
            may_block: may_refer && self.may_block(stream),
            refers_to: None,
        };
        self.body.clear();
        for line in lines {
            self.encode_field(&mut draft, line);
        }
        self.write_prefix(&draft, out);
        out.extend_from_slice(&self.body);
        if let Some(section) = draft.refers_to {
            self.unacknowledged.entry(stream).or_default().push_back(section);
            self.unacknowledged_count += 1;
            *self.lowest_references.entry(section.lowest).or_default() += 1;
        }
    }

    /// Take the instructions to send on the encoder stream.
    pub fn take_instructions(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.instructions)
    }

    /// Process bytes of the peer's decoder stream, split at arbitrary points.
    ///
    /// # Errors
    /// [`Error::DecoderStream`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.partial.extend_from_slice(bytes);
        let received = std::mem::take(&mut self.partial);
        let mut rest = &received[..];
        while let Some(&first) = rest.first() {
            let prefix_bits = if first & 0x80 != 0 { 7 } else { 6 };
            match integer::read(&mut rest, prefix_bits) {
                Ok(number) if first & 0x80 != 0 => self.acknowledged(number)?,
                Ok(number) if first & 0x40 != 0 => self.cancelled(number),
                Ok(number) => self.received(number)?,
                // At most nine bytes remain.
                Err(Stop::Incomplete) => break,
                Err(Stop::Invalid(what)) => return Err(Error::DecoderStream(what)),
                // No instruction of a decoder has a string.
                Err(Stop::TooLong) => {
                    return Err(Error::DecoderStream("an instruction is too long"));
                }
            }
        }
        self.partial = rest.to_vec();
        Ok(())
    }

    /// The oldest section of a stream was decoded.
    fn acknowledged(&mut self, stream: u64) -> Result<(), Error> {
        let sections = self.unacknowledged.get_mut(&stream);
        let Some(section) = sections.and_then(VecDeque::pop_front) else {
            return Err(Error::DecoderStream(
                "it acknowledges a section without references, or one twice",
            ));
        };
        if self.unacknowledged[&stream].is_empty() {
            self.unacknowledged.remove(&stream);
        }
        self.known_received_count = self.known_received_count.max(section.required_count);
        self.forget(section);
        Ok(())
    }

    /// The peer stops reading a stream.
    fn cancelled(&mut self, stream: u64) {
        for section in self.unacknowledged.remove(&stream).unwrap_or_default() {
            self.forget(section);
        }
    }

    fn received(&mut self, count: u64) -> Result<(), Error> {
        if count == 0 || count > self.table.inserted_count() - self.known_received_count {
            return Err(Error::DecoderStream(
                "it acknowledges no insertions, or more than were sent",
            ));
        }
        self.known_received_count += count;
        Ok(())
    }

    fn forget(&mut self, section: Section) {
        self.unacknowledged_count -= 1;
        if let Some(count) = self.lowest_references.get_mut(&section.lowest) {
            *count -= 1;
            if *count == 0 {
                self.lowest_references.remove(&section.lowest);
            }
        }
    }

    /// Whether a stream may wait for insertions: it does already, or the peer allows one more.
    fn may_block(&self, stream: u64) -> bool {
        let is_blocked = |sections: &VecDeque<Section>| {
            let mut sections = sections.iter();
            sections.any(|section| section.required_count > self.known_received_count)
        };
        if self.unacknowledged.get(&stream).is_some_and(is_blocked) {
            return true;
        }
        let blocked = self.unacknowledged.values().filter(|all| is_blocked(all));
        (blocked.count() as u64) < self.blocked_streams_max
    }

    fn encode_field(&mut self, draft: &mut Draft, field: &Line<'_>) {
        let (name, value) = (field.name, &field.value[..]);
        let in_static = static_table::find(name, value);
        let static_name = match in_static {
            Some(Match::Whole(index)) if !field.is_sensitive => {
                return integer::write(&mut self.body, 0b1100_0000, 6, index);
            }
            Some(Match::Whole(index) | Match::Name(index)) => Some(index),
            None => None,
        };
        if !draft.may_refer || field.is_sensitive {
            return self.write_literal(draft, field, static_name, None);
        }
        let (whole, known_name) = self.find(draft, name, value);
        if let Some(number) = whole {
            return self.write_indexed(draft, number);
        }
        if self.remembered.knows(name, value)
            && self.insert(draft, field, static_name)
            && draft.may_block
        {
            return self.write_indexed(draft, self.table.inserted_count() - 1);
        }
        // The insertion may have evicted it.
        let known_name = known_name.filter(|number| self.table.get(*number).is_some());
        self.write_literal(draft, field, static_name, known_name);
    }

    /// The newest usable entries with this name and value, and with this name.
    fn find(&self, draft: &Draft, name: &[u8], value: &[u8]) -> (Option<u64>, Option<u64>) {
        let mut known_name = None;
        for (number, entry) in self.table.newest_first() {
            let is_usable = draft.may_block || number < self.known_received_count;
            if !is_usable || entry.name != name {
                continue;
            }
            if entry.value == value {
                return (Some(number), Some(number));
            }
            known_name = known_name.or(Some(number));
        }
        (None, known_name)
    }

    /// Insert a field into both tables, unless that evicts entries in use (Q2).
    fn insert(&mut self, draft: &Draft, field: &Line<'_>, static_name: Option<u64>) -> bool {
        let Some(evictions) = self.table.evictions_for(field.size()) else {
            return false;
        };
        let used = self.lowest_references.first_key_value().map(|(used, _)| *used);
        let used_here = draft.refers_to.map(|section| section.lowest);
        let evictable_end =
            used.into_iter().chain(used_here).fold(self.known_received_count, u64::min);
        if evictions > 0 && self.table.first() + evictions as u64 > evictable_end {
            return false;
        }
        let known = self.table.newest_first();
        let known =
            known.filter(|(_, entry)| entry.name == field.name).map(|(number, _)| number).next();
        let out = &mut self.instructions;
        match (static_name, known) {
            (Some(index), _) => integer::write(out, 0b1100_0000, 6, index),
            (None, Some(number)) => {
                let index = self.table.inserted_count() - 1 - number;
                integer::write(out, 0b1000_0000, 6, index);
            }
            (None, None) => string::write(out, 0b0100_0000, 5, field.name),
        }
        string::write(out, 0, 7, &field.value);
        self.table.insert(Bytes::copy_from_slice(field.name), Bytes::copy_from_slice(&field.value))
    }

    fn write_indexed(&mut self, draft: &mut Draft, number: u64) {
        draft.refer(number);
        match draft.base.checked_sub(number + 1) {
            Some(index) => integer::write(&mut self.body, 0b1000_0000, 6, index),
            None => integer::write(&mut self.body, 0b0001_0000, 4, number - draft.base),
        }
    }

    fn write_literal(
        &mut self,
        draft: &mut Draft,
        field: &Line<'_>,
        static_name: Option<u64>,
        known_name: Option<u64>,
    ) {
        let body = &mut self.body;
        let never = field.is_sensitive;
        match (static_name, known_name) {
            (Some(index), _) => {
                let pattern = if never { 0b0111_0000 } else { 0b0101_0000 };
                integer::write(body, pattern, 4, index);
            }
            (None, Some(number)) => {
                draft.refer(number);
                match draft.base.checked_sub(number + 1) {
                    Some(index) => integer::write(body, 0b0100_0000, 4, index),
                    None => integer::write(body, 0, 3, number - draft.base),
                }
            }
            (None, None) => {
                let pattern = if never { 0b0011_0000 } else { 0b0010_0000 };
                string::write(body, pattern, 3, field.name);
            }
        }
        string::write(body, 0, 7, &field.value);
    }

    /// The Encoded Field Section Prefix (RFC 9204 §4.5.1).
    fn write_prefix(&self, draft: &Draft, out: &mut Vec<u8>) {
        let Some(Section { required_count, .. }) = draft.refers_to else {
            out.extend_from_slice(&[0, 0]);
            return;
        };
        let wrapped = required_count % (2 * entries_max(self.capacity_max)) + 1;
        integer::write(out, 0, 8, wrapped);
        match draft.base.checked_sub(required_count) {
            Some(delta) => integer::write(out, 0, 7, delta),
            None => integer::write(out, 0b1000_0000, 7, required_count - draft.base - 1),
        }
    }
}

/// Recently seen fields, by their hashes: a collision costs a superfluous insertion.
struct Remembered {
    hashes: [u64; FIELDS_REMEMBERED],
    next: usize,
}

impl Default for Remembered {
    fn default() -> Self {
        Self { hashes: [0; FIELDS_REMEMBERED], next: 0 }
    }
}

impl Remembered {
    /// Whether a field was seen recently; remembers it.
    fn knows(&mut self, name: &[u8], value: &[u8]) -> bool {
        // FNV-1a.
        let bytes = name.iter().chain(&[0]).chain(value);
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
        if self.hashes.contains(&hash) {
            return true;
        }
        self.hashes[self.next] = hash;
        self.next = (self.next + 1) % FIELDS_REMEMBERED;
        false
    }
}
