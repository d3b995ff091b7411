//! Makes the type object of a native type, which `native_type.rs` describes.
//!
//! Called by: the initialisation of the module, once a type. The invariants are those of
//! `native_type.rs`.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::{PySystemError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::lifecycle;
use super::make::Raise as _;
use super::names::intern;
use super::native_type::{Definition, Layout, Native, Payload};

const WORD: usize = size_of::<*mut ffi::PyObject>();

impl<T: Payload> Native<T> {
    /// Makes the type as a subclass of `base`, a class with `__slots__` throughout (or `object`).
    pub fn create<'py>(
        &'static self,
        py: Python<'py>,
        base: &Bound<'py, PyType>,
    ) -> PyResult<Bound<'py, PyType>> {
        if !self.type_object.load(Ordering::Relaxed).is_null() {
            return Err(PySystemError::raise("a native type is created once a process"));
        }
        const {
            assert!(align_of::<T>() <= WORD, "payloads are aligned like pointers");
            assert!(
                T::SPARES_MAX == 0 || (T::BASE_SLOTS > 0 && !T::DICT),
                "a spare's first slot links to the next, and its dictionary would be an instance's"
            );
        };
        let base_size = basic_size(base);
        let base_slots = slots_of_bases(base)?;
        if !begins_without_gap(&base_slots, T::BASE_SLOTS) {
            return Err(PyTypeError::raise(format!("the slots of {base} are not where expected")));
        }
        let payload_offset = base_size.next_multiple_of(WORD);
        let mut end = payload_offset + size_of::<T>().next_multiple_of(WORD);
        let mut members = Vec::new();
        let dict = T::DICT.then(|| take_word(&mut end, c"__dictoffset__", &mut members));
        let inherited_weak_list = weak_list_offset(base);
        let own_weak_list = (T::WEAKREF && inherited_weak_list == 0)
            .then(|| take_word(&mut end, c"__weaklistoffset__", &mut members) as isize);
        let weak_list = own_weak_list.or((inherited_weak_list != 0).then_some(inherited_weak_list));

        let type_object = build::<T>(py, base, end, members)?;
        make_immortal(&type_object);
        self.payload_offset.store(payload_offset, Ordering::Relaxed);
        let references = base_slots.into_iter().skip(T::BASE_SLOTS).chain(dict).collect();
        let layout = Layout { references, weak_list };
        if self.layout.set(layout).is_err() {
            return Err(PySystemError::raise("a native type is created once a process"));
        }
        self.type_object.store(type_object.clone().into_ptr().cast(), Ordering::Release);
        Ok(type_object)
    }
}

/// The version of an object's class: `CPython` changes it with every change of the class or one of its
/// bases. Zero stands for a class that has none at the moment.
#[inline]
pub fn type_version<T>(object: &Bound<'_, T>) -> u32 {
    let class = object.as_any().get_type_ptr();
    // SAFETY: the object keeps its class alive.
    let version = unsafe { &raw mut (*class).tp_version_tag };
    // SAFETY: as above; the field is aligned, and other threads write it atomically.
    let version = unsafe { AtomicU32::from_ptr(version) };
    version.load(Ordering::Relaxed)
}

/// Instances own a reference to their type. Counted by every thread that frees one, it would be a
/// contended cache line between loops in different threads; the types live forever anyway.
#[cfg(Py_GIL_DISABLED)]
fn make_immortal(type_object: &Bound<'_, PyType>) {
    unsafe extern "C" {
        /// Exported for CPython's own extensions (`pycore_object.h`).
        fn _Py_SetImmortal(object: *mut ffi::PyObject);
    }
    // SAFETY: a type that was just made: no other thread knows it.
    unsafe { _Py_SetImmortal(type_object.as_ptr()) };
}

#[cfg(not(Py_GIL_DISABLED))]
fn make_immortal(_type_object: &Bound<'_, PyType>) {}

/// The attribute `__dict__`: with the offset alone, instances have a dictionary that only `setattr`
/// uses.
fn dict_attribute() -> ffi::PyGetSetDef {
    ffi::PyGetSetDef {
        name: c"__dict__".as_ptr(),
        get: Some(ffi::PyObject_GenericGetDict),
        set: Some(ffi::PyObject_GenericSetDict),
        ..ffi::PyGetSetDef::default()
    }
}

fn build<'py, T: Payload>(
    py: Python<'py>,
    base: &Bound<'py, PyType>,
    size: usize,
    mut members: Vec<ffi::PyMemberDef>,
) -> PyResult<Bound<'py, PyType>> {
    let mut definition =
        Definition::<T> { methods: vec![], properties: vec![], slots: vec![], marker: PhantomData };
    T::define(&mut definition);
    definition.methods.push(ffi::PyMethodDef::zeroed());
    if T::DICT {
        definition.properties.push(dict_attribute());
    }
    definition.properties.push(ffi::PyGetSetDef::default());
    // SAFETY: the all-zero member ends the table.
    members.push(unsafe { std::mem::zeroed() });

    let mut add = |slot, pointer: *mut std::ffi::c_void| {
        definition.slots.push(ffi::PyType_Slot { slot, pfunc: pointer });
    };
    add(ffi::Py_tp_doc, T::DOC.as_ptr().cast_mut().cast());
    add(ffi::Py_tp_dealloc, lifecycle::dealloc::<T> as *mut _);
    add(ffi::Py_tp_traverse, lifecycle::traverse::<T> as *mut _);
    add(ffi::Py_tp_clear, lifecycle::clear::<T> as *mut _);
    if T::FINALIZER {
        add(ffi::Py_tp_finalize, lifecycle::finalize::<T> as *mut _);
    }
    add(ffi::Py_tp_methods, Vec::leak(definition.methods).as_mut_ptr().cast());
    add(ffi::Py_tp_getset, Vec::leak(definition.properties).as_mut_ptr().cast());
    add(ffi::Py_tp_members, Vec::leak(members).as_mut_ptr().cast());
    definition.slots.push(ffi::PyType_Slot::default());

    // Managed weak lists (3.12+) are before the object: the allocation checks the type's own flag.
    let inherited = type_flags(base) & MANAGED_WEAKREF;
    let flags =
        ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_HAVE_GC | ffi::Py_TPFLAGS_DISALLOW_INSTANTIATION;
    let mut spec = ffi::PyType_Spec {
        name: T::NAME.as_ptr(),
        basicsize: size as i32,
        itemsize: 0,
        flags: (flags | inherited) as u32,
        slots: Vec::leak(definition.slots).as_mut_ptr(),
    };
    // SAFETY: the spec and its tables are complete, zero-terminated, and live long enough.
    let object = unsafe { ffi::PyType_FromSpecWithBases(&raw mut spec, base.as_ptr()) };
    // SAFETY: a new reference, or null with an exception set.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object) }?;
    Ok(object.cast_into::<PyType>()?)
}

#[cfg(Py_3_12)]
const MANAGED_WEAKREF: std::ffi::c_ulong = ffi::Py_TPFLAGS_MANAGED_WEAKREF;
#[cfg(not(Py_3_12))]
const MANAGED_WEAKREF: std::ffi::c_ulong = 0;

/// Reserves one pointer at the end of the layout and registers its offset with `CPython`.
fn take_word(end: &mut usize, name: &'static CStr, members: &mut Vec<ffi::PyMemberDef>) -> usize {
    let offset = *end;
    *end += WORD;
    members.push(ffi::PyMemberDef {
        name: name.as_ptr(),
        type_code: ffi::Py_T_PYSSIZET,
        offset: offset as isize,
        flags: ffi::Py_READONLY,
        doc: ptr::null(),
    });
    offset
}

/// Invariant 5.
fn begins_without_gap(offsets: &[usize], count: usize) -> bool {
    let header = size_of::<ffi::PyObject>();
    offsets.len() >= count && (0..count).all(|index| offsets[index] == header + index * WORD)
}

/// Finds the slots of all bases; rejects a base with other data.
fn slots_of_bases(base: &Bound<'_, PyType>) -> PyResult<Vec<usize>> {
    let py = base.py();
    let member_descriptor =
        py.import(intern!(py, "types"))?.getattr(intern!(py, "MemberDescriptorType"))?;
    let mut offsets = Vec::new();
    for class in base.mro() {
        let class = class.cast::<PyType>()?;
        for name in class.getattr(intern!(py, "__dict__"))?.try_iter()? {
            let member = class.getattr(intern!(py, "__dict__"))?.get_item(name?)?;
            if !member.is_instance(&member_descriptor)? {
                continue;
            }
            let descriptor = member.as_ptr().cast::<ffi::PyMemberDescrObject>();
            // SAFETY: the instance check above makes it a PyMemberDescrObject, alive with `member`.
            let definition = unsafe { (*descriptor).d_member };
            // SAFETY: a member descriptor points to its definition inside the type.
            let definition = unsafe { &*definition };
            if definition.type_code == ffi::Py_T_OBJECT_EX {
                offsets.push(definition.offset as usize);
            }
        }
    }
    let header = size_of::<ffi::PyObject>();
    let own_weak_list = usize::from(weak_list_offset(base) > 0);
    if header + (offsets.len() + own_weak_list) * WORD != basic_size(base) || dict_offset(base) != 0
    {
        return Err(PyTypeError::raise(format!(
            "{base} keeps more than __slots__; cannot extend it"
        )));
    }
    offsets.sort_unstable();
    Ok(offsets)
}

fn basic_size(class: &Bound<'_, PyType>) -> usize {
    // SAFETY: a type object is alive as long as the borrow, and its size never changes.
    unsafe { (*class.as_type_ptr()).tp_basicsize as usize }
}

fn weak_list_offset(class: &Bound<'_, PyType>) -> isize {
    // SAFETY: as above.
    unsafe { (*class.as_type_ptr()).tp_weaklistoffset }
}

fn dict_offset(class: &Bound<'_, PyType>) -> isize {
    // SAFETY: as above.
    unsafe { (*class.as_type_ptr()).tp_dictoffset }
}

fn type_flags(class: &Bound<'_, PyType>) -> std::ffi::c_ulong {
    // SAFETY: as above; PyType_GetFlags reads the field as the build requires.
    unsafe { ffi::PyType_GetFlags(class.as_type_ptr()) }
}
