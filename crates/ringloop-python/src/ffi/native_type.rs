//! Native types whose base is a Python class.
//!
//! ```text
//! object  │ header │ slots of the base classes │ pad │ payload T │ __dict__ │ weak list │
//!         0        16                          │     payload_offset           (where the base lacks them)
//!                                              └ base.tp_basicsize
//! ```
//! Invariants:
//! 1. `create` runs once per payload type; before it `type_object` is null and there is no
//!    instance.
//! 2. The types are final and have no constructor, so every instance comes from `instantiate`, which
//!    writes the payload before anything else can run.
//! 3. `payload_offset` is aligned for `T` (`create` rejects alignments above a pointer's), and the
//!    type's basic size covers payload, dictionary and weak list.
//! 4. The bases hold nothing but object slots between the header and `tp_basicsize` (`create`
//!    rejects others), so that lifecycle.rs knows every reference of an instance.
//! 5. The first `Payload::BASE_SLOTS` of these slots follow the header without a gap (`create` checks).

use std::ffi::CStr;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use pyo3::exceptions::{PySystemError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyType;

use super::lifecycle;
use super::make::Raise as _;
use super::method::{Method, Property, Target};
use super::names::intern;
use super::object::{ObjCell, Visited, Visitor};

const WORD: usize = size_of::<*mut ffi::PyObject>();

/// State that lives in a native type's instances.
pub trait Payload: Sized + 'static {
    /// The qualified name, `package.module.Name`.
    const NAME: &'static CStr;
    /// The type's documentation.
    const DOC: &'static CStr;
    /// Give instances a `__dict__`.
    const DICT: bool = false;
    /// Support weak references to instances; ignored if the base does.
    const WEAKREF: bool = true;
    /// How many slots of the base classes the payload uses; see [`This::base_slots`].
    const BASE_SLOTS: usize = 0;
    /// Call [`Payload::finalize`] before an instance is freed.
    const FINALIZER: bool = false;

    /// The one type object of this payload.
    fn native() -> &'static Native<Self>;
    fn define(definition: &mut Definition<Self>);
    /// Shows every reference to the garbage collector; must not call into Python.
    fn visit(&self, visitor: &mut dyn Visitor) -> Visited;
    /// Drops every reference; values are moved out of their cells before they are dropped.
    fn clear(&self);
    /// What `__del__` would do; runs at most once, may resurrect.
    fn finalize(_this: This<'_, '_, Self>) {}
}

/// The functions of a [`Payload`] that are lists: `define` names the one that lists the members, and
/// `finalize` is optional. The fields need `visit` and `clear`, as [`ObjCell`] has them.
macro_rules! payload {
    ($type:ty; define $define:path; visit $($($seen:ident).+),*; clear $($($cleared:ident).+),*
        $(; finalize $finalize:path)?) => {
        $(const FINALIZER: bool = true;
        fn finalize(this: $crate::ffi::This<'_, '_, Self>) {
            $finalize(this);
        })?
        fn native() -> &'static $crate::ffi::Native<Self> {
            static TYPE: $crate::ffi::Native<$type> = $crate::ffi::Native::new();
            &TYPE
        }
        fn define(definition: &mut $crate::ffi::Definition<Self>) {
            $define(definition);
        }
        fn visit(&self, _visitor: &mut dyn $crate::ffi::Visitor) -> $crate::ffi::Visited {
            $(self.$($seen).+.visit(_visitor)?;)*
            $crate::ffi::Visited::Continue(())
        }
        fn clear(&self) {
            $(self.$($cleared).+.clear();)*
        }
    };
}
pub(crate) use payload;

/// An instance, and its payload behind `Deref`.
pub struct This<'a, 'py, T> {
    object: Borrowed<'a, 'py, PyAny>,
    payload: &'a T,
}

impl<T> Clone for This<'_, '_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for This<'_, '_, T> {}

impl<T> Deref for This<'_, '_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.payload
    }
}

impl<'a, 'py, T> This<'a, 'py, T> {
    #[inline]
    pub fn py(&self) -> Python<'py> {
        self.object.py()
    }

    #[inline]
    pub fn object(&self) -> Borrowed<'a, 'py, PyAny> {
        self.object
    }

    /// The payload for as long as the instance is borrowed.
    #[inline]
    pub fn payload(&self) -> &'a T {
        self.payload
    }
}

impl<'a, T: Payload> This<'a, '_, T> {
    /// The first slots of the base classes, right after the header, as cells. The base's own
    /// descriptors return the objects that the payload puts there.
    #[inline]
    pub fn base_slots<const N: usize>(&self) -> &'a [ObjCell; N] {
        const { assert!(N <= T::BASE_SLOTS, "`create` has not checked so many") };
        let first = self.object.as_ptr().wrapping_add(1).cast::<[ObjCell; N]>();
        // SAFETY: invariants 4 and 5: as many words hold a reference or null each, as an `ObjCell` does.
        unsafe { &*first }
    }
}

// SAFETY: `receive` returns the payload of instances of `T::native()`, on which `Definition<T>`
// installs.
unsafe impl<T: Payload> Target for T {
    type Receiver<'a, 'py> = This<'a, 'py, T>;
    const LOCKED: bool = true;
    #[inline]
    unsafe fn receive<'a>(py: Python<'_>, object: *mut ffi::PyObject) -> This<'a, '_, T> {
        let payload = T::native().payload_ptr(object);
        // SAFETY: invariants 2 and 3: an instance's payload is initialised for as long as it lives.
        let payload = unsafe { &*payload };
        // SAFETY: the caller keeps the instance alive for 'a.
        let object = unsafe { Borrowed::from_ptr(py, object) };
        This { object, payload }
    }
}

/// Members of a type while it is being defined.
pub struct Definition<T> {
    methods: Vec<ffi::PyMethodDef>,
    properties: Vec<ffi::PyGetSetDef>,
    slots: Vec<ffi::PyType_Slot>,
    marker: PhantomData<fn(T)>,
}

impl<T: Payload> Definition<T> {
    #[expect(clippy::needless_pass_by_value, reason = "a method is installed once")]
    pub fn method(&mut self, method: Method<T>) {
        self.methods.push(method.definition);
    }

    /// Add a property.
    #[expect(clippy::needless_pass_by_value, reason = "a property is installed once")]
    pub fn property(&mut self, property: Property<T>) {
        self.properties.push(property.definition);
    }

    /// Sets `__repr__`, made by `repr_slot!` for this payload.
    pub fn repr(&mut self, function: ffi::reprfunc) {
        self.slot(ffi::Py_tp_repr, function as *mut _);
    }

    fn slot(&mut self, slot: i32, function: *mut std::ffi::c_void) {
        self.slots.push(ffi::PyType_Slot { slot, pfunc: function });
    }
}

/// Offsets of an instance's references outside its payload.
pub(super) struct Layout {
    /// Offsets of the slots of the base classes.
    pub(super) base_slots: Box<[usize]>,
    /// Offset of our own `__dict__`.
    pub(super) dict: Option<usize>,
    /// Offset of the weak list; negative if `CPython` keeps it before the object.
    pub(super) weak_list: Option<isize>,
}

/// The type object of one payload, in a static.
pub struct Native<T> {
    type_object: AtomicPtr<ffi::PyTypeObject>,
    payload_offset: AtomicUsize,
    layout: OnceLock<Layout>,
    marker: PhantomData<fn(T)>,
}

impl<T: Payload> Native<T> {
    /// Makes the static; [`Native::create`] makes the type.
    pub const fn new() -> Self {
        Self {
            type_object: AtomicPtr::new(ptr::null_mut()),
            payload_offset: AtomicUsize::new(0),
            layout: OnceLock::new(),
            marker: PhantomData,
        }
    }

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
        let layout = Layout { base_slots: base_slots.into(), dict, weak_list };
        if self.layout.set(layout).is_err() {
            return Err(PySystemError::raise("a native type is created once a process"));
        }
        self.type_object.store(type_object.clone().into_ptr().cast(), Ordering::Release);
        Ok(type_object)
    }

    #[inline]
    pub fn instantiate<'py>(&self, py: Python<'py>, payload: T) -> PyResult<Bound<'py, PyAny>> {
        let type_object = self.type_object.load(Ordering::Relaxed);
        if type_object.is_null() {
            return Err(PySystemError::raise("the type was not created"));
        }
        // SAFETY: invariant 1: a ready heap type.
        let object = unsafe { ffi::PyType_GenericAlloc(type_object, 0) };
        if object.is_null() {
            return Err(PyErr::fetch(py));
        }
        let place = self.payload_ptr(object);
        // SAFETY: invariants 2 and 3: fresh, aligned memory, and no code ran since the allocation.
        unsafe { place.write(payload) };
        // SAFETY: the allocation is a new reference.
        Ok(unsafe { Bound::from_owned_ptr(py, object) })
    }

    /// Makes an instance and lets `fill` set its slots.
    #[inline]
    pub fn instantiate_with<'py>(
        &self,
        py: Python<'py>,
        payload: T,
        fill: impl FnOnce(This<'_, 'py, T>),
    ) -> PyResult<Bound<'py, PyAny>> {
        let object = self.instantiate(py, payload)?;
        // SAFETY: an instance that was just made.
        fill(unsafe { T::receive(py, object.as_ptr()) });
        Ok(object)
    }

    /// The payload of `object` when it is exactly of this type.
    #[inline]
    pub fn get<'a, 'py>(&self, object: &'a Bound<'py, PyAny>) -> Option<This<'a, 'py, T>> {
        // SAFETY: the type check above `then` makes it an instance; the borrow keeps it alive.
        self.is_exactly(object).then(|| unsafe { T::receive(object.py(), object.as_ptr()) })
    }

    /// Runs `body` with the payload of `object`, if it is of this type.
    #[inline]
    pub fn with<'a, 'py>(
        &self,
        object: &'a Bound<'py, PyAny>,
        body: impl FnOnce(This<'a, 'py, T>) -> PyResult<()>,
    ) -> PyResult<()> {
        self.get(object).map_or(Ok(()), body)
    }

    /// Whether `object` is of this type.
    #[inline]
    pub fn is_exactly(&self, object: &Bound<'_, PyAny>) -> bool {
        object.get_type_ptr() == self.type_object.load(Ordering::Relaxed)
    }

    /// Whether [`Native::create`] has run.
    #[inline]
    pub fn is_created(&self) -> bool {
        !self.type_object.load(Ordering::Relaxed).is_null()
    }

    #[inline]
    pub(super) fn payload_ptr(&self, object: *mut ffi::PyObject) -> *mut T {
        object.cast::<u8>().wrapping_add(self.payload_offset.load(Ordering::Relaxed)).cast()
    }

    #[inline]
    pub(super) fn layout(&self) -> Option<&Layout> {
        self.layout.get()
    }
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
