//! `Stats`: a connection's figures as an object with typed fields.

use pyo3::prelude::*;
use ringloop_quic::stats;

/// Figures of one connection; counts are since its start, times are seconds.
#[pyclass(frozen, get_all, module = "ringloop._native.quic")]
pub struct Stats {
    rtt: f64,
    rtt_min: f64,
    congestion_window_bytes: u64,
    congestion_event_count: u64,
    mtu_bytes: u16,
    black_hole_count: u64,
    packets_sent: u64,
    packets_lost: u64,
    bytes_lost: u64,
    udp_sent: u64,
    bytes_sent: u64,
    messages_sent: u64,
    udp_received: u64,
    bytes_received: u64,
    datagrams_sent: u64,
    datagrams_received: u64,
    stream_frames_sent: u64,
    stream_frames_received: u64,
    pings_sent: u64,
    acks_received: u64,
    receive_window_bytes: u64,
    send_window_bytes: u64,
    datagrams_expired: u64,
    datagrams_dropped: u64,
    datagrams_unread: u64,
}

impl From<stats::Stats> for Stats {
    fn from(stats: stats::Stats) -> Self {
        Self {
            rtt: stats.rtt.as_secs_f64(),
            rtt_min: stats.rtt_min.as_secs_f64(),
            congestion_window_bytes: stats.congestion_window_bytes,
            congestion_event_count: stats.congestion_event_count,
            mtu_bytes: stats.mtu_bytes,
            black_hole_count: stats.black_hole_count,
            packets_sent: stats.packets_sent,
            packets_lost: stats.packets_lost,
            bytes_lost: stats.bytes_lost,
            udp_sent: stats.udp_sent,
            bytes_sent: stats.bytes_sent,
            messages_sent: stats.messages_sent,
            udp_received: stats.udp_received,
            bytes_received: stats.bytes_received,
            datagrams_sent: stats.datagrams_sent,
            datagrams_received: stats.datagrams_received,
            stream_frames_sent: stats.stream_frames_sent,
            stream_frames_received: stats.stream_frames_received,
            pings_sent: stats.pings_sent,
            acks_received: stats.acks_received,
            datagrams_unread: stats.datagrams_unread,
            datagrams_dropped: stats.datagrams_dropped,
            datagrams_expired: stats.datagrams_expired,
            send_window_bytes: stats.send_window_bytes,
            receive_window_bytes: stats.receive_window_bytes,
        }
    }
}

#[pymethods]
impl Stats {
    fn __repr__(&self) -> String {
        format!(
            "Stats(rtt={:.6}, rtt_min={:.6}, congestion_window_bytes={}, mtu_bytes={}, packets_sent={}, \
             packets_lost={}, bytes_sent={}, bytes_received={}, datagrams_sent={}, datagrams_received={})",
            self.rtt,
            self.rtt_min,
            self.congestion_window_bytes,
            self.mtu_bytes,
            self.packets_sent,
            self.packets_lost,
            self.bytes_sent,
            self.bytes_received,
            self.datagrams_sent,
            self.datagrams_received,
        )
    }
}
