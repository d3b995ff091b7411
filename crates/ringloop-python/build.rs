//! Tells rustc which `CPython` this is built for (`cfg(Py_3_12)`, `cfg(Py_GIL_DISABLED)`).

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
