//! Explains why a handshake was refused.
//!
//! Owns: the text for each of rustls' errors, and facts from its callbacks that its errors do not
//! contain ([`Seen`]). Called by: the sessions under the engine, verifiers, servers' certificates.
//!
//! The peer gets the text too, in `CONNECTION_CLOSE`: it names the cause, not the local remedy.

use super::x509;
use crate::proto::Side;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::{CertificateError, Error, InconsistentKeys, PeerIncompatible};
use std::cell::RefCell;
use std::net::IpAddr;
use std::time::Duration;

/// What callbacks of the current handshake have seen.
#[derive(Default)]
pub(crate) struct Seen {
    /// The names of an untrusted certificate.
    untrusted: Option<x509::Names>,
    /// The addresses of a certificate that is not for the server's name.
    addresses: Vec<Option<IpAddr>>,
    /// Servers: the protocols that the client offered.
    offered: Vec<Vec<u8>>,
    /// Servers: the name that the client requested.
    name: Option<String>,
}

thread_local! {
    static SEEN: RefCell<Seen> = RefCell::default();
}

/// Calls `read` and returns what callbacks saw meanwhile. Calls may nest: a verifier may drive
/// another handshake.
pub(crate) fn observe<T>(read: impl FnOnce() -> T) -> (T, Seen) {
    let around = SEEN.take();
    let result = read();
    (result, SEEN.replace(around))
}

/// Records an untrusted certificate.
pub(super) fn note_untrusted(shown: &CertificateDer<'_>) {
    let names = x509::names(shown);
    SEEN.with_borrow_mut(|seen| seen.untrusted = names);
}

/// Records the addresses of a certificate that is not for the server's name.
pub(super) fn note_addresses(shown: &CertificateDer<'_>) {
    let addresses = x509::addresses(shown);
    SEEN.with_borrow_mut(|seen| seen.addresses = addresses);
}

/// Records the names and protocols of a `ClientHello`.
pub(super) fn note_hello<'a>(name: Option<&str>, offered: impl Iterator<Item = &'a [u8]>) {
    SEEN.with_borrow_mut(|seen| {
        seen.name = name.map(str::to_owned);
        seen.offered = offered.map(<[u8]>::to_vec).collect();
    });
}

/// Returns why the handshake failed here; `protocols` are the local ones.
pub(crate) fn explain(error: &Error, side: Side, seen: &Seen, protocols: &[Vec<u8>]) -> String {
    let peer = match side {
        Side::Client => "server",
        Side::Server => "client",
    };
    match error {
        Error::InvalidCertificate(error) => certificate(error, peer, seen),
        Error::NoCertificatesPresented => format!("the {peer} presented no certificate"),
        Error::NoApplicationProtocol if side.is_server() => format!(
            "no common ALPN protocol: the client offers {}, the server speaks {}",
            listed(&seen.offered),
            listed(protocols)
        ),
        Error::NoApplicationProtocol => format!(
            "no common ALPN protocol: the client offers {}, and the server has chosen none of them",
            listed(protocols)
        ),
        // rustls' text if there is no certificate for the name.
        Error::General(text) if text == "no server certificate chain resolved" => {
            let name = seen.name.as_deref();
            let name = name.map_or("no name".to_owned(), |name| format!("{name:?}"));
            format!("the server has no certificate for the requested name: {name}")
        }
        Error::PeerIncompatible(error) => incompatible(error, peer),
        error => format!("TLS: {error}"),
    }
}

fn incompatible(error: &PeerIncompatible, peer: &str) -> String {
    use PeerIncompatible as Kind;
    match error {
        Kind::ServerDoesNotSupportTls12Or13
        | Kind::ServerTlsVersionIsDisabledByOurConfig
        | Kind::SupportedVersionsExtensionRequired
        | Kind::Tls12NotOffered
        | Kind::Tls12NotOfferedOrEnabled
        | Kind::Tls13RequiredForQuic => {
            format!("the {peer} does not support TLS 1.3, which QUIC requires")
        }
        Kind::NoCipherSuitesInCommon => {
            format!("no common cipher suite with the {peer}")
        }
        Kind::NoKxGroupsInCommon => format!("no common key exchange group with the {peer}"),
        Kind::NoSignatureSchemesInCommon => {
            format!("the {peer} accepts no certificate with this end's type of key")
        }
        error => format!("the {peer} does not meet a requirement of TLS 1.3: {error:?}"),
    }
}

fn certificate(error: &CertificateError, peer: &str, seen: &Seen) -> String {
    use CertificateError as Kind;
    match error {
        Kind::ExpiredContext { time, not_after } => {
            let ago = long(since(*not_after, *time));
            let (end, now) = (date(*not_after), date(*time));
            format!("the {peer}'s certificate expired on {end}, {ago} ago (it is {now} here)")
        }
        Kind::Expired => format!("the {peer}'s certificate has expired"),
        Kind::NotValidYetContext { time, not_before } => {
            let left = long(since(*time, *not_before));
            let (begin, now) = (date(*not_before), date(*time));
            format!(
                "the {peer}'s certificate is not valid before {begin}, in {left} (it is {now} here)"
            )
        }
        Kind::NotValidYet => format!("the {peer}'s certificate is not valid yet"),
        Kind::NotValidForNameContext { expected, presented } => {
            let presented = names(presented, &seen.addresses);
            let expected = expected.to_str();
            if presented.is_empty() {
                format!(
                    "the {peer}'s certificate is not for {expected:?}: it has no names (subjectAltName)"
                )
            } else {
                let names = presented.join(", ");
                format!("the {peer}'s certificate is not for {expected:?}: it is for {names}")
            }
        }
        Kind::UnknownIssuer => match &seen.untrusted {
            Some(names) if names.is_self_signed => format!(
                "the {peer}'s certificate is self-signed ({:?}), and is not trusted here",
                names.subject
            ),
            Some(names) => format!(
                "the {peer}'s certificate is signed by {:?}, an authority that is not trusted here",
                names.issuer
            ),
            None => format!(
                "the {peer}'s certificate is signed by an authority that is not trusted here"
            ),
        },
        Kind::BadSignature => format!(
            "the {peer}'s certificate is not signed by the authority trusted here under its issuer's name: \
            that is another one of the same name"
        ),
        Kind::BadEncoding => format!("the {peer}'s certificate cannot be parsed"),
        Kind::Revoked => format!("the {peer}'s certificate has been revoked"),
        // The type is in a crate that rustls does not re-export.
        Kind::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => format!(
            "the {peer} presented an authority's certificate (CA:TRUE) as its own; it needs one signed by that authority"
        ),
        error => format!("the {peer}'s certificate was rejected: {error}"),
    }
}

/// Returns why a key does not match its certificate, or is not a key.
pub(super) fn explain_pair(error: &Error) -> Option<&'static str> {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Some(
            "the private key is another certificate's: give the one that this certificate was made with",
        ),
        Error::InvalidCertificate(CertificateError::BadEncoding) => {
            Some("the certificate is invalid: neither PEM nor DER")
        }
        _ => None,
    }
}

/// Protocol names as text; others are escaped.
fn listed(protocols: &[Vec<u8>]) -> String {
    if protocols.is_empty() {
        return "none".to_owned();
    }
    let quoted = protocols.iter().map(|name| format!("\"{}\"", name.escape_ascii()));
    quoted.collect::<Vec<_>>().join(", ")
}

/// The names of a certificate; `addresses` are those among them.
fn names(presented: &[String], addresses: &[Option<IpAddr>]) -> Vec<String> {
    let mut addresses = addresses.iter();
    let shown = |name: &String| {
        // webpki abbreviates addresses in its own way: `::1` is `0::1`.
        let is_address = name.starts_with("IpAddress(");
        let address = if is_address { addresses.next().copied().flatten() } else { None };
        address.map_or_else(|| bare(name).to_owned(), |address| address.to_string())
    };
    presented.iter().map(shown).collect()
}

/// The value within webpki's `DnsName("localhost")` or `IpAddress(127.0.0.1)`.
fn bare(name: &str) -> &str {
    let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(name).trim_matches('"')
}

fn since(begin: UnixTime, end: UnixTime) -> Duration {
    Duration::from_secs(end.as_secs().saturating_sub(begin.as_secs()))
}

fn long(duration: Duration) -> String {
    let secs = duration.as_secs();
    let (count, unit) = match secs {
        0..120 => (secs, "second"),
        120..7_200 => (secs / 60, "minute"),
        7_200..172_800 => (secs / 3_600, "hour"),
        _ => (secs / 86_400, "day"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// A UTC date in the proleptic Gregorian calendar.
fn date(time: UnixTime) -> String {
    let (days, secs) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    // Days since 0000-03-01: a leap day is then the last of its year, and 400 years have 146097
    // days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (secs / 3_600, secs / 60 % 60, secs % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_match_the_calendar() {
        let shown = |secs| date(UnixTime::since_unix_epoch(Duration::from_secs(secs)));
        assert_eq!(shown(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(shown(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(shown(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(shown(1_735_689_599), "2024-12-31 23:59:59 UTC");
        assert_eq!(shown(4_107_542_400), "2100-03-01 00:00:00 UTC");
    }

    #[test]
    fn missing_tls_13_is_explained() {
        let seen = Seen::default();
        for error in [
            PeerIncompatible::SupportedVersionsExtensionRequired,
            PeerIncompatible::Tls13RequiredForQuic,
            PeerIncompatible::ServerDoesNotSupportTls12Or13,
        ] {
            let server = explain(&error.clone().into(), Side::Server, &seen, &[]);
            assert!(server.starts_with("the client does not support TLS 1.3"), "{server}");
            let client = explain(&error.into(), Side::Client, &seen, &[]);
            assert!(client.starts_with("the server does not support TLS 1.3"), "{client}");
        }
        let error = PeerIncompatible::NoKxGroupsInCommon.into();
        let text = explain(&error, Side::Server, &seen, &[]);
        assert_eq!(text, "no common key exchange group with the client");
        let error = PeerIncompatible::NullCompressionRequired.into();
        let text = explain(&error, Side::Server, &seen, &[]);
        assert!(text.ends_with("requirement of TLS 1.3: NullCompressionRequired"), "{text}");
    }

    #[test]
    fn names_are_shown_without_type_wrappers() {
        assert_eq!(bare("DnsName(\"*.example.org\")"), "*.example.org");
        assert_eq!(bare("IpAddress(::1)"), "::1");
        assert_eq!(bare("DirectoryName"), "DirectoryName");
        let presented = ["DnsName(\"a\")", "IpAddress(fe80)", "IpAddress([invalid: 01])"];
        let addresses = [Some("fe80::".parse().unwrap()), None];
        let shown = names(&presented.map(str::to_owned), &addresses);
        assert_eq!(shown, ["a", "fe80::", "[invalid: 01]"]);
    }
}
