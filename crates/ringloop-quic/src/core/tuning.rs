//! Windows that follow what a connection does.
//!
//! Owns: how many bytes the peer may send ahead of the readers of all streams together, and how many may be written
//! ahead of its acknowledgements. Called by: `core`, when a connection has nothing more to send; reads count
//! themselves. Never does: shrink the receive window, or change that of one stream: the engine fixes it at the start.
//!
//! Receiving: where the readers take half a window within a round trip or two, the window is what holds the peer up, and is
//! doubled. One that does not read keeps the small window, and so does a peer that sends nothing.
//! Sending: twice the congestion window is what the path can use while the next piece is written. More would only
//! wait here, and in front of what is written next.
//! Streams: the engine keeps a place for each stream that the peer may open, so the peer may open few until it has opened
//! half of those; then several times as many, within the round trip in which it opens the other half.

use super::live::Live;
use crate::config::Kept;
use crate::limits::{STREAMS_AT_FIRST, STREAMS_GROWTH};
use crate::proto::{self, varint};
use std::time::Instant;

pub(super) struct Tuning {
    receive_window: u64,
    receive_window_max: u64,
    send_window: u64,
    send_window_min: u64,
    send_window_max: u64,
    /// Streams that the peer may have open, by direction.
    streams: [u64; 2],
    streams_max: [u64; 2],
    /// Bytes read since.
    read_bytes: u64,
    since: Instant,
}

impl Tuning {
    pub(super) fn new(kept: &Kept, now: Instant) -> Self {
        Self {
            receive_window: kept.receive_window,
            receive_window_max: kept.receive_window_max,
            send_window: kept.send_window_min.min(kept.send_window),
            send_window_min: kept.send_window_min,
            send_window_max: kept.send_window,
            streams: kept.streams_max.map(|max| max.min(STREAMS_AT_FIRST)),
            streams_max: kept.streams_max,
            read_bytes: 0,
            since: now,
        }
    }

    /// The program says how many, and the number stays so.
    pub(super) fn fix_streams(&mut self, dir: proto::Dir, count: u64) {
        let at = dir as usize;
        (self.streams[at], self.streams_max[at]) = (count, count);
    }

    pub(super) fn on_read(&mut self, count: usize) {
        self.read_bytes += count as u64;
    }

    /// The program says how large, and the window stays so.
    pub(super) fn fix_receive(&mut self, bytes: u64) {
        (self.receive_window, self.receive_window_max) = (bytes, bytes);
    }

    /// The program says how large, and the window stays so.
    pub(super) fn fix_send(&mut self, bytes: u64) {
        self.send_window = bytes;
        (self.send_window_min, self.send_window_max) = (bytes, bytes);
    }

    pub(super) fn windows(&self) -> (u64, u64) {
        (self.receive_window, self.send_window)
    }
}

impl Live {
    /// Change what is due to change; tells whether the peer is to hear of it.
    pub(super) fn tune(&mut self, now: Instant) -> bool {
        let more_streams = self.tune_streams();
        self.tune_windows(now) | more_streams
    }

    fn tune_streams(&mut self) -> bool {
        let tuning = &mut self.tuning;
        let mut has_more = false;
        for dir in [proto::Dir::Bi, proto::Dir::Uni] {
            let (streams, max) = (
                &mut tuning.streams[dir as usize],
                tuning.streams_max[dir as usize],
            );
            if *streams < max && self.proto.streams().remote_open_streams(dir) * 2 >= *streams {
                *streams = (*streams * STREAMS_GROWTH).min(max);
                self.proto.set_max_concurrent_streams(dir, varint(*streams));
                has_more = true;
            }
        }
        has_more
    }

    fn tune_windows(&mut self, now: Instant) -> bool {
        let tuning = &mut self.tuning;
        if tuning.send_window_min < tuning.send_window_max {
            let useful = self.proto.congestion_state().window().saturating_mul(2);
            let window = useful.clamp(tuning.send_window_min, tuning.send_window_max);
            if window != tuning.send_window {
                tuning.send_window = window;
                self.proto.set_send_window(window);
            }
        }
        if tuning.receive_window >= tuning.receive_window_max {
            return false;
        }
        let is_fast = tuning.read_bytes >= tuning.receive_window / 2;
        let round_trips_over = now >= tuning.since + self.proto.rtt() * 2;
        if !is_fast && !round_trips_over {
            return false;
        }
        (tuning.read_bytes, tuning.since) = (0, now);
        // A window that took longer to be read than the network took is no obstacle.
        if !is_fast || round_trips_over {
            return false;
        }
        tuning.receive_window = (tuning.receive_window * 2).min(tuning.receive_window_max);
        self.proto.set_receive_window(varint(tuning.receive_window));
        true
    }
}
