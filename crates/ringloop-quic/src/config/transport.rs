//! Transport settings of a connection: timeouts, windows, streams, the congestion controller.

use crate::error::ConfigError;
use crate::limits;
use crate::proto::{self, varint};
use std::sync::Arc;
use std::time::Duration;

/// Congestion control algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Congestion {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 9002.
    NewReno,
    /// BBR version 1; experimental.
    Bbr,
}

impl Congestion {
    /// Parses a name: `cubic`, `newreno` or `reno`, `bbr` or `bbr1`, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "cubic" => Some(Self::Cubic),
            "newreno" | "reno" => Some(Self::NewReno),
            "bbr" | "bbr1" => Some(Self::Bbr),
            _ => None,
        }
    }
}

/// Transport settings. Start from `Transport::default()`.
#[derive(Debug, Clone)]
pub struct Transport {
    /// Idle time after which the connection is dropped, 1 ms or more; the smaller value of both
    /// ends applies. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// Limit for the whole handshake, 1 ms or more, whatever the peer sends meanwhile; `None`: no
    /// limit.
    pub handshake_timeout: Option<Duration>,
    /// Interval of keep-alive packets, so that neither the peer nor a middlebox times out.
    pub keep_alive: Option<Duration>,
    /// Bidirectional streams that the peer may have open at a time; at most [`limits::STREAMS_LIMIT`].
    pub bi_streams_max: u64,
    /// Unidirectional streams that the peer may have open at a time; same maximum.
    pub uni_streams_max: u64,
    /// Bytes that the peer may send ahead of the reader, per stream; 1 or more, as for all windows.
    pub stream_receive_window: u64,
    /// The same for all streams together; initial value.
    pub receive_window: u64,
    /// Limit of automatic growth of `receive_window`, while readers consume it within a round trip.
    /// Not above `receive_window`: no growth.
    pub receive_window_max: u64,
    /// Bytes written but not acknowledged, for all streams together; beyond it, writes block.
    pub send_window: u64,
    /// Lower bound while the send window follows the congestion window up to `send_window`. Not
    /// below `send_window`: it is fixed.
    pub send_window_min: u64,
    /// The congestion controller.
    pub congestion: Congestion,
    /// Bytes of received datagrams that may be queued; `None`: accept no datagrams.
    pub datagram_receive_buffer: Option<usize>,
    /// Bytes of datagrams that may be queued to be sent.
    pub datagram_send_buffer: usize,
    /// UDP payload that every path is assumed to carry at first: 1200 to 65527 bytes.
    pub initial_mtu: u16,
    /// Largest UDP payload to probe for; `None`: stay with `initial_mtu`.
    pub mtu_max: Option<u16>,
    /// Initial estimate of the round-trip time.
    pub initial_rtt: Duration,
    /// Whether the peer may be asked to acknowledge less often (an IETF draft; both ends must
    /// support it).
    pub ack_frequency: bool,
    /// Whether the peer may reset streams reliably, and this end those of
    /// [`keep_head`](crate::core::Connection::keep_head) if the peer takes it:
    /// `RESET_STREAM_AT`, an IETF draft. A server that accepts early data must not switch it off
    /// while its tickets are valid.
    pub reset_stream_at: bool,
}

impl Default for Transport {
    fn default() -> Self {
        Self {
            idle_timeout: Some(limits::IDLE_TIMEOUT),
            handshake_timeout: Some(limits::HANDSHAKE_TIMEOUT),
            keep_alive: None,
            bi_streams_max: limits::STREAMS_MAX,
            uni_streams_max: limits::STREAMS_MAX,
            stream_receive_window: limits::STREAM_RECEIVE_WINDOW,
            receive_window: limits::RECEIVE_WINDOW,
            receive_window_max: limits::RECEIVE_WINDOW_MAX,
            send_window: limits::SEND_WINDOW,
            send_window_min: limits::SEND_WINDOW_MIN,
            congestion: Congestion::default(),
            datagram_receive_buffer: Some(limits::DATAGRAM_RECEIVE_BUFFER),
            datagram_send_buffer: limits::DATAGRAM_SEND_BUFFER,
            initial_mtu: 1200,
            // Ethernet's 1500, less the headers of IPv6 and UDP.
            mtu_max: Some(1452),
            initial_rtt: Duration::from_millis(333),
            ack_frequency: false,
            reset_stream_at: false,
        }
    }
}

/// Settings of a [`Transport`] that the core implements itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept {
    pub idle_timeout: Option<Duration>,
    pub handshake_timeout: Option<Duration>,
    pub receive_window: u64,
    pub receive_window_max: u64,
    pub send_window: u64,
    pub send_window_min: u64,
    /// By direction: bidirectional, unidirectional.
    pub streams_max: [u64; 2],
    pub datagram_send_buffer: usize,
    pub datagram_receive_buffer: Option<usize>,
    pub reset_stream_at: bool,
}

impl From<&Transport> for Kept {
    fn from(transport: &Transport) -> Self {
        Self {
            idle_timeout: transport.idle_timeout,
            handshake_timeout: transport.handshake_timeout,
            receive_window: transport.receive_window,
            receive_window_max: transport.receive_window_max,
            send_window: transport.send_window,
            send_window_min: transport.send_window_min,
            streams_max: [transport.bi_streams_max, transport.uni_streams_max],
            datagram_send_buffer: transport.datagram_send_buffer,
            datagram_receive_buffer: transport.datagram_receive_buffer,
            reset_stream_at: transport.reset_stream_at,
        }
    }
}

impl Transport {
    /// Checks the bounds of each number.
    fn check(&self) -> Result<(), ConfigError> {
        let is_time = |time: Option<Duration>| {
            time.is_none_or(|time| (limits::TIME_MIN..=limits::TIME_MAX).contains(&time))
        };
        let is_window = |bytes: u64| (1..=limits::NUMBER_MAX).contains(&bytes);
        let is_mtu = |bytes: u16| (1200..=65_527).contains(&bytes);
        let is_buffer = |bytes: usize| (1..=limits::BUFFER_MAX).contains(&bytes);
        let is_rtt = |rtt| (limits::INITIAL_RTT_MIN..=limits::INITIAL_RTT_MAX).contains(&rtt);
        let is_buffer_or_none = self.datagram_receive_buffer.is_none_or(is_buffer);
        let check = ConfigError::check;
        check(is_time(self.idle_timeout), "idle_timeout: 1 ms to 10 years, or none")?;
        check(is_time(self.handshake_timeout), "handshake_timeout: 1 ms to 10 years, or none")?;
        check(is_time(self.keep_alive), "keep_alive: 1 ms to 10 years, or none")?;
        check(self.bi_streams_max <= limits::STREAMS_LIMIT, "bi_streams_max: 0 to 65536")?;
        check(self.uni_streams_max <= limits::STREAMS_LIMIT, "uni_streams_max: 0 to 65536")?;
        check(is_window(self.stream_receive_window), "stream_receive_window: 1 to 2^62 - 1")?;
        check(is_window(self.receive_window), "receive_window: 1 to 2^62 - 1")?;
        check(self.receive_window_max <= limits::NUMBER_MAX, "receive_window_max: 0 to 2^62 - 1")?;
        check(is_window(self.send_window), "send_window: 1 to 2^62 - 1")?;
        check(is_window(self.send_window_min), "send_window_min: 1 to 2^62 - 1")?;
        check(is_buffer_or_none, "datagram_receive_buffer: 1 to 2^31 - 1, or none")?;
        check(is_buffer(self.datagram_send_buffer), "datagram_send_buffer: 1 to 2^31 - 1")?;
        check(is_mtu(self.initial_mtu), "initial_mtu: 1200 to 65527")?;
        check(self.mtu_max.is_none_or(is_mtu), "mtu_max: 1200 to 65527, or none")?;
        check(is_rtt(self.initial_rtt), "initial_rtt: 1 us to 60 s")
    }

    pub(super) fn build(&self) -> Result<Arc<proto::TransportConfig>, ConfigError> {
        self.check()?;
        let idle = self.idle_timeout.map(proto::IdleTimeout::try_from).transpose();
        let idle = idle.map_err(|_| ConfigError::OutOfBounds("idle_timeout: 1 ms to 10 years"))?;
        let mut config = proto::TransportConfig::default();
        config
            .max_idle_timeout(idle)
            .keep_alive_interval(self.keep_alive)
            .max_concurrent_bidi_streams(varint(self.bi_streams_max.min(limits::STREAMS_AT_FIRST)))
            .max_concurrent_uni_streams(varint(self.uni_streams_max.min(limits::STREAMS_AT_FIRST)))
            .stream_receive_window(varint(self.stream_receive_window))
            .receive_window(varint(self.receive_window))
            .send_window(self.send_window_min.min(self.send_window))
            .datagram_receive_buffer_size(self.datagram_receive_buffer)
            .datagram_send_buffer_size(self.datagram_send_buffer)
            .initial_mtu(self.initial_mtu)
            .crypto_buffer_size(limits::CRYPTO_BUFFER)
            .initial_rtt(self.initial_rtt)
            .mtu_discovery_config(self.mtu_max.map(|mtu_max| {
                let mut discovery = proto::MtuDiscoveryConfig::default();
                discovery.upper_bound(mtu_max);
                discovery
            }));
        if self.ack_frequency {
            config.ack_frequency_config(Some(proto::AckFrequencyConfig::default()));
        }
        config.congestion_controller_factory(match self.congestion {
            Congestion::Cubic => proto::congestion::cubic(),
            Congestion::NewReno => proto::congestion::new_reno(),
            Congestion::Bbr => proto::congestion::bbr(),
        });
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Transport)) -> String {
        let mut transport = Transport::default();
        change(&mut transport);
        transport.build().unwrap_err().to_string()
    }

    #[test]
    fn out_of_bounds_settings_are_rejected_by_name() {
        let none = Duration::ZERO;
        let refusals = [
            ("idle_timeout", refusal(|it| it.idle_timeout = Some(none))),
            ("idle_timeout", refusal(|it| it.idle_timeout = Some(Duration::from_micros(999)))),
            ("idle_timeout", refusal(|it| it.idle_timeout = Some(Duration::MAX))),
            ("handshake_timeout", refusal(|it| it.handshake_timeout = Some(none))),
            ("handshake_timeout", refusal(|it| it.handshake_timeout = Some(Duration::MAX))),
            ("keep_alive", refusal(|it| it.keep_alive = Some(none))),
            ("bi_streams_max", refusal(|it| it.bi_streams_max = 1 << 62)),
            ("uni_streams_max", refusal(|it| it.uni_streams_max = limits::STREAMS_LIMIT + 1)),
            ("stream_receive_window", refusal(|it| it.stream_receive_window = 0)),
            ("stream_receive_window", refusal(|it| it.stream_receive_window = 1 << 62)),
            ("receive_window", refusal(|it| it.receive_window = 0)),
            ("receive_window_max", refusal(|it| it.receive_window_max = u64::MAX)),
            ("send_window", refusal(|it| it.send_window = 0)),
            ("send_window_min", refusal(|it| it.send_window_min = 0)),
            ("datagram_receive_buffer", refusal(|it| it.datagram_receive_buffer = Some(0))),
            ("datagram_send_buffer", refusal(|it| it.datagram_send_buffer = usize::MAX)),
            ("initial_mtu", refusal(|it| it.initial_mtu = 1199)),
            ("mtu_max", refusal(|it| it.mtu_max = Some(u16::MAX))),
            ("initial_rtt", refusal(|it| it.initial_rtt = none)),
        ];
        for (name, said) in refusals {
            assert!(said.contains(&format!("{name}: ")), "{name}: {said}");
        }
        let smallest = Transport {
            idle_timeout: Some(limits::TIME_MIN),
            handshake_timeout: Some(limits::TIME_MIN),
            bi_streams_max: 0,
            uni_streams_max: 0,
            receive_window: 1,
            receive_window_max: 0,
            stream_receive_window: 1,
            send_window: 1,
            send_window_min: 1,
            datagram_receive_buffer: Some(1),
            datagram_send_buffer: 1,
            mtu_max: Some(1200),
            ..Transport::default()
        };
        assert!(smallest.build().is_ok());
    }
}
