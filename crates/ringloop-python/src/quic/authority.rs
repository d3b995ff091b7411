//! A private CA and its certificates, as PEM text.
//!
//! Owns: their contents (RFC 5280 §4). Called by: `ringloop.quic._certificate`, which checks names
//! and handles the files.
//!
//! A CA is identified by its key: its name is derived from the key, so that two CAs cannot be
//! confused, and further certificates need only the files of certificate and key.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pyo3::prelude::*;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use ringloop_quic::error::ConfigError;
use ringloop_quic::tls::Certificate;

use super::errors;
use crate::ffi::Fallible;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Backdating of certificates, for clocks that are behind.
const SLACK: Duration = Duration::from_secs(3600);

/// Lifetime of CAs.
const AUTHORITY_DAYS: u32 = 3650;

/// RFC 5280, appendix A.1: `ub-common-name`.
const COMMON_NAME_MAX: usize = 64;

/// The PEM texts of a certificate and its key.
type Pair = (String, String);

/// Sign a certificate for DNS names and addresses, which the caller has validated.
///
/// Shape: `authority` is an authority's certificate and key in PEM, made by an earlier call; without it a new one is
/// made. Returns the authority's certificate and key, the certificate and its key.
#[pyfunction]
#[pyo3(signature = (names, days, authority=None))]
pub fn sign_certificate(
    py: Python<'_>,
    names: Vec<String>,
    days: u32,
    authority: Option<Pair>,
) -> PyResult<Fallible<(String, String, String, String)>> {
    let made = sign(names, days, authority);
    let ((trusted, signer), (shown, key)) = made.map_err(|error| errors::config(py, error))?;
    Ok(Fallible((trusted, signer, shown, key)))
}

fn sign(
    names: Vec<String>,
    days: u32,
    authority: Option<Pair>,
) -> Result<(Pair, Pair), ConfigError> {
    let now = SystemTime::now();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let end = now + DAY * days.min(AUTHORITY_DAYS);
    let (signer, trusted) = if let Some((certificate, key)) = authority {
        let signer = KeyPair::from_pem(&key).map_err(refused)?;
        check(&certificate, &key, &name_of(&signer), end)?;
        (signer, certificate)
    } else {
        let signer = KeyPair::generate().map_err(refused)?;
        let made = authority_params(&signer, now).self_signed(&signer);
        (signer, made.map_err(refused)?.pem())
    };
    let signer_pem = signer.serialize_pem();
    // A signature uses only the CA's name from here.
    let issuer = Issuer::new(authority_params(&signer, now), signer);
    let key = KeyPair::generate().map_err(refused)?;
    let leaf = leaf_for(names, now, end)?;
    let shown = leaf.signed_by(&key, &issuer).map_err(refused)?;
    Ok(((trusted, signer_pem), (shown.pem(), key.serialize_pem())))
}

fn refused(error: rcgen::Error) -> ConfigError {
    ConfigError::Pem(error.to_string())
}

/// The name of the CA with this key.
fn name_of(signer: &KeyPair) -> String {
    let id = CertificateParams::default().key_identifier(signer);
    let digits: Vec<String> = id.iter().take(6).map(|byte| format!("{byte:02x}")).collect();
    format!("ringloop authority {}", digits.concat())
}

fn authority_params(signer: &KeyPair, now: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&name_of(signer));
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(SLACK);
    params.not_after = date_time_ymd(1970, 1, 1) + now + DAY * AUTHORITY_DAYS;
    // It signs end-entity certificates only.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn leaf_for(
    names: Vec<String>,
    now: Duration,
    end: Duration,
) -> Result<CertificateParams, ConfigError> {
    let first = names.first().filter(|name| name.len() <= COMMON_NAME_MAX);
    let name = called(first.map_or("ringloop certificate", String::as_str));
    let mut params = CertificateParams::new(names).map_err(refused)?;
    params.distinguished_name = name;
    params.not_before = date_time_ymd(1970, 1, 1) + now.saturating_sub(SLACK);
    params.not_after = date_time_ymd(1970, 1, 1) + end;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    // Required by strict verification (`ssl.VERIFY_X509_STRICT`, the default of CPython 3.13).
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

fn called(name: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::CommonName, name);
    called
}

/// Rejects a CA whose certificates would not verify: clients would report that only much later.
fn check(certificate: &str, key: &str, name: &str, end: Duration) -> Result<(), ConfigError> {
    let authority = Certificate::from_pem(certificate.as_bytes(), key.as_bytes())?;
    if authority.subject().as_deref() != Some(name) {
        return Err(ConfigError::Pem(
            "it was not made here: sign with the tool that made it, or give another directory"
                .to_owned(),
        ));
    }
    match authority.not_after() {
        Some(last) if last.as_secs() >= end.as_secs() => Ok(()),
        _ => Err(ConfigError::Pem(
            "it expires before the certificate would: give fewer days, or another directory for a new one"
                .to_owned(),
        )),
    }
}
