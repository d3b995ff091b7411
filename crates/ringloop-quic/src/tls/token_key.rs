//! The secrets of an endpoint: from which the keys of address tokens and stateless resets come.

#[cfg(not(feature = "ring"))]
use aws_lc_rs::{hkdf, hmac};
// The engine takes ring's types where it has both.
#[cfg(feature = "ring")]
use ring::{hkdf, hmac};

use super::provider;
use crate::error::ConfigError;
use std::sync::Arc;

/// The key of tokens, from a fresh secret.
pub(crate) fn random() -> Result<Arc<hkdf::Prk>, ConfigError> {
    let mut secret = [0; 64];
    let filled = provider().secure_random.fill(&mut secret);
    filled.map_err(|_| ConfigError::OutOfBounds("the system has no random numbers"))?;
    Ok(from_secret(&secret))
}

/// The key of tokens, from a secret.
pub(crate) fn from_secret(secret: &[u8]) -> Arc<hkdf::Prk> {
    Arc::new(hkdf::Salt::new(hkdf::HKDF_SHA256, b"ringloop-quic token").extract(secret))
}

/// The key of stateless resets, from a secret.
pub(crate) fn reset_key(secret: &[u8]) -> Arc<hmac::Key> {
    Arc::new(hmac::Key::new(hmac::HMAC_SHA256, secret))
}

/// What tells the connection ids of endpoints with one secret from other numbers.
pub(crate) fn connection_id_key(secret: &[u8]) -> u64 {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let tag = hmac::sign(&key, b"ringloop-quic connection id");
    tag.as_ref()
        .iter()
        .take(8)
        .fold(0, |key, byte| key << 8 | u64::from(*byte))
}
