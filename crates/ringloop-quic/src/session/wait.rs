//! Waiters of connections, and which event wakes which.
//!
//! Owns: [`Waiters`], a table of waiters by what they wait for. Returns waiters instead of waking
//! or dropping them, because either may call back.

use crate::core::{Event, Handle};
use crate::{Direction, StreamId};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::mem;

/// What a waiter waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Data to read on a stream.
    Read(StreamId),
    /// Room to write on a stream.
    Write(StreamId),
    /// A stream's data is fully acknowledged, or the peer stopped it.
    Finished(StreamId),
    /// Credit to open a stream.
    Open(Direction),
    /// A stream opened by the peer.
    Accept(Direction),
    /// A received datagram.
    DatagramIn,
    /// Room for a datagram.
    DatagramOut,
    /// A datagram of a stream, of a protocol that has such; no event of the core wakes it.
    StreamDatagram(StreamId),
    /// A change of a session on a connection, by the stream that carries it; no event of the core wakes it.
    Session(StreamId),
    /// A stream that the peer opened in a session; no event of the core wakes it.
    SessionStream(StreamId),
    /// A handshake step, an acknowledged ping, or the end.
    Progress,
}

impl Hash for Wait {
    /// As one number: stream ids have 62 bits.
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let on_stream = |kind: u64, stream: &StreamId| stream.0 << 2 | kind;
        hasher.write_u64(match self {
            Self::Read(stream) => on_stream(0, stream),
            Self::Write(stream) => on_stream(1, stream),
            Self::Finished(stream) => on_stream(2, stream),
            Self::StreamDatagram(stream) => on_stream(3, stream),
            Self::Session(stream) => on_stream(0, &StreamId(stream.0 | 1)),
            Self::SessionStream(stream) => on_stream(1, &StreamId(stream.0 | 1)),
            Self::Open(Direction::Bi) => 3,
            Self::Open(Direction::Uni) => 7,
            Self::Accept(Direction::Bi) => 11,
            Self::Accept(Direction::Uni) => 15,
            Self::DatagramIn => 19,
            Self::DatagramOut => 23,
            Self::Progress => 27,
        });
    }
}

/// One multiplication: keys are small numbers, and no peer chooses which are waited for.
#[derive(Debug, Default)]
pub struct WaitHasher(u64);

impl Hasher for WaitHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        // 2^64 over the golden ratio; both halves, because the table uses bits of either end.
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Which waiters to wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Waiters for one thing of a connection.
    For(Handle, Wait),
    /// All waiters of a connection.
    All(Handle),
}

/// Which waiters an event wakes. `early_rejected` of the session: with the handshake, streams of
/// rejected early data end.
pub fn wakes(event: &Event, early_rejected: bool) -> impl Iterator<Item = Wake> + use<> {
    let none = [None; 4];
    let on = |handle: &Handle, waits: [Option<Wait>; 4]| {
        waits.map(|wait| wait.map(|wait| Wake::For(*handle, wait)))
    };
    let one = |handle: &Handle, wait| on(handle, [Some(wait), None, None, None]);
    let all = |handle: &Handle| [Some(Wake::All(*handle)), None, None, None];
    let woken = match event {
        Event::HandshakeData(handle) | Event::Confirmed(handle) => one(handle, Wait::Progress),
        Event::Connected(handle) if early_rejected => all(handle),
        // The peer's limits on streams and datagrams are known now; no other event reports the
        // first ones.
        Event::Connected(handle) => {
            let open = [Direction::Bi, Direction::Uni].map(|way| Some(Wait::Open(way)));
            let others = [Wait::DatagramOut, Wait::Progress].map(Some);
            on(handle, [open[0], open[1], others[0], others[1]])
        }
        Event::Lost(handle, _) => all(handle),
        Event::Opened(handle, direction) => one(handle, Wait::Accept(*direction)),
        Event::Available(handle, direction) => one(handle, Wait::Open(*direction)),
        Event::Readable(handle, stream) => one(handle, Wait::Read(*stream)),
        Event::Writable(handle, stream) => one(handle, Wait::Write(*stream)),
        Event::Finished(handle, stream) => one(handle, Wait::Finished(*stream)),
        Event::Stopped(handle, stream, _) => {
            let waits = [Wait::Write(*stream), Wait::Finished(*stream)].map(Some);
            on(handle, [waits[0], waits[1], None, None])
        }
        Event::DatagramReceived(handle) => one(handle, Wait::DatagramIn),
        Event::DatagramsUnblocked(handle) => one(handle, Wait::DatagramOut),
        Event::Incoming(_)
        | Event::Drained(_)
        | Event::FinalSize(..)
        | Event::IdIssued(..)
        | Event::IdRetired(..) => none,
    };
    woken.into_iter().flatten()
}

/// A waiter: a waker, or an embedder's future.
pub trait Waiter {
    /// Whether it no longer waits, and may be removed.
    fn is_done(&self) -> bool;
}

/// Waiters by what they wait for; usually one each.
#[derive(Debug)]
pub struct Waiters<K, W> {
    queues: HashMap<K, Queue<W>, BuildHasherDefault<WaitHasher>>,
}

/// Woken in order of arrival.
#[derive(Debug)]
struct Queue<W> {
    first: W,
    others: Vec<W>,
}

impl<K, W> Default for Waiters<K, W> {
    fn default() -> Self {
        Self { queues: HashMap::default() }
    }
}

impl<K: Eq + Hash, W: Waiter> Waiters<K, W> {
    /// Adds a waiter behind the others; returns done ones that were removed.
    pub fn add(&mut self, key: K, waiter: W) -> Vec<W> {
        match self.queues.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Queue::new(waiter));
                Vec::new()
            }
            Entry::Occupied(mut entry) => entry.get_mut().push(waiter),
        }
    }

    /// Adds a waiter for what only one may wait for. Returns the previous one, which was done; or
    /// the new one as an error.
    pub fn add_only(&mut self, key: K, waiter: W) -> Result<Option<W>, W> {
        match self.queues.entry(key) {
            Entry::Vacant(entry) => {
                entry.insert(Queue::new(waiter));
                Ok(None)
            }
            Entry::Occupied(entry) if !entry.get().first.is_done() => Err(waiter),
            Entry::Occupied(mut entry) => Ok(Some(entry.insert(Queue::new(waiter)).first)),
        }
    }

    /// The waiter that matches `is_it`.
    pub fn find(&mut self, key: &K, is_it: impl Fn(&W) -> bool) -> Option<&mut W> {
        let queue = self.queues.get_mut(key)?;
        let mut all = std::iter::once(&mut queue.first).chain(&mut queue.others);
        all.find(|waiter| is_it(waiter))
    }

    /// Removes the waiter that matches `is_it`.
    pub fn remove(&mut self, key: &K, is_it: impl Fn(&W) -> bool) -> Option<W> {
        let queue = self.queues.get_mut(key)?;
        if let Some(index) = queue.others.iter().position(&is_it) {
            return Some(queue.others.remove(index));
        }
        if !is_it(&queue.first) {
            return None;
        }
        if queue.others.is_empty() {
            return self.queues.remove(key).map(|queue| queue.first);
        }
        Some(mem::replace(&mut queue.first, queue.others.remove(0)))
    }

    /// Takes the waiters of one key.
    #[inline]
    pub fn take(&mut self, key: &K, into: &mut Vec<W>) {
        if self.queues.is_empty() {
            return;
        }
        if let Some(queue) = self.queues.remove(key) {
            into.push(queue.first);
            into.extend(queue.others);
        }
    }

    /// Takes all waiters.
    pub fn take_all(&mut self, into: &mut Vec<W>) {
        for (_, queue) in self.queues.drain() {
            into.push(queue.first);
            into.extend(queue.others);
        }
    }

    /// Iterates over all waiters.
    pub fn iter(&self) -> impl Iterator<Item = &W> {
        let queues = self.queues.values();
        queues.flat_map(|queue| std::iter::once(&queue.first).chain(&queue.others))
    }
}

impl<W: Waiter> Queue<W> {
    fn new(first: W) -> Self {
        Self { first, others: Vec::new() }
    }

    /// Returns done waiters; they are searched for each time the count doubles.
    fn push(&mut self, last: W) -> Vec<W> {
        self.others.push(last);
        if !self.others.len().is_power_of_two() {
            return Vec::new();
        }
        let others = mem::take(&mut self.others).into_iter();
        let (mut done, mut waiting): (Vec<_>, Vec<_>) = others.partition(Waiter::is_done);
        if self.first.is_done() && !waiting.is_empty() {
            done.push(mem::replace(&mut self.first, waiting.remove(0)));
        }
        self.others = waiting;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;

    #[derive(Debug)]
    struct Numbered(u32, Rc<Cell<bool>>);

    impl Waiter for Numbered {
        fn is_done(&self) -> bool {
            self.1.get()
        }
    }

    fn numbers(waiters: &[Numbered]) -> Vec<u32> {
        waiters.iter().map(|waiter| waiter.0).collect()
    }

    #[test]
    fn waiters_keep_order_and_done_ones_are_pruned() {
        let (mut waiters, done) = (Waiters::default(), Rc::new(Cell::new(false)));
        let waiting = |number| Numbered(number, Rc::default());
        let mut forgotten = waiters.add(Wait::DatagramIn, waiting(0));
        for number in 1..100 {
            forgotten.extend(waiters.add(Wait::DatagramIn, Numbered(number, Rc::clone(&done))));
        }
        assert!(forgotten.is_empty());
        done.set(true);
        for number in 100..1000 {
            forgotten.extend(waiters.add(Wait::DatagramIn, Numbered(number, Rc::clone(&done))));
        }
        waiters.add(Wait::DatagramIn, waiting(1000));
        assert!(waiters.iter().count() < 140, "{}", waiters.iter().count());
        let is_last = |waiter: &Numbered| waiter.0 == 1000;
        assert!(waiters.remove(&Wait::DatagramIn, |waiter| waiter.0 == 0).is_some());
        assert!(waiters.find(&Wait::DatagramIn, is_last).is_some());
        let mut taken = Vec::new();
        waiters.take(&Wait::DatagramIn, &mut taken);
        assert!(numbers(&taken).is_sorted() && taken.last().is_some_and(is_last));
        assert_eq!(waiters.iter().count(), 0);
    }

    #[test]
    fn second_reader_waits_only_if_the_first_is_done() {
        let (mut waiters, done) = (Waiters::default(), Rc::new(Cell::new(false)));
        let wait = Wait::Read(StreamId(4));
        assert!(matches!(waiters.add_only(wait, Numbered(0, Rc::clone(&done))), Ok(None)));
        assert!(waiters.add_only(wait, Numbered(1, Rc::clone(&done))).is_err());
        done.set(true);
        let old = waiters.add_only(wait, Numbered(2, Rc::default()));
        assert!(matches!(old, Ok(Some(Numbered(0, _)))));
        let mut all = Vec::new();
        waiters.take_all(&mut all);
        assert_eq!(numbers(&all), [2]);
    }
}
