//! Streams and datagrams that arrive before their session (draft-ietf-webtrans-http3-16 §4.6).
//!
//! Owns: [`Early`], one per connection, within its three limits. Called by: `sessions`.

use super::config::Config;
use crate::StreamId;
use bytes::Bytes;
use std::collections::VecDeque;

/// Streams and datagrams that wait for their session.
#[derive(Debug)]
pub(super) struct Early {
    streams: VecDeque<EarlyStream>,
    datagrams: VecDeque<EarlyDatagram>,
    bytes: usize,
    streams_max: usize,
    datagrams_max: usize,
    bytes_max: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct EarlyStream {
    pub(super) session: StreamId,
    pub(super) stream: StreamId,
    pub(super) data: Bytes,
    pub(super) fin: bool,
}

#[derive(Debug)]
struct EarlyDatagram {
    session: StreamId,
    data: Bytes,
}

impl Early {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            streams: VecDeque::new(),
            datagrams: VecDeque::new(),
            bytes: 0,
            streams_max: config.early_streams_max,
            datagrams_max: config.early_datagrams_max,
            bytes_max: config.early_bytes_max,
        }
    }

    /// Buffers a stream, and a copy of its data: a slice would keep the memory of all that arrived with it. Returns the
    /// streams evicted for it.
    ///
    /// Evicts the oldest streams whose session has not been requested first: the request may never arrive.
    pub(super) fn keep_stream(
        &mut self,
        new: EarlyStream,
        is_known: impl Fn(StreamId) -> bool,
    ) -> Vec<StreamId> {
        let mut refused = Vec::new();
        while self.streams.len() >= self.streams_max || self.bytes + new.data.len() > self.bytes_max
        {
            let unknown = self.streams.iter().position(|early| !is_known(early.session));
            if let Some(early) = unknown.and_then(|at| self.streams.remove(at)) {
                self.bytes -= early.data.len();
                refused.push(early.stream);
            } else {
                refused.push(new.stream);
                return refused;
            }
        }
        self.bytes += new.data.len();
        let data = Bytes::copy_from_slice(&new.data);
        self.streams.push_back(EarlyStream { data, ..new });
        refused
    }

    pub(super) fn has_stream(&self, stream: StreamId) -> bool {
        self.streams.iter().any(|early| early.stream == stream)
    }

    /// Streams, datagrams, and bytes of both.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        (self.streams.len(), self.datagrams.len(), self.bytes)
    }

    /// Buffers a copy of a datagram, too, dropping the oldest ones if necessary.
    pub(super) fn keep_datagram(&mut self, session: StreamId, data: &[u8]) {
        while self.datagrams.len() >= self.datagrams_max || self.bytes + data.len() > self.bytes_max
        {
            match self.datagrams.pop_front() {
                Some(early) => self.bytes -= early.data.len(),
                None => return,
            }
        }
        self.bytes += data.len();
        let data = Bytes::copy_from_slice(data);
        self.datagrams.push_back(EarlyDatagram { session, data });
    }

    /// Takes all streams and datagrams of a session, in the order of arrival.
    pub(super) fn take(&mut self, session: StreamId) -> (Vec<EarlyStream>, Vec<Bytes>) {
        let (streams, others) = std::mem::take(&mut self.streams)
            .into_iter()
            .partition(|early| early.session == session);
        self.streams = others;
        let streams: VecDeque<EarlyStream> = streams;
        let (datagrams, others) = std::mem::take(&mut self.datagrams)
            .into_iter()
            .partition(|early| early.session == session);
        self.datagrams = others;
        let datagrams: VecDeque<EarlyDatagram> = datagrams;
        let streams: Vec<EarlyStream> = streams.into();
        let datagrams: Vec<Bytes> = datagrams.into_iter().map(|early| early.data).collect();
        let stream_bytes: usize = streams.iter().map(|early| early.data.len()).sum();
        let datagram_bytes: usize = datagrams.iter().map(Bytes::len).sum();
        self.bytes -= stream_bytes + datagram_bytes;
        (streams, datagrams)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn early() -> Early {
        Early::new(&Config {
            early_streams_max: 3,
            early_datagrams_max: 2,
            early_bytes_max: 100,
            ..Config::default()
        })
    }

    fn stream(session: u64, stream: u64, len: usize) -> EarlyStream {
        EarlyStream {
            session: StreamId(session),
            stream: StreamId(stream),
            data: vec![0; len].into(),
            fin: false,
        }
    }

    fn refuse(early: &mut Early, new: EarlyStream, known: u64) -> Vec<u64> {
        let refused = early.keep_stream(new, |session| session.0 == known);
        refused.into_iter().map(|stream| stream.0).collect()
    }

    #[test]
    fn streams_of_unknown_sessions_give_way_first() {
        let mut early = early();
        assert_eq!(refuse(&mut early, stream(0, 2, 10), 0), []);
        assert_eq!(refuse(&mut early, stream(4, 6, 10), 0), []);
        assert_eq!(refuse(&mut early, stream(0, 10, 10), 0), []);
        assert_eq!(refuse(&mut early, stream(0, 14, 10), 0), [6]);
        assert_eq!(refuse(&mut early, stream(0, 18, 10), 0), [18]);
        let (streams, _) = early.take(StreamId(0));
        let streams: Vec<u64> = streams.iter().map(|early| early.stream.0).collect();
        assert_eq!(streams, [2, 10, 14]);
        assert_eq!(early.bytes, 0);
    }

    #[test]
    fn bytes_are_limited_over_streams_and_datagrams() {
        let mut early = early();
        assert_eq!(refuse(&mut early, stream(0, 2, 60), 0), []);
        assert_eq!(refuse(&mut early, stream(0, 6, 41), 0), [6]);
        early.keep_datagram(StreamId(0), &[1; 30]);
        early.keep_datagram(StreamId(0), &[2; 30]);
        early.keep_datagram(StreamId(0), &[3; 41]);
        assert_eq!(early.bytes, 60);
        early.keep_datagram(StreamId(4), &[4; 40]);
        assert_eq!(early.bytes, 100);
        assert_eq!(early.take(StreamId(0)).0.len(), 1);
        assert_eq!(early.take(StreamId(4)).1, [vec![4; 40]]);
        assert_eq!(early.bytes, 0);
    }

    #[test]
    fn what_waits_keeps_no_memory_of_what_came_with_it() {
        let mut early = early();
        for len in [0, 10] {
            let batch = Bytes::from(vec![7; 64 << 10]);
            let (stream, data) = (StreamId(2), batch.slice(100..100 + len));
            let new = EarlyStream { session: StreamId(0), stream, data, fin: false };
            assert_eq!(refuse(&mut early, new, 0), []);
            early.keep_datagram(StreamId(0), &batch.slice(200..200 + len));
            assert!(batch.is_unique());
        }
        let (streams, datagrams) = early.take(StreamId(0));
        let streams: Vec<Bytes> = streams.into_iter().map(|early| early.data).collect();
        assert_eq!(streams, [vec![], vec![7; 10]]);
        assert_eq!(datagrams, streams);
    }

    #[test]
    fn the_oldest_datagrams_are_dropped() {
        let mut early = early();
        for byte in 0..5 {
            early.keep_datagram(StreamId(0), &[byte]);
        }
        assert_eq!(early.take(StreamId(0)).1, [vec![3], vec![4]]);
    }
}
