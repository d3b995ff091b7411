//! Header compression (RFC 9204), both directions, without I/O.
//!
//! Owns: [`Encoder`] and [`Decoder`], one of each per connection. Called by: the HTTP/3 layer, with the bytes of field
//! sections and of the two QPACK streams.
//!
//! An encoder inserts fields into its dynamic table by instructions on its *encoder stream*; the peer's decoder repeats
//! them into a table of its own. Field sections refer to entries by number. A section may arrive before the
//! instructions that it needs: the decoder then holds it ([`Decoded::Blocked`]), as many as it has allowed the encoder.
//! On its *decoder stream* it acknowledges sections and insertions; only then may the encoder evict what they used.
//!
//! # Invariants
//! - **Q1** Entries have absolute numbers, from 0 in the order of insertion, the same at both ends.
//! - **Q2** An entry that an unacknowledged section refers to, or whose insertion is not acknowledged, is not evicted.
//! - **Q3** No more streams than the peer allows may be blocked: others refer to acknowledged entries only.
//! - **Q4** A peer cannot make memory grow beyond the limits announced to it.

mod decoder;
mod dynamic_table;
mod encoder;
mod huffman;
mod huffman_codes;
mod integer;
mod static_table;
mod string;

use bytes::Bytes;
use std::borrow::Cow;
use std::fmt;

pub use decoder::{Decoded, Decoder};
pub use encoder::Encoder;

/// A line of a field section: a header, a trailer or a pseudo-header.
///
/// Names and values are bytes as sent; that names are lower-case, for example, is for the layer above to check.
#[derive(Clone, PartialEq, Eq)]
pub struct Field {
    /// Such as `content-type` or `:method`.
    pub name: Bytes,
    /// Its value.
    pub value: Bytes,
    /// Never indexed, by us or by an intermediary (RFC 9204 §7.1.3): a secret that could be guessed from its size.
    pub is_sensitive: bool,
}

impl Field {
    /// A field that is not sensitive.
    pub fn new(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        Self { name: name.into(), value: value.into(), is_sensitive: false }
    }

    /// The same field, marked as sensitive.
    #[must_use]
    pub fn sensitive(self) -> Self {
        Self { is_sensitive: true, ..self }
    }

    /// Its size in a table and in `SETTINGS_MAX_FIELD_SECTION_SIZE`, in bytes (RFC 9204 §3.2.1, RFC 9114 §4.2.2).
    pub fn size(&self) -> u64 {
        size_of_field(&self.name, &self.value)
    }
}

/// Hides the value of a sensitive field.
impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, &self.name, &self.value, self.is_sensitive)
    }
}

/// A field to encode, borrowed from the application.
#[derive(Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// As [`Field::name`].
    pub name: &'a [u8],
    /// As [`Field::value`].
    pub value: Cow<'a, [u8]>,
    /// As [`Field::is_sensitive`].
    pub is_sensitive: bool,
}

impl<'a> Line<'a> {
    /// A line that is not sensitive.
    pub fn new(name: &'a [u8], value: &'a [u8]) -> Self {
        Self { name, value: Cow::Borrowed(value), is_sensitive: false }
    }

    /// The same, with a value that was made for it.
    pub fn owned(name: &'a [u8], value: Vec<u8>) -> Self {
        Self { name, value: Cow::Owned(value), is_sensitive: false }
    }

    /// The same line, marked as sensitive or not.
    #[must_use]
    pub fn sensitive(self, is_sensitive: bool) -> Self {
        Self { is_sensitive, ..self }
    }

    /// As [`Field::size`].
    pub fn size(&self) -> u64 {
        size_of_field(self.name, &self.value)
    }
}

impl<'a> From<&'a Field> for Line<'a> {
    fn from(field: &'a Field) -> Self {
        Self::new(&field.name, &field.value).sensitive(field.is_sensitive)
    }
}

/// As that of [`Field`].
impl fmt::Debug for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, self.name, &self.value, self.is_sensitive)
    }
}

fn write_line(
    f: &mut fmt::Formatter<'_>,
    name: &[u8],
    value: &[u8],
    is_sensitive: bool,
) -> fmt::Result {
    let value = if is_sensitive { "..." } else { &*String::from_utf8_lossy(value) };
    write!(f, "{}: {value}", String::from_utf8_lossy(name))
}

fn size_of_field(name: &[u8], value: &[u8]) -> u64 {
    (name.len() + value.len()) as u64 + 32
}

/// A QPACK error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A field section cannot be decoded; ends the connection.
    DecompressionFailed(&'static str),
    /// An instruction of the peer's encoder is invalid; ends the connection.
    EncoderStream(&'static str),
    /// An instruction of the peer's decoder is invalid; ends the connection.
    DecoderStream(&'static str),
    /// The fields are longer than `SETTINGS_MAX_FIELD_SECTION_SIZE`; ends only the request (status 431).
    SectionTooLong,
}

impl Error {
    /// The code of the connection's close (RFC 9204 §6); `None` if it ends only a request.
    pub fn code(&self) -> Option<u64> {
        match self {
            Self::DecompressionFailed(_) => Some(0x200),
            Self::EncoderStream(_) => Some(0x201),
            Self::DecoderStream(_) => Some(0x202),
            Self::SectionTooLong => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DecompressionFailed(what) => write!(f, "QPACK_DECOMPRESSION_FAILED: {what}"),
            Self::EncoderStream(what) => write!(f, "QPACK_ENCODER_STREAM_ERROR: {what}"),
            Self::DecoderStream(what) => write!(f, "QPACK_DECODER_STREAM_ERROR: {what}"),
            Self::SectionTooLong => f.write_str("the field section is longer than the limit"),
        }
    }
}

impl std::error::Error for Error {}
