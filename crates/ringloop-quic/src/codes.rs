//! Names of the protocol's error codes (RFC 9000 §20.1, RFC 9001 §4.8, RFC 9368 §6).
//!
//! Owns: the names. Called by: `error`, for its texts; applications that log codes.

/// Returns a code in readable form: its name and number. `CRYPTO_ERROR` also names its TLS alert.
///
/// A code without a name in the RFCs is a bare number.
pub fn name(code: u64) -> String {
    let name = match code {
        0x0 => "NO_ERROR",
        0x1 => "INTERNAL_ERROR",
        0x2 => "CONNECTION_REFUSED",
        0x3 => "FLOW_CONTROL_ERROR",
        0x4 => "STREAM_LIMIT_ERROR",
        0x5 => "STREAM_STATE_ERROR",
        0x6 => "FINAL_SIZE_ERROR",
        0x7 => "FRAME_ENCODING_ERROR",
        0x8 => "TRANSPORT_PARAMETER_ERROR",
        0x9 => "CONNECTION_ID_LIMIT_ERROR",
        0xa => "PROTOCOL_VIOLATION",
        0xb => "INVALID_TOKEN",
        0xc => "APPLICATION_ERROR",
        0xd => "CRYPTO_BUFFER_EXCEEDED",
        0xe => "KEY_UPDATE_ERROR",
        0xf => "AEAD_LIMIT_REACHED",
        0x10 => "NO_VIABLE_PATH",
        0x11 => "VERSION_NEGOTIATION_ERROR",
        0x100..0x200 => {
            return match alert(code & 0xff) {
                Some(alert) => format!("CRYPTO_ERROR ({code:#x}, {alert})"),
                None => format!("CRYPTO_ERROR ({code:#x})"),
            };
        }
        _ => return format!("error {code:#x}"),
    };
    format!("{name} ({code:#x})")
}

/// Returns a code's name and `said`; if that is empty, what the code means in a handshake.
pub fn explained(code: u64, said: &str) -> String {
    let said = match (code, said) {
        (0x2, "") => "it accepts no more connections now",
        // RFC 9000 §10.2.3: the application's code and reason are withheld until the peer is
        // authenticated.
        (0xc, "") => "its program closed the connection",
        (_, said) => said,
    };
    let colon = if said.is_empty() { "" } else { ": " };
    format!("{}{colon}{said}", name(code))
}

/// Whether a code carries a TLS alert (RFC 9001 §4.8).
pub fn is_of_tls(code: u64) -> bool {
    (0x100..0x200).contains(&code)
}

/// RFC 8446 §6.
fn alert(number: u64) -> Option<&'static str> {
    Some(match number {
        0 => "close_notify",
        10 => "unexpected_message",
        20 => "bad_record_mac",
        22 => "record_overflow",
        40 => "handshake_failure",
        42 => "bad_certificate",
        43 => "unsupported_certificate",
        44 => "certificate_revoked",
        45 => "certificate_expired",
        46 => "certificate_unknown",
        47 => "illegal_parameter",
        48 => "unknown_ca",
        49 => "access_denied",
        50 => "decode_error",
        51 => "decrypt_error",
        70 => "protocol_version",
        71 => "insufficient_security",
        80 => "internal_error",
        86 => "inappropriate_fallback",
        90 => "user_canceled",
        109 => "missing_extension",
        110 => "unsupported_extension",
        112 => "unrecognized_name",
        113 => "bad_certificate_status_response",
        115 => "unknown_psk_identity",
        116 => "certificate_required",
        120 => "no_application_protocol",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_names_numbers_and_explanations() {
        assert_eq!(name(0xa), "PROTOCOL_VIOLATION (0xa)");
        assert_eq!(name(0x178), "CRYPTO_ERROR (0x178, no_application_protocol)");
        assert_eq!(name(0x101), "CRYPTO_ERROR (0x101)");
        assert_eq!(name(0x4242), "error 0x4242");
        assert_eq!(
            explained(2, ""),
            "CONNECTION_REFUSED (0x2): it accepts no more connections now"
        );
        assert_eq!(explained(2, "full"), "CONNECTION_REFUSED (0x2): full");
        assert_eq!(explained(3, ""), "FLOW_CONTROL_ERROR (0x3)");
    }
}
