//! The received part of a peer's message: its heads, a bounded queue of its body, its end.
//!
//! Shared by the driver and the exchange object; outlives the connection, so that received data
//! can be read after the connection's end. Its lock is taken after the endpoint's state if both are
//! needed, and held for a few instructions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ringloop_h3::qpack::Field;
use ringloop_quic::Bytes;

use crate::limits::{
    H3_BODY_BYTES, H3_COPIED_BYTES, H3_DATAGRAM_BYTES, H3_DATAGRAM_EACH_BYTES, H3_DENSE_BYTES,
    H3_INTERIM_MAX, H3_PIECE_BYTES, H3_PIECE_GAP_BYTES, H3_UNCOPIED_PIECES,
};

/// A field section.
#[derive(Debug, Default)]
pub struct Section(pub Vec<Field>);

impl Section {
    /// The value of a pseudo-header field, such as `:path`.
    pub fn pseudo(&self, name: &[u8]) -> Option<&Bytes> {
        let mut pseudo = self.0.iter().take_while(|field| is_pseudo(field));
        let found = pseudo.find(|field| field.name == name);
        found.map(|field| &field.value)
    }

    /// The other fields, which follow.
    pub fn headers(&self) -> &[Field] {
        let count = self.0.iter().take_while(|field| is_pseudo(field)).count();
        &self.0[count..]
    }

    /// The value of a header field as Latin-1; several lines are joined.
    pub fn value(&self, name: &str) -> Option<String> {
        let is_named = |field: &&Field| field.name.eq_ignore_ascii_case(name.as_bytes());
        let mut values = self.headers().iter().filter(is_named);
        let latin_1 = |field: &Field| field.value.iter().copied().map(char::from).collect();
        let first: String = latin_1(values.next()?);
        Some(values.fold(first, |joined, field| joined + ", " + &latin_1(field)))
    }

    /// Of an interim response (RFC 9110 §15.2).
    pub fn is_interim(&self) -> bool {
        let status = self.pseudo(b":status");
        status.is_some_and(|status| status.starts_with(b"1"))
    }
}

fn is_pseudo(field: &Field) -> bool {
    field.name.starts_with(b":")
}

/// How a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// All of it has arrived.
    Complete,
    /// The peer reset it.
    Reset(u64),
    /// It is malformed; the peer was sent this code.
    Failed(u64, &'static str),
    /// Stopped here.
    Stopped,
}

/// Result of a read of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// Some bytes; whether to read the stream again.
    Some { resumes: bool },
    /// Nothing now.
    None,
    /// No more bytes follow.
    Over(Ending),
}

/// See the module docs.
#[derive(Debug, Default)]
pub struct Received {
    /// Of a request, or of the final response.
    pub head: Option<Arc<Section>>,
    /// Interim responses not taken yet; the oldest are dropped.
    pub interim: VecDeque<Section>,
    pub trailers: Option<Arc<Section>>,
    pub ending: Option<Ending>,
    /// The code with which the peer stopped our message, or our message failed.
    pub stopped: Option<u64>,
    /// The application has an object of it.
    pub is_taken: bool,
    /// A request that is ready for the application.
    pub is_ready: bool,
    /// The head of a request for a WebTransport session, before it is ready for the application.
    pub requested: Option<Section>,
    /// The sub-protocols that such a request offers.
    pub protocols: Vec<String>,
    pub datagrams: DatagramQueue,
    body: VecDeque<Bytes>,
    body_bytes: usize,
    dense: Dense,
    /// The stream is not read because the queue is full.
    is_paused: bool,
}

/// How much of the body lies side by side in the memory of the received batch, up to the last piece.
#[derive(Debug, Default)]
struct Dense {
    /// Address behind the last piece.
    end: usize,
    bytes: usize,
}

impl Dense {
    /// Counts a piece; returns the bytes of the body before it.
    fn add(&mut self, piece: &[u8]) -> usize {
        let start = piece.as_ptr().addr();
        let gap = start.checked_sub(self.end);
        let before = gap.filter(|gap| *gap <= H3_PIECE_GAP_BYTES).map_or(0, |_| self.bytes);
        self.end = start + piece.len();
        self.bytes = before + piece.len();
        before
    }
}

/// Datagrams that the application has not taken; beyond a limit the oldest are dropped.
#[derive(Debug, Default)]
pub struct DatagramQueue {
    queue: VecDeque<Bytes>,
    bytes: usize,
    /// How many were dropped.
    pub dropped_count: u64,
}

impl DatagramQueue {
    pub fn push(&mut self, datagram: &[u8]) {
        self.bytes += datagram.len() + H3_DATAGRAM_EACH_BYTES;
        // A slice keeps all of the received batch in memory, and the peer chooses what else is in it.
        self.queue.push_back(Bytes::copy_from_slice(datagram));
        while self.bytes > H3_DATAGRAM_BYTES {
            self.pop();
            self.dropped_count += 1;
        }
    }

    pub fn pop(&mut self) -> Option<Bytes> {
        let datagram = self.queue.pop_front()?;
        self.bytes -= datagram.len() + H3_DATAGRAM_EACH_BYTES;
        Some(datagram)
    }
}

/// The same, shared.
pub type SharedReceived = Arc<Mutex<Received>>;

pub fn lock(received: &SharedReceived) -> MutexGuard<'_, Received> {
    // A panic leaves no change incomplete: each is a few assignments.
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Received {
    /// Adds a field section; whether it is the head.
    pub fn add_section(&mut self, section: Section) -> bool {
        if self.head.is_some() {
            self.trailers = Some(Arc::new(section));
            return false;
        }
        if section.is_interim() {
            if self.interim.len() == H3_INTERIM_MAX {
                self.interim.pop_front();
            }
            self.interim.push_back(section);
            return false;
        }
        self.head = Some(Arc::new(section));
        true
    }

    pub fn add_data(&mut self, data: Bytes) {
        self.body_bytes += data.len() + H3_PIECE_BYTES;
        // A slice keeps all of the received batch in memory, and the peer chooses what else is in it.
        let is_sparse = self.dense.add(&data) < H3_DENSE_BYTES;
        let is_copied = data.len() <= H3_COPIED_BYTES
            || is_sparse && self.body.len() >= H3_UNCOPIED_PIECES && data.len() < H3_DENSE_BYTES;
        self.body.push_back(if is_copied { Bytes::copy_from_slice(&data) } else { data });
    }

    /// Bytes that may be read from the stream now; without room it is paused until
    /// [`Received::take`] says so.
    pub fn room(&mut self) -> usize {
        let room = H3_BODY_BYTES.saturating_sub(self.body_bytes);
        self.is_paused = room == 0;
        room
    }

    /// Passes at most `bytes_max` of the body to `take`.
    pub fn take(&mut self, bytes_max: usize, mut take: impl FnMut(Bytes)) -> Taken {
        if self.body.is_empty() {
            return self.ending.map_or(Taken::None, Taken::Over);
        }
        let mut rest = bytes_max;
        while rest > 0
            && let Some(piece) = self.body.front_mut()
        {
            let next = piece.split_to(piece.len().min(rest));
            rest -= next.len();
            self.body_bytes -= next.len();
            if piece.is_empty() {
                self.body_bytes -= H3_PIECE_BYTES;
                self.body.pop_front();
            }
            take(next);
        }
        let resumes = self.is_paused && self.body_bytes <= H3_BODY_BYTES / 2;
        if resumes {
            self.is_paused = false;
        }
        Taken::Some { resumes }
    }

    /// Puts bytes back in front, if they could not be delivered to the application.
    pub fn put_back(&mut self, pieces: Vec<Bytes>) {
        for piece in pieces.into_iter().rev().filter(|piece| !piece.is_empty()) {
            self.body_bytes += piece.len() + H3_PIECE_BYTES;
            self.body.push_front(piece);
        }
    }

    /// Whether the body was read to its end.
    pub fn is_read(&self) -> bool {
        self.body.is_empty() && self.ending.is_some()
    }

    /// Nothing more of it is wanted.
    pub fn stop(&mut self) {
        self.body.clear();
        self.body_bytes = 0;
        self.ending.get_or_insert(Ending::Stopped);
    }

    pub fn end(&mut self, ending: Ending) {
        // A reset drops unread data, as in QUIC.
        if ending != Ending::Complete {
            self.body.clear();
            self.body_bytes = 0;
        }
        self.ending.get_or_insert(ending);
    }
}
