//! Windows that adapt to a connection.
//!
//! Owns: the receive window of all streams together, and the send window. Called by: `core`, when a
//! connection has nothing more to send; reads are counted as they happen. Never shrinks the receive
//! window, nor changes that of a single stream, which the engine fixes at the start.
//!
//! Receiving: if the readers consume half a window within about a round trip, the window limits the
//! peer and is doubled. A connection that does not read, or a peer that does not send, keeps the
//! small window.
//! Sending: twice the congestion window is what the path can use while the next data is written;
//! more would only queue here, ahead of later writes. On a path without loss the congestion window
//! grows without need; data in flight then sits in queues, and the RTT exceeds its minimum. A few
//! times the bandwidth-delay product at the minimum RTT is enough.
//! Streams: the engine allocates state for each stream that the peer may open, so the limit starts
//! low; once the peer has opened half of it, it is multiplied, within the round trip in which the
//! peer opens the other half.

use crate::Direction;
use crate::config::Kept;
use crate::limits::{SEND_WINDOW_PATHS, STREAMS_AT_FIRST, STREAMS_GROWTH};
use crate::proto::{self, varint};
use std::time::{Duration, Instant};

pub(super) struct Tuning {
    receive_window: u64,
    receive_window_max: u64,
    send_window: u64,
    send_window_min: u64,
    send_window_max: u64,
    /// Streams that the peer may have open, by direction.
    streams: [u64; 2],
    streams_max: [u64; 2],
    /// Bytes read since then.
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

    /// The application sets the limit, which stays fixed.
    pub(super) fn fix_streams(&mut self, dir: proto::Dir, count: u64) {
        let at = dir as usize;
        (self.streams[at], self.streams_max[at]) = (count, count);
    }

    pub(super) fn on_read(&mut self, count: usize) {
        self.read_bytes += count as u64;
    }

    /// The application sets the window, which stays fixed.
    pub(super) fn fix_receive(&mut self, bytes: u64) {
        (self.receive_window, self.receive_window_max) = (bytes, bytes);
    }

    /// The application sets the window, which stays fixed.
    pub(super) fn fix_send(&mut self, bytes: u64) {
        self.send_window = bytes;
        (self.send_window_min, self.send_window_max) = (bytes, bytes);
    }

    pub(super) fn windows(&self) -> (u64, u64) {
        (self.receive_window, self.send_window)
    }

    /// Adapts what is due; whether there is an update for the peer.
    pub(super) fn tune(&mut self, proto: &mut proto::Connection, now: Instant) -> bool {
        let more_streams = self.tune_streams(proto);
        self.tune_windows(proto, now) | more_streams
    }

    fn tune_streams(&mut self, proto: &mut proto::Connection) -> bool {
        let mut has_more = false;
        for dir in [proto::Dir::Bi, proto::Dir::Uni] {
            let (streams, max) = (&mut self.streams[dir as usize], self.streams_max[dir as usize]);
            if *streams < max && proto.streams().remote_open_streams(dir) * 2 >= *streams {
                *streams = (*streams * STREAMS_GROWTH).min(max);
                announce_streams(proto, dir, *streams);
                has_more = true;
            }
        }
        has_more
    }

    /// Sends a stream limit update if one is needed. Stopping a stream that arrived completely
    /// frees it without an update, and the engine would send one only with the next packet
    /// received: a peer that waits for stream credit and has nothing else to send would wait
    /// forever.
    pub(super) fn queue_stream_credit(
        &mut self,
        proto: &mut proto::Connection,
        direction: Direction,
    ) {
        let dir: proto::Dir = direction.into();
        let streams = self.streams[dir as usize];
        proto.set_max_concurrent_streams(dir, varint(streams));
    }

    fn tune_windows(&mut self, proto: &mut proto::Connection, now: Instant) -> bool {
        if self.send_window_min < self.send_window_max {
            let (rtt_min, rtt) = (proto.min_rtt(), proto.rtt());
            let congestion_window = proto.congestion_state().window();
            let useful = useful_window(congestion_window, self.send_window, rtt_min, rtt);
            let window = useful.clamp(self.send_window_min, self.send_window_max);
            if window != self.send_window {
                self.send_window = window;
                proto.set_send_window(window);
            }
        }
        if self.receive_window >= self.receive_window_max {
            return false;
        }
        // Nothing is read from a zero window, and from the smallest only what was there.
        let is_fast = self.read_bytes > 0 && self.read_bytes >= self.receive_window / 2;
        let round_trips_over = now >= self.since + proto.rtt() * 2;
        if !is_fast && !round_trips_over {
            return false;
        }
        (self.read_bytes, self.since) = (0, now);
        // A window that took longer to read than the network needed is not the bottleneck.
        if !is_fast || round_trips_over {
            return false;
        }
        self.receive_window = (self.receive_window * 2).min(self.receive_window_max);
        proto.set_receive_window(varint(self.receive_window));
        true
    }
}

/// Returns the send window, given the current `window`: twice the congestion window, at most
/// [`SEND_WINDOW_PATHS`] times the data in flight that sits in no queue (the rate, one window per
/// round trip, times the minimum RTT).
fn useful_window(congestion_window: u64, window: u64, rtt_min: Duration, rtt: Duration) -> u64 {
    let (part, whole) = (rtt_min.as_micros(), rtt.as_micros().max(1));
    let in_flight = u128::from(congestion_window.min(window));
    let held = in_flight * part.min(whole) / whole;
    let held = u64::try_from(held).unwrap_or(u64::MAX);
    let several = held.saturating_mul(SEND_WINDOW_PATHS);
    congestion_window.saturating_mul(2).min(several)
}

/// Allows the peer this many open streams and announces it. The engine announces only increases of
/// more than an eighth of the limit, and would hold back the last ones; a momentary limit of one
/// makes any increase count.
pub(super) fn announce_streams(proto: &mut proto::Connection, dir: proto::Dir, count: u64) {
    proto.set_max_concurrent_streams(dir, varint(count));
    if count > 1 {
        proto.set_max_concurrent_streams(dir, varint(1));
        proto.set_max_concurrent_streams(dir, varint(count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT_MIN: Duration = Duration::from_millis(10);

    /// The window and RTT at which a path settles that carries `rate` bytes per minimum RTT, takes
    /// `times` as long for most round trips, and has a queue that never overflows.
    fn settled(rate: u64, congestion_window: u64, times: u64) -> (u64, Duration) {
        let (mut window, mut rtt) = (50_000, RTT_MIN);
        for _ in 0..100 {
            let in_flight = congestion_window.min(window);
            let queued = in_flight.saturating_sub(rate * times);
            let micros = 10_000 * times + 10_000 * queued / rate;
            rtt = Duration::from_micros(micros);
            window = useful_window(congestion_window, window, RTT_MIN, rtt).max(50_000);
        }
        (window, rtt)
    }

    #[test]
    fn bufferbloat_does_not_grow_send_window() {
        let (window, rtt) = settled(1_000_000, 1 << 30, 1);
        assert!((1_000_000..=4_000_000).contains(&window), "{window}");
        assert!(rtt < RTT_MIN * 9 / 2, "{rtt:?}");
    }

    #[test]
    fn send_window_follows_congestion_window_without_queueing() {
        let (window, _) = settled(1_000_000, 800_000, 1);
        assert_eq!(window, 1_600_000);
    }

    #[test]
    fn varying_rtt_keeps_path_full() {
        let (window, _) = settled(1_000_000, 3_000_000, 3);
        assert!(window >= 3_000_000, "{window}");
    }
}
