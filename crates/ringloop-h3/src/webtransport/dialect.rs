//! Selects the WebTransport draft by both ends' settings.

use super::config::{Config, Limits};
use crate::{Code, ConnectionError, Role, Settings};

/// `SETTINGS_ENABLE_WEBTRANSPORT` of draft 02.
const ENABLE_WEBTRANSPORT: u64 = 0x2b60_3742;
/// `SETTINGS_WEBTRANSPORT_MAX_SESSIONS` of draft 07.
const MAX_SESSIONS_07: u64 = 0xc671_706a;
/// `SETTINGS_WT_MAX_SESSIONS` of drafts 13 and 14.
const MAX_SESSIONS_13: u64 = 0x14e9_cd29;
/// `SETTINGS_WT_ENABLED` of draft 15 and later.
const WT_ENABLED: u64 = 0x2c7c_f000;
/// `SETTINGS_H3_DATAGRAM` of draft-ietf-masque-h3-datagram-04, which old Chromium requires with draft 02.
const DRAFT04_H3_DATAGRAM: u64 = 0xff_d277;
/// `SETTINGS_WT_INITIAL_MAX_DATA`.
const INITIAL_MAX_DATA: u64 = 0x2b61;
/// `SETTINGS_WT_INITIAL_MAX_STREAMS_UNI`.
const INITIAL_MAX_STREAMS_UNI: u64 = 0x2b64;
/// `SETTINGS_WT_INITIAL_MAX_STREAMS_BIDI`.
const INITIAL_MAX_STREAMS_BIDI: u64 = 0x2b65;

/// A wire format, named by the first draft that has it; a later one is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dialect {
    /// Drafts 02 to 06: Chromium and Firefox.
    Draft02,
    /// Drafts 07 to 12: Safari, and most libraries.
    Draft07,
    /// Drafts 13 and 14: the first with flow control in a session.
    Draft13,
    /// Draft 15 and later: `webtransport-h3`, and `RESET_STREAM_AT` is required.
    Draft15,
}

impl Dialect {
    /// The `:protocol` of a request for a session.
    pub fn upgrade_token(self) -> &'static str {
        if self < Self::Draft15 { "webtransport" } else { "webtransport-h3" }
    }

    fn has_flow_control(self) -> bool {
        self >= Self::Draft13
    }
}

/// The result of both ends' settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Negotiated {
    pub(super) dialect: Dialect,
    /// Sessions that may exist at a time.
    pub(super) sessions_max: usize,
    /// The peer's initial limits for each session; `None` without flow control.
    pub(super) peer_limits: Option<Limits>,
}

impl Config {
    /// Makes a connection announce WebTransport, and return its streams as events. QUIC must accept datagrams.
    pub fn enable(&self, role: Role, connection: &mut crate::Config) {
        connection.raw_streams = true;
        connection.settings.datagrams = true;
        connection.settings.extended_connect |= role == Role::Server;
        connection.settings.others.extend(settings(self));
    }
}

/// The settings to send, identifiers with their values. The module documentation gives the reasons.
fn settings(config: &Config) -> Vec<(u64, u64)> {
    let sessions_max = if config.flow_control.is_some() { config.sessions_max as u64 } else { 1 };
    let mut settings = vec![
        (DRAFT04_H3_DATAGRAM, 1),
        (ENABLE_WEBTRANSPORT, 1),
        (MAX_SESSIONS_07, sessions_max),
        (MAX_SESSIONS_13, sessions_max),
    ];
    if let Some(limits) = config.flow_control {
        settings.extend([
            (INITIAL_MAX_DATA, limits.data),
            (INITIAL_MAX_STREAMS_UNI, limits.unidirectional_streams),
            (INITIAL_MAX_STREAMS_BIDI, limits.bidirectional_streams),
        ]);
    }
    if config.has_reset_stream_at {
        settings.push((WT_ENABLED, 1));
    }
    settings
}

/// The dialect of a connection, by the peer's settings; `None` if the ends have none in common.
///
/// # Errors
/// `H3_SETTINGS_ERROR`: a value that the drafts forbid.
pub(super) fn negotiate(
    config: &Config,
    role: Role,
    peer: &Settings,
) -> Result<Option<Negotiated>, ConnectionError> {
    let get = |id| peer.other(id).unwrap_or(0);
    let is_client = role == Role::Client;
    let wrong = |reason| Err(ConnectionError::new(Code::H3_SETTINGS_ERROR, reason));
    if get(ENABLE_WEBTRANSPORT) > 1 {
        return wrong("SETTINGS_ENABLE_WEBTRANSPORT is neither 0 nor 1");
    }
    if get(WT_ENABLED) > 1 && is_client {
        return wrong("SETTINGS_WT_ENABLED is neither 0 nor 1");
    }
    // Only servers must send it.
    let has_connect = peer.extended_connect || !is_client;
    let dialect = if !has_connect {
        return Ok(None);
    } else if config.has_reset_stream_at && get(WT_ENABLED) == 1 && peer.datagrams {
        Dialect::Draft15
    } else if get(MAX_SESSIONS_13) > 0 {
        Dialect::Draft13
    } else if get(MAX_SESSIONS_07) > 0 {
        Dialect::Draft07
    } else if get(ENABLE_WEBTRANSPORT) == 1 {
        Dialect::Draft02
    } else {
        return Ok(None);
    };
    let limits = Limits {
        data: get(INITIAL_MAX_DATA),
        bidirectional_streams: get(INITIAL_MAX_STREAMS_BIDI),
        unidirectional_streams: get(INITIAL_MAX_STREAMS_UNI),
    };
    let peer_wants_flow_control =
        limits != Limits::default() || (dialect == Dialect::Draft13 && get(MAX_SESSIONS_13) > 1);
    let has_flow_control =
        dialect.has_flow_control() && config.flow_control.is_some() && peer_wants_flow_control;
    let allowed = match dialect {
        Dialect::Draft07 if is_client => get(MAX_SESSIONS_07),
        Dialect::Draft13 if is_client && has_flow_control => get(MAX_SESSIONS_13),
        _ if dialect.has_flow_control() && !has_flow_control => 1,
        _ => u64::MAX,
    };
    Ok(Some(Negotiated {
        dialect,
        sessions_max: allowed.min(config.sessions_max as u64) as usize,
        peer_limits: has_flow_control.then_some(limits),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { data: 1000, bidirectional_streams: 3, unidirectional_streams: 4 };

    fn peer(others: &[(u64, u64)]) -> Settings {
        Settings {
            extended_connect: true,
            datagrams: true,
            others: others.to_vec(),
            ..Settings::default()
        }
    }

    fn config(flow_control: Option<Limits>, has_reset_stream_at: bool) -> Config {
        Config { flow_control, has_reset_stream_at, ..Config::default() }
    }

    fn dialect(role: Role, peer: &Settings) -> Option<Dialect> {
        let negotiated = negotiate(&config(None, true), role, peer).unwrap();
        negotiated.map(|negotiated| negotiated.dialect)
    }

    #[test]
    fn the_newest_dialect_of_both_is_chosen() {
        let all = [
            (ENABLE_WEBTRANSPORT, 1),
            (MAX_SESSIONS_07, 1),
            (MAX_SESSIONS_13, (1 << 62) - 1),
            (WT_ENABLED, 1),
        ];
        let dialects = [Dialect::Draft02, Dialect::Draft07, Dialect::Draft13, Dialect::Draft15];
        for role in [Role::Client, Role::Server] {
            assert_eq!(dialect(role, &peer(&[])), None);
            for (at, expected) in dialects.into_iter().enumerate() {
                assert_eq!(dialect(role, &peer(&all[at..=at])), Some(expected));
                assert_eq!(dialect(role, &peer(&all[..=at])), Some(expected));
            }
        }
    }

    #[test]
    fn a_dialect_without_its_required_settings_is_not_chosen() {
        let mut settings = peer(&[(MAX_SESSIONS_07, 1), (WT_ENABLED, 1)]);
        settings.datagrams = false;
        assert_eq!(dialect(Role::Client, &settings), Some(Dialect::Draft07));
        settings.extended_connect = false;
        assert_eq!(dialect(Role::Client, &settings), None);
        assert_eq!(dialect(Role::Server, &settings), Some(Dialect::Draft07));
        let newest = peer(&[(WT_ENABLED, 1)]);
        let without_reset_stream_at = negotiate(&Config::default(), Role::Client, &newest);
        assert_eq!(without_reset_stream_at, Ok(None));
    }

    #[test]
    fn values_that_the_drafts_forbid_end_the_connection() {
        for (setting, role, is_refused) in [
            (ENABLE_WEBTRANSPORT, Role::Client, true),
            (ENABLE_WEBTRANSPORT, Role::Server, true),
            (WT_ENABLED, Role::Client, true),
            (WT_ENABLED, Role::Server, false),
        ] {
            let negotiated = negotiate(&Config::default(), role, &peer(&[(setting, 2)]));
            let code = negotiated.err().map(|error| error.code);
            assert_eq!(code, is_refused.then_some(Code::H3_SETTINGS_ERROR));
        }
    }

    #[test]
    fn our_settings_are_understood_by_ourselves() {
        for (flow_control, has_reset_stream_at) in
            [(None, false), (Some(LIMITS), false), (None, true), (Some(LIMITS), true)]
        {
            let config = config(flow_control, has_reset_stream_at);
            let sent = peer(&settings(&config));
            for role in [Role::Client, Role::Server] {
                let negotiated = negotiate(&config, role, &sent).unwrap().unwrap();
                assert_eq!(negotiated.dialect >= Dialect::Draft15, has_reset_stream_at);
                assert_eq!(negotiated.peer_limits, flow_control);
                let expected = flow_control.map_or(1, |_| config.sessions_max);
                assert_eq!(negotiated.sessions_max, expected);
            }
        }
    }

    #[test]
    fn several_sessions_need_flow_control_from_draft_13_on() {
        let config = config(Some(LIMITS), false);
        let sessions = |others: &[(u64, u64)]| {
            let negotiated = negotiate(&config, Role::Client, &peer(others)).unwrap();
            negotiated.map(|negotiated| (negotiated.sessions_max, negotiated.peer_limits.is_some()))
        };
        let ours = config.sessions_max;
        assert_eq!(sessions(&[(ENABLE_WEBTRANSPORT, 1)]), Some((ours, false)));
        assert_eq!(sessions(&[(MAX_SESSIONS_07, 2)]), Some((2, false)));
        assert_eq!(sessions(&[(MAX_SESSIONS_13, 1)]), Some((1, false)));
        assert_eq!(sessions(&[(MAX_SESSIONS_13, 2)]), Some((2, true)));
        let with_limit = [(MAX_SESSIONS_13, 1), (INITIAL_MAX_DATA, 9)];
        assert_eq!(sessions(&with_limit), Some((1, true)));
    }

    #[test]
    fn more_than_one_session_comes_with_limits_as_safari_demands() {
        let one = [
            (DRAFT04_H3_DATAGRAM, 1),
            (ENABLE_WEBTRANSPORT, 1),
            (MAX_SESSIONS_07, 1),
            (MAX_SESSIONS_13, 1),
        ];
        assert_eq!(settings(&Config::default()), one);
        let config = config(Some(LIMITS), false);
        let sent = settings(&config);
        assert!(sent.contains(&(MAX_SESSIONS_13, config.sessions_max as u64)));
        assert!(sent.contains(&(INITIAL_MAX_DATA, 1000)));
    }
}
