//! Subject, issuer and expiry of a certificate, for messages: the minimum of X.509 (RFC 5280 §4.1)
//! for that.
//!
//! Called by: `refusal`, `tls`. Nothing is verified or decided by it.

use rustls::pki_types::{CertificateDer, UnixTime};
use std::net::IpAddr;
use std::time::Duration;

/// Issuer and subject of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub issuer: String,
    pub subject: String,
    pub is_self_signed: bool,
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
/// `YYMMDDHHMMSSZ`, years 1950 to 2049; the other form has four year digits (RFC 5280 §4.1.2.5).
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Version tag; absent in version 1.
const VERSION: u8 = 0xa0;
/// 2.5.4.3, 2.5.4.10.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];
const OCTET_STRING: u8 = 0x04;
/// The tag of a certificate's extensions (RFC 5280 §4.1).
const EXTENSIONS: u8 = 0xa3;
/// subjectAltName, and its iPAddress (RFC 5280 §4.2.1.6).
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 29, 17];
const IP_ADDRESS: u8 = 0x87;

/// The first fields of a certificate, unparsed.
struct Fields<'a> {
    issuer: &'a [u8],
    validity: &'a [u8],
    subject: &'a [u8],
    /// From the public key on.
    rest: Reader<'a>,
}

fn fields<'a>(der: &'a CertificateDer<'_>) -> Option<Fields<'a>> {
    let mut outer = Reader(der);
    let mut fields = Reader(Reader(outer.take(SEQUENCE)?).take(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.take(VERSION)?;
    }
    fields.take(INTEGER)?;
    fields.take(SEQUENCE)?;
    Some(Fields {
        issuer: fields.take(SEQUENCE)?,
        validity: fields.take(SEQUENCE)?,
        subject: fields.take(SEQUENCE)?,
        rest: fields,
    })
}

/// Returns `None` if it is not a certificate.
pub(super) fn names(der: &CertificateDer<'_>) -> Option<Names> {
    let fields = fields(der)?;
    Some(Names {
        issuer: shown(fields.issuer),
        subject: shown(fields.subject),
        is_self_signed: fields.issuer == fields.subject,
    })
}

/// The addresses among a certificate's names, in their order; `None` for one of a wrong length.
pub(super) fn addresses(der: &CertificateDer<'_>) -> Vec<Option<IpAddr>> {
    let mut addresses = Vec::new();
    let mut names = Reader(alternative_names(der).unwrap_or_default());
    while let Some((tag, name)) = names.any() {
        if tag == IP_ADDRESS {
            let v4 = <[u8; 4]>::try_from(name).map(IpAddr::from);
            addresses.push(v4.or_else(|_| <[u8; 16]>::try_from(name).map(IpAddr::from)).ok());
        }
    }
    addresses
}

fn alternative_names<'a>(der: &'a CertificateDer<'_>) -> Option<&'a [u8]> {
    let mut rest = fields(der)?.rest;
    let mut extensions = loop {
        if let (EXTENSIONS, value) = rest.any()? {
            break Reader(Reader(value).take(SEQUENCE)?);
        }
    };
    loop {
        let mut extension = Reader(extensions.take(SEQUENCE)?);
        if extension.take(OID)? != ALTERNATIVE_NAMES {
            continue;
        }
        // A boolean before the value marks it as critical.
        loop {
            if let (OCTET_STRING, value) = extension.any()? {
                return Reader(value).take(SEQUENCE);
            }
        }
    }
}

/// Returns `None` if it is not a certificate, or expired before 1970.
pub(super) fn not_after(der: &CertificateDer<'_>) -> Option<UnixTime> {
    let mut validity = Reader(fields(der)?.validity);
    validity.any()?;
    match validity.any()? {
        (UTC_TIME, text) => {
            let (year, rest) = number(text, 2)?;
            moment(if year < 50 { 2000 + year } else { 1900 + year }, rest)
        }
        (GENERALIZED_TIME, text) => {
            let (year, rest) = number(text, 4)?;
            moment(year, rest)
        }
        _ => None,
    }
}

/// The leading digits of a text as a number, and the rest.
fn number(text: &[u8], count: usize) -> Option<(u64, &[u8])> {
    let (digits, rest) = text.split_at_checked(count)?;
    let value = digits.iter().try_fold(0, |value, digit| {
        digit.is_ascii_digit().then(|| 10 * value + u64::from(digit - b'0'))
    });
    Some((value?, rest))
}

/// Time of a year and `MMDDHHMMSSZ`.
fn moment(year: u64, rest: &[u8]) -> Option<UnixTime> {
    let (month, rest) = number(rest, 2)?;
    let (day, rest) = number(rest, 2)?;
    let (hour, rest) = number(rest, 2)?;
    let (minute, rest) = number(rest, 2)?;
    let (second, _) = number(rest, 2)?;
    // Years start in March, so that a leap day is the last one; 400 years have 146097 days.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    let secs = ((days * 24 + hour) * 60 + minute) * 60 + second;
    Some(UnixTime::since_unix_epoch(Duration::from_secs(secs)))
}

/// The common name, else the organisation.
fn shown(name: &[u8]) -> String {
    let common = attribute(name, COMMON_NAME);
    common
        .or_else(|| attribute(name, ORGANIZATION))
        .unwrap_or_else(|| "an authority without a name".to_owned())
}

fn attribute(name: &[u8], wanted: &[u8]) -> Option<String> {
    let mut parts = Reader(name);
    while let Some(part) = parts.take(SET) {
        let mut pair = Reader(Reader(part).take(SEQUENCE)?);
        if pair.take(OID)? == wanted {
            let (_, text) = pair.any()?;
            return Some(String::from_utf8_lossy(text).into_owned());
        }
    }
    None
}

/// Reads DER values in sequence.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        match self.any()? {
            (found, value) if found == tag => Some(value),
            _ => None,
        }
    }

    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x83 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
                let len = bytes.iter().fold(0, |len, &byte| len << 8 | usize::from(byte));
                (len, rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate() -> CertificateDer<'static> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        made.cert.into()
    }

    #[test]
    fn names_of_a_self_signed_certificate() {
        let names = names(&certificate()).unwrap();
        assert!(names.is_self_signed);
        assert_eq!(names.issuer, "rcgen self signed cert");
        assert_eq!(names.subject, names.issuer);
    }

    /// webpki writes `::1` as `0::1`, `fe80::` as `fe80`, and both zero runs of an address as `::`.
    #[test]
    fn addresses_of_a_certificate() {
        let shown = ["::1", "127.0.0.1", "fe80::", "2001:db8::1:0:0:2", "::"];
        let names: Vec<String> =
            shown.iter().flat_map(|ip| ["localhost".to_owned(), (*ip).to_owned()]).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let der = CertificateDer::from(made.cert);
        let found = addresses(&der);
        assert_eq!(found, shown.map(|ip| Some(ip.parse().unwrap())));
        for end in 0..der.len() {
            let _ = addresses(&CertificateDer::from(&der[..end]));
        }
        assert_eq!(addresses(&certificate()), []);
    }

    #[test]
    fn expiry_is_parsed_from_both_time_formats() {
        for (year, month, day, secs) in [
            (1970, 1, 1, 0),
            (2000, 2, 29, 951_782_400),
            (2049, 12, 31, 2_524_521_600),
            (2050, 1, 1, 2_524_608_000),
            (2100, 3, 1, 4_107_542_400),
        ] {
            let mut params = rcgen::CertificateParams::default();
            params.not_after = rcgen::date_time_ymd(year, month, day);
            let key = rcgen::KeyPair::generate().unwrap();
            let made: CertificateDer<'_> = params.self_signed(&key).unwrap().into();
            assert_eq!(not_after(&made).unwrap().as_secs(), secs, "{year}-{month}");
            for end in 0..made.len() {
                let _ = not_after(&CertificateDer::from(&made[..end]));
            }
        }
        assert_eq!(number(b"1x", 2), None);
        assert_eq!(number(b"1", 2), None);
        assert_eq!(moment(1969, b"1231235959Z"), None);
        assert_eq!(moment(1970, b"0001"), None);
    }

    #[test]
    fn invalid_certificates_have_no_names() {
        let der = certificate();
        for end in 0..der.len() {
            let _ = names(&CertificateDer::from(&der[..end]));
        }
        assert_eq!(names(&CertificateDer::from(&b"0\x81"[..])), None);
        assert_eq!(names(&CertificateDer::from(&der[..der.len() - 1])), None);
    }
}
