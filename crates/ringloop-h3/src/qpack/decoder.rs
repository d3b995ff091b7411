//! Field sections and insertions of the peer's encoder (RFC 9204 §2.2).
//!
//! Owns: the copy of the peer's dynamic table, and sections that wait for insertions. Called by: the HTTP/3 layer.

use super::dynamic_table::{DynamicTable, entries_max};
use super::integer::{self, Stop};
use super::static_table::ENTRIES;
use super::{Error, Field, string};
use bytes::Bytes;

/// Decodes the peer's field sections; one per connection.
pub struct Decoder {
    table: DynamicTable,
    capacity_max: u64,
    blocked_streams_max: u64,
    section_bytes_max: u64,
    /// Bytes of an incomplete instruction of the encoder stream.
    partial: Vec<u8>,
    blocked: Vec<Blocked>,
    instructions: Vec<u8>,
    /// Insertions that were acknowledged to the peer.
    acknowledged_count: u64,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("inserted", &self.table.inserted_count())
            .field("blocked", &self.blocked.len())
            .finish_non_exhaustive()
    }
}

struct Blocked {
    stream: u64,
    /// As of its arrival: what is on the wire is relative to the insertions so far (RFC 9204 §4.5.1.1).
    prefix: Prefix,
    /// What follows it.
    lines: Bytes,
}

/// The result of decoding a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// Its fields, in order.
    Fields(Vec<Field>),
    /// It waits for insertions: [`Decoder::next_unblocked`] returns its fields later. Decode nothing else of its stream
    /// before that.
    Blocked,
}

/// The Required Insert Count and the Base of a section.
struct Prefix {
    required_count: u64,
    base: u64,
}

impl Decoder {
    /// Creates a decoder with the limits of our SETTINGS.
    ///
    /// `capacity_max` is `SETTINGS_QPACK_MAX_TABLE_CAPACITY` and `section_bytes_max` is
    /// `SETTINGS_MAX_FIELD_SECTION_SIZE`, both in bytes; `blocked_streams_max` is `SETTINGS_QPACK_BLOCKED_STREAMS`.
    pub fn new(capacity_max: u64, blocked_streams_max: u64, section_bytes_max: u64) -> Self {
        Self {
            table: DynamicTable::default(),
            capacity_max,
            blocked_streams_max,
            section_bytes_max,
            partial: Vec::new(),
            blocked: Vec::new(),
            instructions: Vec::new(),
            acknowledged_count: 0,
        }
    }

    /// Process bytes of the peer's encoder stream, split at arbitrary points. May unblock sections.
    ///
    /// # Errors
    /// [`Error::EncoderStream`].
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let mut partial = std::mem::take(&mut self.partial);
        partial.extend_from_slice(bytes);
        let mut rest = &partial[..];
        while !rest.is_empty() {
            let before = rest;
            match self.instruction(&mut rest) {
                Ok(()) => {}
                Err(Stop::Incomplete) => {
                    rest = before;
                    break;
                }
                Err(Stop::TooLong) => {
                    return Err(Error::EncoderStream("an entry is larger than the table"));
                }
                Err(Stop::Invalid(what)) => return Err(Error::EncoderStream(what)),
            }
        }
        let taken = partial.len() - rest.len();
        partial.drain(..taken);
        self.partial = partial;
        Ok(())
    }

    /// Decode a section of a stream.
    ///
    /// # Errors
    /// [`Error::DecompressionFailed`]; [`Error::SectionTooLong`], after which the request should be refused.
    pub fn decode(&mut self, stream: u64, section: Bytes) -> Result<Decoded, Error> {
        let mut rest = &section[..];
        let prefix = self.prefix(&mut rest).map_err(of_section)?;
        if prefix.required_count <= self.table.inserted_count() {
            return self.fields(stream, &prefix, rest).map(Decoded::Fields);
        }
        if !self.may_block(stream) {
            return Err(Error::DecompressionFailed(
                "more streams wait for insertions than SETTINGS_QPACK_BLOCKED_STREAMS",
            ));
        }
        self.blocked.push(Blocked { stream, prefix, lines: section.slice_ref(rest) });
        Ok(Decoded::Blocked)
    }

    /// Take a section that is no longer blocked: its stream, and its fields.
    pub fn next_unblocked(&mut self) -> Option<(u64, Result<Vec<Field>, Error>)> {
        let inserted_count = self.table.inserted_count();
        let mut blocked = self.blocked.iter();
        let index = blocked.position(|blocked| blocked.prefix.required_count <= inserted_count)?;
        let Blocked { stream, prefix, lines } = self.blocked.remove(index);
        Some((stream, self.fields(stream, &prefix, &lines)))
    }

    /// Forget a stream that was reset or is no longer read: the peer may evict entries that its sections refer to.
    pub fn cancel(&mut self, stream: u64) {
        self.blocked.retain(|blocked| blocked.stream != stream);
        if self.capacity_max > 0 {
            integer::write(&mut self.instructions, 0b0100_0000, 6, stream);
        }
    }

    /// Take the instructions to send on the decoder stream.
    pub fn take_instructions(&mut self) -> Vec<u8> {
        let unacknowledged_count = self.table.inserted_count() - self.acknowledged_count;
        if unacknowledged_count > 0 {
            integer::write(&mut self.instructions, 0, 6, unacknowledged_count);
            self.acknowledged_count = self.table.inserted_count();
        }
        std::mem::take(&mut self.instructions)
    }

    fn may_block(&self, stream: u64) -> bool {
        let mut streams: Vec<u64> = self.blocked.iter().map(|blocked| blocked.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        streams.contains(&stream) || (streams.len() as u64) < self.blocked_streams_max
    }

    /// An instruction of the encoder stream (RFC 9204 §4.3).
    fn instruction(&mut self, rest: &mut &[u8]) -> Result<(), Stop> {
        let first = *rest.first().ok_or(Stop::Incomplete)?;
        let len_max = usize::try_from(self.table.capacity()).unwrap_or(usize::MAX);
        let (name, value) = if first & 0x80 != 0 {
            let index = integer::read(rest, 6)?;
            let name =
                if first & 0x40 != 0 { static_entry(index)?.0 } else { self.relative(index)?.0 };
            (name, string::read(rest, 7, len_max)?)
        } else if first & 0x40 != 0 {
            let name = string::read(rest, 5, len_max)?;
            (name, string::read(rest, 7, len_max)?)
        } else if first & 0x20 != 0 {
            let capacity = integer::read(rest, 5)?;
            if capacity > self.capacity_max {
                return Err(Stop::Invalid("a capacity above SETTINGS_QPACK_MAX_TABLE_CAPACITY"));
            }
            self.table.set_capacity(capacity);
            return Ok(());
        } else {
            let index = integer::read(rest, 5)?;
            self.relative(index)?
        };
        if self.table.insert(name, value) { Ok(()) } else { Err(Stop::TooLong) }
    }

    /// The entry that an instruction names: 0 is the newest.
    fn relative(&self, index: u64) -> Result<(Bytes, Bytes), Stop> {
        let number = self.table.inserted_count().checked_sub(1);
        let number = number.and_then(|newest| newest.checked_sub(index));
        let entry = number.and_then(|number| self.table.get(number));
        let entry = entry.ok_or(Stop::Invalid("an instruction refers to a missing entry"))?;
        Ok((entry.name.clone(), entry.value.clone()))
    }

    /// The Encoded Field Section Prefix (RFC 9204 §4.5.1).
    fn prefix(&self, rest: &mut &[u8]) -> Result<Prefix, Stop> {
        let wrapped = integer::read(rest, 8)?;
        let required_count = self.required_count(wrapped)?;
        let is_negative = rest.first().ok_or(Stop::Incomplete)? & 0x80 != 0;
        let delta = integer::read(rest, 7)?;
        let base = if is_negative {
            required_count.checked_sub(delta + 1)
        } else {
            Some(required_count + delta)
        };
        Ok(Prefix {
            required_count,
            base: base.ok_or(Stop::Invalid("a section's Base is negative"))?,
        })
    }

    fn required_count(&self, wrapped: u64) -> Result<u64, Stop> {
        if wrapped == 0 {
            return Ok(0);
        }
        let wrong = Stop::Invalid("a section's Required Insert Count is invalid");
        let full_range = 2 * entries_max(self.capacity_max);
        if wrapped > full_range {
            return Err(wrong);
        }
        let value_max = self.table.inserted_count() + entries_max(self.capacity_max);
        let required_count = value_max / full_range * full_range + wrapped - 1;
        let required_count = if required_count > value_max {
            required_count.checked_sub(full_range).ok_or(wrong)?
        } else {
            required_count
        };
        if required_count == 0 {
            return Err(wrong);
        }
        Ok(required_count)
    }

    /// Decode the lines of a section, and acknowledge it.
    fn fields(
        &mut self,
        stream: u64,
        prefix: &Prefix,
        mut rest: &[u8],
    ) -> Result<Vec<Field>, Error> {
        let mut fields = Vec::new();
        let mut size = 0;
        while !rest.is_empty() {
            let field = self.line(prefix, &mut rest);
            size += field.as_ref().map_or(0, Field::size);
            match field {
                Ok(field) if size <= self.section_bytes_max => fields.push(field),
                Ok(_) | Err(Stop::TooLong) => {
                    if prefix.required_count > 0 {
                        self.cancel(stream);
                    }
                    return Err(Error::SectionTooLong);
                }
                Err(stop) => return Err(of_section(stop)),
            }
        }
        if prefix.required_count > 0 {
            integer::write(&mut self.instructions, 0b1000_0000, 7, stream);
            self.acknowledged_count = self.acknowledged_count.max(prefix.required_count);
        }
        Ok(fields)
    }

    /// A field line (RFC 9204 §4.5).
    fn line(&self, prefix: &Prefix, rest: &mut &[u8]) -> Result<Field, Stop> {
        let first = *rest.first().ok_or(Stop::Incomplete)?;
        let len_max = usize::try_from(self.section_bytes_max).unwrap_or(usize::MAX);
        let before_base = |index: u64| prefix.base.checked_sub(index + 1);
        if first & 0x80 != 0 {
            let index = integer::read(rest, 6)?;
            let (name, value) = if first & 0x40 != 0 {
                static_entry(index)?
            } else {
                self.entry(prefix, before_base(index))?
            };
            return Ok(Field::new(name, value));
        }
        let (name, is_sensitive) = if first & 0x40 != 0 {
            let index = integer::read(rest, 4)?;
            let name = if first & 0x10 != 0 {
                static_entry(index)?.0
            } else {
                self.entry(prefix, before_base(index))?.0
            };
            (name, first & 0x20 != 0)
        } else if first & 0x20 != 0 {
            (string::read(rest, 3, len_max)?, first & 0x10 != 0)
        } else if first & 0x10 != 0 {
            let index = integer::read(rest, 4)?;
            let (name, value) = self.entry(prefix, Some(prefix.base + index))?;
            return Ok(Field::new(name, value));
        } else {
            let index = integer::read(rest, 3)?;
            let (name, _) = self.entry(prefix, Some(prefix.base + index))?;
            (name, first & 0x08 != 0)
        };
        Ok(Field { name, value: string::read(rest, 7, len_max)?, is_sensitive })
    }

    fn entry(&self, prefix: &Prefix, number: Option<u64>) -> Result<(Bytes, Bytes), Stop> {
        let number = number.filter(|number| *number < prefix.required_count);
        let entry = number.and_then(|number| self.table.get(number));
        let entry = entry.ok_or(Stop::Invalid("a line refers to a missing entry"))?;
        Ok((entry.name.clone(), entry.value.clone()))
    }
}

fn static_entry(index: u64) -> Result<(Bytes, Bytes), Stop> {
    let entry = usize::try_from(index).ok().and_then(|index| ENTRIES.get(index));
    let (name, value) = entry.ok_or(Stop::Invalid("the static table has 99 entries"))?;
    let bytes = |text: &'static str| Bytes::from_static(text.as_bytes());
    Ok((bytes(name), bytes(value)))
}

fn of_section(stop: Stop) -> Error {
    match stop {
        Stop::Incomplete => Error::DecompressionFailed("a section is truncated"),
        Stop::TooLong => Error::SectionTooLong,
        Stop::Invalid(what) => Error::DecompressionFailed(what),
    }
}
