//! One buffer written from several threads, each its own part.

use std::marker::PhantomData;
use std::ops::Range;

/// A mutable slice that can be shared by calls that touch disjoint parts of it.
pub(crate) struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: only `part` reaches the elements, and its callers keep parts disjoint.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Elements `range` of the slice.
    ///
    /// # Safety
    /// No other part given out and still in use overlaps this one.
    #[expect(clippy::mut_from_ref, reason = "the caller keeps the parts disjoint")]
    pub(crate) unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {}", self.len);
        // SAFETY: the range lies inside the slice, and is disjoint from all others by contract.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// The first element, for kernels that write strided parts.
    pub(crate) fn start(&self) -> *mut T {
        self.start
    }
}
