//! The names in a certificate, for texts of errors: as little of X.509 (RFC 5280 §4.1) as that takes.
//!
//! Called by: `refusal`, `tls`. Never does: verify, or decide by what it has read.

use rustls::pki_types::CertificateDer;

/// Who has signed a certificate, and for whom.
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
/// The version, which is left out in the first one.
const VERSION: u8 = 0xa0;
/// 2.5.4.3, 2.5.4.10.
const COMMON_NAME: &[u8] = &[0x55, 4, 3];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

/// Returns `None` where it is no certificate.
pub(super) fn names(der: &CertificateDer<'_>) -> Option<Names> {
    let mut outer = Reader(der);
    let mut fields = Reader(Reader(outer.take(SEQUENCE)?).take(SEQUENCE)?);
    if fields.0.first() == Some(&VERSION) {
        fields.take(VERSION)?;
    }
    fields.take(INTEGER)?;
    fields.take(SEQUENCE)?;
    let issuer = fields.take(SEQUENCE)?;
    fields.take(SEQUENCE)?;
    let subject = fields.take(SEQUENCE)?;
    Some(Names {
        issuer: shown(issuer),
        subject: shown(subject),
        is_self_signed: issuer == subject,
    })
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

/// DER, from value to value.
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
                let len = bytes
                    .iter()
                    .fold(0, |len, &byte| len << 8 | usize::from(byte));
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

    #[test]
    fn whatever_is_no_certificate_has_no_names() {
        let der = certificate();
        for end in 0..der.len() {
            let _ = names(&CertificateDer::from(&der[..end]));
        }
        assert_eq!(names(&CertificateDer::from(&b"0\x81"[..])), None);
        assert_eq!(names(&CertificateDer::from(&der[..der.len() - 1])), None);
    }
}
