//! `Stats`: a connection's figures as an object with typed fields.

use crate::ffi::Fallible;
use pyo3::prelude::*;
use ringloop_quic::stats;

/// Figures of one connection; counts are since its start, times are seconds.
#[pyclass(frozen, get_all, module = "ringloop._native.quic")]
pub struct Stats {
    rtt: Fallible<f64>,
    rtt_min: Fallible<f64>,
    congestion_window_bytes: Fallible<u64>,
    congestion_event_count: Fallible<u64>,
    mtu_bytes: Fallible<u16>,
    black_hole_count: Fallible<u64>,
    packets_sent: Fallible<u64>,
    packets_lost: Fallible<u64>,
    bytes_lost: Fallible<u64>,
    udp_sent: Fallible<u64>,
    bytes_sent: Fallible<u64>,
    messages_sent: Fallible<u64>,
    udp_received: Fallible<u64>,
    bytes_received: Fallible<u64>,
    datagrams_sent: Fallible<u64>,
    datagrams_received: Fallible<u64>,
    stream_frames_sent: Fallible<u64>,
    stream_frames_received: Fallible<u64>,
    pings_sent: Fallible<u64>,
    acks_received: Fallible<u64>,
    receive_window_bytes: Fallible<u64>,
    send_window_bytes: Fallible<u64>,
    datagrams_expired: Fallible<u64>,
    datagrams_dropped: Fallible<u64>,
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
