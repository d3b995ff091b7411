//! Error codes (draft-ietf-webtrans-http3-16 §9.5) and the range that carries the application's (§4.4).

/// `WT_BUFFERED_STREAM_REJECTED`: a stream arrived before its session, and too many were buffered.
pub const BUFFERED_STREAM_REJECTED: u64 = 0x3994_bd84;
/// `WT_SESSION_GONE`: the session of a stream has ended.
pub const SESSION_GONE: u64 = 0x170d_7b68;
/// `WT_FLOW_CONTROL_ERROR`: the peer exceeded a limit of the session, or sent an invalid limit.
pub const FLOW_CONTROL_ERROR: u64 = 0x045d_4487;
/// `WT_ALPN_ERROR`: the server selected no sub-protocol, or an unoffered one.
pub const ALPN_ERROR: u64 = 0x0817_b3dd;
/// `WT_REQUIREMENTS_NOT_MET`: for closing a connection whose peer has no WebTransport.
pub const REQUIREMENTS_NOT_MET: u64 = 0x212c_0d48;

const APPLICATION_FIRST: u64 = 0x52e4_a40f_a8db;
const APPLICATION_LAST: u64 = 0x52e5_ac98_3162;

/// The code of a `RESET_STREAM` or `STOP_SENDING` that carries `application_code`.
pub fn to_http_code(application_code: u32) -> u64 {
    let code = u64::from(application_code);
    // One of 31 codes is reserved by HTTP/3 (RFC 9114 §8.1), and skipped.
    APPLICATION_FIRST + code + code / 0x1e
}

/// The application's code; `None` for codes outside of the range, which carry none.
pub fn to_application_code(http_code: u64) -> Option<u32> {
    let is_application = (APPLICATION_FIRST..=APPLICATION_LAST).contains(&http_code)
        && !(http_code - 0x21).is_multiple_of(0x1f);
    is_application.then(|| {
        let shifted = http_code - APPLICATION_FIRST;
        (shifted - shifted / 0x1f) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_map_both_ways_and_skip_the_reserved_ones() {
        let mut last = to_http_code(0) - 1;
        for code in 0..10_000 {
            let http_code = to_http_code(code);
            assert!((1..=2).contains(&(http_code - last)));
            assert_ne!((http_code - 0x21) % 0x1f, 0);
            assert_eq!(to_application_code(http_code), Some(code));
            for skipped in last + 1..http_code {
                assert_eq!((skipped - 0x21) % 0x1f, 0);
                assert_eq!(to_application_code(skipped), None);
            }
            last = http_code;
        }
    }

    #[test]
    fn the_ends_of_the_range_are_the_drafts() {
        assert_eq!(to_http_code(0), 0x52e4_a40f_a8db);
        assert_eq!(to_http_code(u32::MAX), 0x52e5_ac98_3162);
        assert_eq!(to_application_code(0x52e5_ac98_3162), Some(u32::MAX));
        for outside in
            [0, 0x10c, APPLICATION_FIRST - 1, APPLICATION_LAST + 1, SESSION_GONE, u64::MAX]
        {
            assert_eq!(to_application_code(outside), None);
        }
        // Draft 02 has codes of eight bits, in the same places.
        assert_eq!(to_http_code(0xff), 0x52e4_a40f_a9e2);
    }
}
