//! Statistics of a connection and of an endpoint.

use crate::codes;
use crate::error::ConnectionError;
use crate::proto;
use std::time::Duration;

/// Statistics of one connection; counters start with the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Minimum round-trip time.
    pub rtt_min: Duration,
    /// Congestion window: bytes that may be in flight.
    pub congestion_window_bytes: u64,
    /// How often it was reduced.
    pub congestion_event_count: u64,
    /// Current receive window of all streams together.
    pub receive_window_bytes: u64,
    /// Current send window of all streams together.
    pub send_window_bytes: u64,
    /// Path MTU as UDP payload.
    pub mtu_bytes: u16,
    /// MTU probes sent; included in `packets_sent`.
    pub mtu_probes_sent: u64,
    /// MTU probes lost; not included in `packets_lost`.
    pub mtu_probes_lost: u64,
    /// How often the path stopped carrying packets of the known MTU (black holes).
    pub black_hole_count: u64,
    /// QUIC packets sent.
    pub packets_sent: u64,
    /// QUIC packets declared lost.
    pub packets_lost: u64,
    /// Bytes in them.
    pub bytes_lost: u64,
    /// UDP datagrams sent.
    pub udp_sent: u64,
    /// Bytes in them.
    pub bytes_sent: u64,
    /// Messages (sendmsg calls) for them.
    pub messages_sent: u64,
    /// UDP datagrams received.
    pub udp_received: u64,
    /// Bytes in them.
    pub bytes_received: u64,
    /// DATAGRAM frames sent.
    pub datagrams_sent: u64,
    /// DATAGRAM frames received.
    pub datagrams_received: u64,
    /// Datagrams that expired before they were sent.
    pub datagrams_expired: u64,
    /// Datagrams dropped before they were sent, for newer ones or because the path's MTU shrank.
    pub datagrams_dropped: u64,
    /// Received datagrams dropped for newer ones before they were read; updated when all others
    /// were read.
    pub datagrams_unread: u64,
    /// STREAM frames sent.
    pub stream_frames_sent: u64,
    /// STREAM frames received.
    pub stream_frames_received: u64,
    /// PING frames sent.
    pub pings_sent: u64,
    /// ACK frames received.
    pub acks_received: u64,
    /// Frames sent, by type.
    pub frames_sent: FrameCounts,
    /// Frames received, by type.
    pub frames_received: FrameCounts,
}

/// Statistics of an endpoint's handshakes; counters since its start, except the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EndpointStats {
    /// Current connections, including closed ones that are not drained.
    pub connections: usize,
    /// Handshakes in progress, of either side.
    pub handshakes: usize,
    /// Clients whose handshake was started.
    pub accepted: u64,
    /// Clients whose handshake completed.
    pub completed: u64,
    /// Clients whose handshake failed, by reason; handshakes closed locally are not included.
    pub failed: FailureCounts,
    /// Clients that were refused.
    pub refused: u64,
    /// Clients that were sent a Retry.
    pub retried: u64,
}

/// Failed handshakes by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FailureCounts {
    /// The client stopped answering, or the handshake timed out.
    pub timed_out: u64,
    /// TLS failed at either end: a certificate, a protocol (`CRYPTO_ERROR`).
    pub tls: u64,
    /// The client closed it otherwise.
    pub by_peer: u64,
    /// Everything else: protocol violations, versions, resets.
    pub other: u64,
}

impl FailureCounts {
    /// Sum of all reasons.
    pub fn total(&self) -> u64 {
        self.timed_out + self.tls + self.by_peer + self.other
    }

    pub(crate) fn count(&mut self, error: &ConnectionError) {
        let place = match error {
            ConnectionError::TimedOut | ConnectionError::HandshakeTimedOut { .. } => {
                &mut self.timed_out
            }
            ConnectionError::Transport { code, .. }
            | ConnectionError::TransportByPeer { code, .. }
                if codes::is_of_tls(*code) =>
            {
                &mut self.tls
            }
            ConnectionError::TransportByPeer { .. } | ConnectionError::ClosedByPeer { .. } => {
                &mut self.by_peer
            }
            _ => &mut self.other,
        };
        *place += 1;
    }
}

/// `FrameCounts`, from the engine's fields of the same names.
macro_rules! frame_counts {
    ($($name:ident),*) => {
        /// Frames by type (RFC 9000 §19, RFC 9221, ACK frequency); padding is not counted.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        #[non_exhaustive]
        #[allow(missing_docs)]
        pub struct FrameCounts {
            pub ack: u64,
            $(pub $name: u64,)*
        }

        impl From<proto::FrameStats> for FrameCounts {
            fn from(stats: proto::FrameStats) -> Self {
                Self {
                    ack: stats.acks,
                    $($name: stats.$name.into(),)*
                }
            }
        }
    };
}

frame_counts!(
    ack_frequency,
    connection_close,
    crypto,
    data_blocked,
    datagram,
    handshake_done,
    immediate_ack,
    max_data,
    max_stream_data,
    max_streams_bidi,
    max_streams_uni,
    new_connection_id,
    new_token,
    path_challenge,
    path_response,
    ping,
    reset_stream,
    retire_connection_id,
    stop_sending,
    stream,
    stream_data_blocked,
    streams_blocked_bidi,
    streams_blocked_uni
);

impl From<proto::ConnectionStats> for Stats {
    fn from(stats: proto::ConnectionStats) -> Self {
        let path = stats.path;
        Self {
            rtt: path.rtt,
            rtt_min: path.min_rtt,
            congestion_window_bytes: path.cwnd,
            congestion_event_count: path.congestion_events,
            mtu_bytes: path.current_mtu,
            mtu_probes_sent: path.sent_plpmtud_probes,
            mtu_probes_lost: path.lost_plpmtud_probes,
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
            frames_sent: stats.frame_tx.into(),
            frames_received: stats.frame_rx.into(),
            // The core fills in windows and datagram counters.
            ..Self::default()
        }
    }
}
