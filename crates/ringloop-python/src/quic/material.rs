//! Certificates, keys and authorities: the forms in which Python passes them.
//!
//! Owns: the accepted forms, and the errors for others, which never show a key's contents. Called
//! by: `config`.

use std::path::PathBuf;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PyString, PyTuple};
use ringloop_quic::error::ConfigError;
use ringloop_quic::rustls::pki_types::pem::PemObject;
use ringloop_quic::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use ringloop_quic::tls::{Certificate, Roots};

use super::errors;
use super::exception;
use super::keywords::Keywords;
use crate::error;
use crate::ffi::{self, Raise as _, intern};

/// The authorities given by `ca_*`; `None` if none is given.
pub fn roots(py: Python<'_>, keywords: &Keywords<'_>) -> PyResult<Option<Roots>> {
    let refused = |error| errors::config(py, error);
    let file = keywords.take_path("ca_file")?;
    let directory = keywords.take_path("ca_path")?;
    let data = keywords.take_some("ca_data")?;
    let is_silent = file.is_none() && directory.is_none() && data.is_none();
    let system: Option<bool> = keywords.take_or("system_roots", None)?;
    if is_silent && system.is_none() {
        return Ok(None);
    }
    let system = system == Some(true);
    let mut roots = if system { Roots::system().map_err(refused)? } else { Roots::empty() };
    let refused = |name| move |error| errors::config_of(py, name, error);
    if let Some(file) = file {
        roots = roots.add_file(file).map_err(refused("ca_file"))?;
    }
    if let Some(directory) = directory {
        roots = roots.add_directory(directory).map_err(refused("ca_path"))?;
    }
    if let Some(data) = data {
        let parts = parts("ca_data", &data)?;
        if parts.is_empty() {
            let text = "ca_data has no certificate: give one or more, or None";
            return Err(exception::configuration(py, text.to_owned()));
        }
        for data in parts {
            roots = add_root(roots, data).map_err(refused("ca_data"))?;
        }
    }
    Ok(Some(roots))
}

fn add_root(roots: Roots, data: Vec<u8>) -> Result<Roots, ConfigError> {
    if is_pem(&data) {
        return roots.add_pem(&data);
    }
    roots.add_der(CertificateDer::from(data)).map_err(|error| {
        ConfigError::Pem(format!("neither PEM nor DER of a certificate ({error})"))
    })
}

fn is_pem(data: &[u8]) -> bool {
    const BEGIN: &[u8] = b"-----BEGIN";
    data.windows(BEGIN.len()).any(|window| window == BEGIN)
}

/// Text or bytes; a list of numbers is rejected.
pub fn bytes(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(text.to_str()?.as_bytes().to_vec());
    }
    if object.is_instance_of::<PyBytes>() || object.is_instance_of::<PyByteArray>() {
        return object.extract();
    }
    let memory = PyMemoryView::from(object)?;
    memory.call_method0(intern!(object.py(), "tobytes"))?.extract()
}

/// A secret that others must not guess: bytes, at least one.
pub fn secret(keywords: &Keywords<'_>, name: &str) -> PyResult<Option<Vec<u8>>> {
    let Some(given) = keywords.take_some(name)? else {
        return Ok(None);
    };
    let made = if given.is_instance_of::<PyString>() {
        Err(PyTypeError::raise("a bytes-like object is required, not 'str'"))
    } else {
        bytes(&given)
    };
    let secret = keywords.named(name, made)?;
    if secret.is_empty() {
        let text =
            format!("{name} is empty, which anyone can guess: give 32 random bytes, or None");
        return Err(exception::configuration(given.py(), text));
    }
    Ok(Some(secret))
}

/// The forms of argument `name`, a certificate or a key: bytes, several of them, a file's path, or
/// `cryptography`'s objects.
fn parts(name: &str, object: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    if object.is_instance_of::<PyBytes>() || object.is_instance_of::<PyByteArray>() {
        return Ok(vec![object.extract()?]);
    }
    if object.is_instance_of::<PyMemoryView>() {
        return Ok(vec![bytes(object)?]);
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        let parts = object.try_iter()?;
        let part = |part: Bound<'_, PyAny>| {
            part_of(&part).map_err(|error| {
                let text = |kind| {
                    format!(
                        "{name} as a list holds PEM, DER and objects of cryptography: not {kind}"
                    )
                };
                no_material(&part, error, text)
            })
        };
        return parts.map(|item| part(item?)).collect();
    }
    Ok(vec![match object.cast::<PyString>() {
        Ok(text) if is_pem(text.to_str()?.as_bytes()) => bytes(object)?,
        _ if is_of_cryptography(object)? => part_of(object)?,
        _ => {
            let path: PathBuf = object.extract().map_err(|error| {
                let text = |kind| {
                    format!("{name} is a path, PEM, DER, an object of cryptography or a list of the last three: not {kind}")
                };
                no_material(object, error, text)
            })?;
            std::fs::read(&path).map_err(|error| error::with_path(object.py(), &error, &path))?
        }
    }])
}

/// The error for other objects: names the type only, since the contents may be secret.
fn no_material(
    object: &Bound<'_, PyAny>,
    error: PyErr,
    text: impl FnOnce(String) -> String,
) -> PyErr {
    if !error.is_instance_of::<PyTypeError>(object.py()) {
        return error;
    }
    match kind_of(object) {
        Ok(kind) => PyTypeError::raise(text(kind)),
        Err(error) => error,
    }
}

fn kind_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    object.get_type().name()?.extract()
}

fn is_of_cryptography(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = object.py();
    Ok(object.hasattr(intern!(py, "public_bytes"))?
        || object.hasattr(intern!(py, "private_bytes"))?)
}

fn part_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if is_of_cryptography(object)? {
        let py = object.py();
        let material = py.import(intern!(py, "ringloop.quic._material"))?;
        return material.call_method1(intern!(py, "encoded"), (object,))?.extract();
    }
    bytes(object)
}

/// A private key, as given.
pub struct Key<'py> {
    pub object: Option<Bound<'py, PyAny>>,
    pub password: Option<Bound<'py, PyAny>>,
}

pub fn private_key<'py>(keywords: &Keywords<'py>) -> PyResult<Key<'py>> {
    Ok(Key {
        object: keywords.take_some("private_key")?,
        password: keywords.take_some("password")?,
    })
}

/// Reads a chain and its key, which may be in one PEM text.
pub fn certificate(chain: Option<Bound<'_, PyAny>>, key: Key<'_>) -> PyResult<Option<Certificate>> {
    let Some(chain) = chain else {
        return match key.object {
            Some(key) => Err(exception::configuration(
                key.py(),
                "private_key= needs the certificate that it belongs to: certificate=".to_owned(),
            )),
            None => key.password.map_or(Ok(None), |password| {
                let text = "password= needs the key that it opens: private_key=";
                Err(exception::configuration(password.py(), text.to_owned()))
            }),
        };
    };
    let py = chain.py();
    let parts_of_chain = parts("certificate", &chain)?;
    let encoded = match &key.object {
        Some(key) => parts("private_key", key)?.concat(),
        None => parts_of_chain.concat(),
    };
    let encoded = match key.password {
        Some(password) => {
            let material = py.import(intern!(py, "ringloop.quic._material"))?;
            let encoded = ffi::new_bytes(py, &encoded)?;
            material.call_method1(intern!(py, "decrypted"), (encoded, password))?.extract()?
        }
        None => encoded,
    };
    let made = if is_pem(&encoded) && parts_of_chain.iter().all(|part| is_pem(part)) {
        Certificate::from_pem(&parts_of_chain.join(&b'\n'), &encoded)
    } else {
        read_chain(parts_of_chain)
            .and_then(|chain| Certificate::from_der(chain, read_key(encoded)?))
    };
    made.map(Some).map_err(|error| match error {
        ConfigError::Pem(text) => {
            let place = |name: &str, given: &Bound<'_, PyAny>| {
                Ok(match path_of(given) {
                    Some(path) => format!("{name}: {path}"),
                    None => format!("{name}: {}", kind_of(given)?),
                })
            };
            let mut places = place("certificate", &chain);
            if let Some(key) = &key.object {
                places =
                    places.and_then(|first| Ok(format!("{first}, {}", place("private_key", key)?)));
            }
            let places = match places {
                Ok(places) => places,
                Err(error) => return error,
            };
            let missing = match key.object {
                None => ": give it as private_key=, or its file",
                Some(_) => "",
            };
            exception::configuration(py, format!("{text}{missing} ({places})"))
        }
        error => errors::config_of(py, "certificate", error),
    })
}

/// The path of the material, if it was read from a file.
fn path_of(given: &Bound<'_, PyAny>) -> Option<String> {
    if let Ok(text) = given.cast::<PyString>()
        && is_pem(text.to_str().ok()?.as_bytes())
    {
        return None;
    }
    let path: PathBuf = given.extract().ok()?;
    Some(path.display().to_string())
}

fn read_key(encoded: Vec<u8>) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let read = if is_pem(&encoded) {
        PrivateKeyDer::from_pem_slice(&encoded).map_err(|error| error.to_string())
    } else {
        PrivateKeyDer::try_from(encoded).map_err(str::to_owned)
    };
    read.map_err(|error| ConfigError::Pem(format!("no private key: {error}")))
}

fn read_chain(parts: Vec<Vec<u8>>) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let mut chain = Vec::new();
    for part in parts {
        if !is_pem(&part) {
            chain.push(CertificateDer::from(part));
            continue;
        }
        for der in CertificateDer::pem_slice_iter(&part) {
            chain.push(der.map_err(|error| ConfigError::Pem(format!("no certificate: {error}")))?);
        }
    }
    if chain.is_empty() {
        return Err(ConfigError::Pem("no certificate in the PEM text".to_owned()));
    }
    Ok(chain)
}
