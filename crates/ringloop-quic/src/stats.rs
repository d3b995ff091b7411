//! What a connection has seen so far.

use crate::proto;
use std::time::Duration;

/// Figures of one connection; counts are since its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// The shortest one seen.
    pub rtt_min: Duration,
    /// Bytes that may be on their way by the congestion controller's word.
    pub congestion_window_bytes: u64,
    /// Times that it was reduced.
    pub congestion_event_count: u64,
    /// Payload of UDP that the path carries.
    pub mtu_bytes: u16,
    /// Times that the path stopped carrying what it had carried.
    pub black_hole_count: u64,
    /// QUIC packets sent.
    pub packets_sent: u64,
    /// QUIC packets taken for lost.
    pub packets_lost: u64,
    /// Bytes in them.
    pub bytes_lost: u64,
    /// UDP datagrams sent.
    pub udp_sent: u64,
    /// Bytes in them.
    pub bytes_sent: u64,
    /// Messages to the kernel that they went in.
    pub messages_sent: u64,
    /// UDP datagrams received.
    pub udp_received: u64,
    /// Bytes in them.
    pub bytes_received: u64,
    /// DATAGRAM frames sent.
    pub datagrams_sent: u64,
    /// DATAGRAM frames received.
    pub datagrams_received: u64,
    /// STREAM frames sent.
    pub stream_frames_sent: u64,
    /// STREAM frames received.
    pub stream_frames_received: u64,
    /// PING frames sent.
    pub pings_sent: u64,
    /// ACK frames received.
    pub acks_received: u64,
}

impl From<proto::ConnectionStats> for Stats {
    fn from(stats: proto::ConnectionStats) -> Self {
        let path = stats.path;
        Self {
            rtt: path.rtt,
            rtt_min: path.min_rtt,
            congestion_window_bytes: path.cwnd,
            congestion_event_count: path.congestion_events,
            mtu_bytes: path.current_mtu,
            black_hole_count: path.black_holes_detected,
            packets_sent: path.sent_packets,
            packets_lost: path.lost_packets,
            bytes_lost: path.lost_bytes,
            udp_sent: stats.udp_tx.datagrams,
            bytes_sent: stats.udp_tx.bytes,
            messages_sent: stats.udp_tx.ios,
            udp_received: stats.udp_rx.datagrams,
            bytes_received: stats.udp_rx.bytes,
            datagrams_sent: stats.frame_tx.datagram,
            datagrams_received: stats.frame_rx.datagram,
            stream_frames_sent: stats.frame_tx.stream,
            stream_frames_received: stats.frame_rx.stream,
            pings_sent: stats.frame_tx.ping,
            acks_received: stats.frame_rx.acks,
        }
    }
}
