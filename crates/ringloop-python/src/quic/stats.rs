//! `Stats`: a connection's statistics as an object with typed fields.

use crate::ffi::Fallible;
use pyo3::prelude::*;
use ringloop_quic::stats;

/// A snapshot of one connection's statistics: counts since its start, times in seconds, sizes in bytes.
#[pyclass(frozen, get_all, module = "ringloop._native.quic")]
pub struct Stats {
    /// Smoothed round-trip time, in seconds (RFC 9002 §5.3); `initial_rtt` before the first sample.
    rtt: Fallible<f64>,
    /// Shortest round-trip time seen, in seconds (RFC 9002 §5.2).
    rtt_min: Fallible<f64>,
    /// Bytes that the congestion controller allows in flight now (RFC 9002 §7).
    congestion_window_bytes: Fallible<u64>,
    /// Times that the congestion window was reduced (RFC 9002 §7.3.2).
    congestion_event_count: Fallible<u64>,
    /// Bytes of UDP payload that the path is known to carry in one datagram (RFC 9000 §14.3).
    mtu_bytes: Fallible<u16>,
    /// Times that the path stopped carrying datagrams of the former size (RFC 8899 §4.3).
    black_hole_count: Fallible<u64>,
    /// QUIC packets sent, lost ones included; several may share a datagram (RFC 9000 §12.2).
    packets_sent: Fallible<u64>,
    /// QUIC packets declared lost (RFC 9002 §6), without MTU probes.
    packets_lost: Fallible<u64>,
    /// Bytes in the packets declared lost.
    bytes_lost: Fallible<u64>,
    /// UDP datagrams sent.
    udp_sent: Fallible<u64>,
    /// Bytes of UDP payload sent.
    bytes_sent: Fallible<u64>,
    /// Messages passed to the kernel: a batch of datagrams counts once (`UDP_SEGMENT` of udp(7)).
    messages_sent: Fallible<u64>,
    /// UDP datagrams received that belong to this connection.
    udp_received: Fallible<u64>,
    /// Bytes of UDP payload received.
    bytes_received: Fallible<u64>,
    /// DATAGRAM frames sent (RFC 9221 §4).
    datagrams_sent: Fallible<u64>,
    /// DATAGRAM frames received (RFC 9221 §4).
    datagrams_received: Fallible<u64>,
    /// STREAM frames sent, including retransmissions (RFC 9000 §19.8).
    stream_frames_sent: Fallible<u64>,
    /// STREAM frames received (RFC 9000 §19.8).
    stream_frames_received: Fallible<u64>,
    /// PING frames sent, those of `keep_alive` and of probes included (RFC 9000 §19.2).
    pings_sent: Fallible<u64>,
    /// ACK frames received (RFC 9000 §19.3).
    acks_received: Fallible<u64>,
    /// Bytes that the peer may send ahead of the readers now, all streams together: from `max_data` to `max_data_grown`
    /// (RFC 9000 §4.1).
    receive_window_bytes: Fallible<u64>,
    /// Bytes that may be written ahead of acknowledgements now, all streams together: from `send_window_min` to
    /// `send_window`.
    send_window_bytes: Fallible<u64>,
    /// Datagrams that were not sent within their `expires` seconds.
    datagrams_expired: Fallible<u64>,
    /// Datagrams that were dropped before they were sent: they made room for newer ones, or no longer fit the path.
    datagrams_dropped: Fallible<u64>,
    /// Received datagrams dropped unread for newer ones (`datagram_receive_buffer`); counted once all others were read.
    datagrams_unread: Fallible<u64>,
}

impl From<stats::Stats> for Stats {
    fn from(stats: stats::Stats) -> Self {
        Self {
            rtt: stats.rtt.as_secs_f64().into(),
            rtt_min: stats.rtt_min.as_secs_f64().into(),
            congestion_window_bytes: stats.congestion_window_bytes.into(),
            congestion_event_count: stats.congestion_event_count.into(),
            mtu_bytes: stats.mtu_bytes.into(),
            black_hole_count: stats.black_hole_count.into(),
            packets_sent: stats.packets_sent.into(),
            packets_lost: stats.packets_lost.into(),
            bytes_lost: stats.bytes_lost.into(),
            udp_sent: stats.udp_sent.into(),
            bytes_sent: stats.bytes_sent.into(),
            messages_sent: stats.messages_sent.into(),
            udp_received: stats.udp_received.into(),
            bytes_received: stats.bytes_received.into(),
            datagrams_sent: stats.datagrams_sent.into(),
            datagrams_received: stats.datagrams_received.into(),
            stream_frames_sent: stats.stream_frames_sent.into(),
            stream_frames_received: stats.stream_frames_received.into(),
            pings_sent: stats.pings_sent.into(),
            acks_received: stats.acks_received.into(),
            datagrams_unread: stats.datagrams_unread.into(),
            datagrams_dropped: stats.datagrams_dropped.into(),
            datagrams_expired: stats.datagrams_expired.into(),
            send_window_bytes: stats.send_window_bytes.into(),
            receive_window_bytes: stats.receive_window_bytes.into(),
        }
    }
}

#[pymethods]
impl Stats {
    fn __repr__(&self) -> Fallible<String> {
        Fallible(format!(
            "Stats(rtt={:.6}, rtt_min={:.6}, congestion_window_bytes={}, mtu_bytes={}, packets_sent={}, \
             packets_lost={}, bytes_sent={}, bytes_received={}, datagrams_sent={}, datagrams_received={})",
            self.rtt.0,
            self.rtt_min.0,
            self.congestion_window_bytes.0,
            self.mtu_bytes.0,
            self.packets_sent.0,
            self.packets_lost.0,
            self.bytes_sent.0,
            self.bytes_received.0,
            self.datagrams_sent.0,
            self.datagrams_received.0,
        ))
    }
}
